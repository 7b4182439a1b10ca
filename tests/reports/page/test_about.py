"""What a record says of itself: the sentence, the repetition, the citation."""

import ast
from dataclasses import replace

from interp.reports.page import about

from interp.findings import Scalar
from interp.running.spec import RunSpec
from tests.reports.pictures import made_record


def called_with(source: str) -> tuple[list, dict]:
    """The arguments of the `interp.run(...)` in a snippet."""
    call = next(n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call))
    assert ast.unparse(call.func) == "interp.run"
    return [ast.literal_eval(a) for a in call.args], {k.arg: ast.literal_eval(k.value) for k in call.keywords}


def test_a_question_and_a_line_say_what_was_asked_of_what():
    record = made_record()
    assert about.asked(record) == "What does the probe pictures find in pythia-410m?"
    assert about.read_on(record) == [
        "gpt_neox, 24 layers of width 1024, 405M parameters",
        "400 prompts of “mixed”",
    ]
    clusters = {"n": 48, "by": "shared wording"}
    in_clusters = replace(record, prompts={**record.prompts, "n": 288, "clusters": clusters})
    assert about.read_on(in_clusters)[1] == "288 prompts in 48 clusters, by shared wording, of “mixed”"
    assert "“mixed” (some results: at most 75 of them)" in about.methods(in_clusters)
    assert "288 prompts in 48 clusters, by shared wording" in about.methods(in_clusters)
    many = replace(record, findings=dict.fromkeys("abcde", record.findings["pictures"]))
    assert about.asked(many) == "What do 5 probes find in pythia-410m?"


def test_headings_snippets_and_counts_say_what_was_run():
    at = {"model": {"name": "../models/stories260K/"}}
    assert about.heading(made_record(**at)) == "stories260K"
    assert about.heading(made_record(model={"name": "EleutherAI/pythia-410m"})) == "EleutherAI/pythia-410m"

    def counted(*counts):
        return [replace(Scalar.undefined("no rows"), n=n) for n in counts]

    assert about.usual_n(counted(75, 75, 9)) == "75 prompts"
    assert about.usual_n(counted(75, 8, 9)) == "" and about.usual_n([]) == ""
    record = made_record()
    positional, named = called_with(about.python(record) or "")
    assert positional == ["pythia-410m"]
    assert named == {"probes": ["pictures"], "prompts": "mixed", "n_pool": 400, "seed": 7}
    spec = RunSpec.from_json(record.spec)
    rebuilt = RunSpec(positional[0], settings={"pictures": {"kind": "flat"}}, **named)
    assert rebuilt.hash == spec.hash


def test_the_python_snippet_names_the_settings_that_are_not_defaults():
    record = made_record()
    changed = {**record.spec, "probes": {"pictures": {"kind": "solid"}}, "per_quintile": None}
    _, named = called_with(about.python(made_record(spec=changed)) or "")
    assert named["settings"] == {"pictures": {"kind": "solid"}} and named["per_quintile"] is None
    changed = {**made_record().spec, "probes": {"gone": {"layer": 3}}}
    _, named = called_with(about.python(made_record(spec=changed)) or "")
    assert named["settings"] == {"gone": {"layer": 3}}
    assert about.python(made_record(spec={"model": "m"})) is None


def test_the_methods_sentence_carries_weights_prompts_and_the_correction_and_no_numbers():
    text = about.methods(made_record())
    facts = (
        "interp 0.1.0, revision 0123456789ab with local changes", "weights 9fb1c1f4a2d04c7e", "in float32",
        "content hash abababababababab", "seed 7", "Benjamini and Hochberg over the 4 headline numbers",
    )  # fmt: skip
    assert [fact for fact in facts if fact not in text] == [] and "0.471" not in text


def test_the_bibtex_entry_is_well_formed_and_pins_the_run():
    record = made_record(model={"name": "my_model{50%}&co\\x", "fingerprint": "9fb1"})
    entry = about.bibtex(record)
    assert entry.startswith("@software{interp-01234567,\n") and entry.endswith(",\n}\n")
    assert entry.count("{") == entry.count("}"), "BibTeX counts those behind a backslash too"
    assert r"my\_model\textbraceleft{}50\%\textbraceright{}\&co\textbackslash{}x" in entry
    assert "weights 9fb1" in entry and "year    = {2026}" in entry
    assert "n = 75 prompts, 12 prompts" in entry and "Gaussian, own variances" in entry
    (found,) = record.findings.values()
    few = {name: replace(s, n_clusters=4) for name, s in found.scalars.items()}
    assert "75 prompts in 4 clusters" in about.bibtex(replace(record, findings={"p": replace(found, scalars=few)}))
