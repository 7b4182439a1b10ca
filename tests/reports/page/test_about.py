"""What a record says of itself: the sentence, the repetition, the citation."""

import ast
import re

from interp.reports.page import about

from interp.running.spec import RunSpec
from tests.reports.pictures import made_record


def called_with(source: str) -> tuple[list, dict]:
    """The arguments of the `interp.run(...)` in a snippet."""
    call = next(n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call))
    assert ast.unparse(call.func) == "interp.run"
    return [ast.literal_eval(a) for a in call.args], {k.arg: ast.literal_eval(k.value) for k in call.keywords}


def test_one_sentence_says_what_was_asked():
    assert about.asked(made_record()) == (
        "What the probe pictures found in pythia-410m (gpt_neox, 24 layers, 405M parameters), read on 75 of the 400 "
        "prompts of “mixed”, drawn evenly by next-token entropy."
    )


def test_the_heading_of_a_local_folder_is_its_name():
    at = {"model": {"name": "../models/stories260K/"}}
    assert about.heading(made_record(**at)) == "stories260K"
    assert about.heading(made_record(model={"name": "EleutherAI/pythia-410m"})) == "EleutherAI/pythia-410m"


def test_the_python_snippet_repeats_the_specification():
    record = made_record()
    positional, named = called_with(about.python(record) or "")
    assert positional == ["pythia-410m"]
    assert named == {"probes": ["pictures"], "prompts": "mixed", "n_pool": 400, "seed": 7}
    spec = RunSpec.from_json(record.spec)
    rebuilt = RunSpec(positional[0], settings={"pictures": {"kind": "flat"}}, **named)
    assert rebuilt.hash == spec.hash


def test_the_python_snippet_names_settings_that_are_not_defaults_and_a_draw_that_was_not_made():
    record = made_record()
    changed = {**record.spec, "probes": {"pictures": {"kind": "solid"}}, "per_quintile": None}
    _, named = called_with(about.python(made_record(spec=changed)) or "")
    assert named["settings"] == {"pictures": {"kind": "solid"}} and named["per_quintile"] is None


def test_the_settings_of_a_probe_that_is_gone_are_all_named():
    changed = {**made_record().spec, "probes": {"gone": {"layer": 3}}}
    _, named = called_with(about.python(made_record(spec=changed)) or "")
    assert named["settings"] == {"gone": {"layer": 3}}


def test_a_record_without_a_specification_has_no_snippet():
    assert about.python(made_record(spec={"model": "m"})) is None


def test_the_methods_sentence_carries_weights_prompts_and_every_headline():
    text = about.methods(made_record())
    facts = (
        "interp 0.1.0, revision 0123456789ab with local changes", "weights 9fb1c1f4a2d04c7e", "in float32",
        "content hash abababababababab", "seed 7",
        "share: 0.471, 95 % interval 0.43 to 0.52 by jackknife over prompts, logit scale",
        "null (Gaussian, own variances) 69.1, 95 % band 68.2 to 70.3", "p = 0.002, corrected over layers",
        "collapse: 0.06, no interval (too few prompts of one domain)", "n = 12 prompts (underpowered)",
    )  # fmt: skip
    assert [fact for fact in facts if fact not in text] == []


def test_the_bibtex_entry_is_well_formed_and_pins_the_run():
    record = made_record(model={"name": "my_model{50%}&co\\x", "fingerprint": "9fb1"})
    entry = about.bibtex(record)
    assert entry.startswith("@software{interp-01234567,\n") and entry.endswith(",\n}\n")
    unescaped = re.sub(r"\\[{}]", "", entry)
    assert unescaped.count("{") == unescaped.count("}")
    assert (
        r"my\_model\{50\%\}\&co\textbackslash{}x" in entry and "weights 9fb1" in entry and "year    = {2026}" in entry
    )
    assert "n = 75 prompts, 12 prompts" in entry and "Gaussian, own variances" in entry
