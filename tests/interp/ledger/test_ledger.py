"""The ledger: claims put to models, judged together, written, read back, and gone on with."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import interp
from interp.cli.app import app
from interp.errors import RecordError, UnknownName, UsageError
from interp.findings import Control, Findings, Null, Scalar
from interp.ledger.claims import Claims, Reference, read_claims
from interp.ledger.evidence import Evidence, is_named, is_same_model, models_of, number_of
from interp.ledger.ledger import BEYOND, LEDGER_NAME, counts, read_ledger, show_ledger, write_ledger
from interp.ledger.replicate import (
    JOINT,
    TRAINED,
    as_first_judged,
    judged_rows,
    numbers_of,
    with_earlier,
)
from interp.records.record import RunRecord
from interp.table import Table, number_columns

CLAIMS = """
format = 1
paper = "paper9"
title = "A paper"
citation = "Somebody (2030)"
of_models = true
[[source]]
name = "each"
title = "probes of each model"
probes = ["manifold"]
scales.tiny = {}
[[claim]]
number = 1
title = "Two parts"
says = "Both are large."
measure = "Both."
[[claim.part]]
label = "one"
read = { source = "each", of = "manifold", field = "one" }
rule = { kind = "at_least", low = 0.5 }
rules = { "pythia-410m" = { kind = "near", value = 0.9, tolerance = 0.05 } }
[[claim.part]]
label = "two"
read = { source = "each", of = "manifold", field = "two" }
rule = { kind = "positive" }
[[claim]]
number = 2
title = "A comparison"
says = "Phi-2 has more."
measure = "Which has more."
[[claim.part]]
label = "in order"
read = { source = "each", of = "manifold", field = "one" }
models = ["phi-2", "pythia-410m"]
rule = { kind = "falling" }
[[claim]]
number = 3
title = "With a premise"
says = "Where two is positive, three is small."
measure = "Three."
[claim.premise]
read = { source = "each", of = "manifold", field = "two" }
rule = { kind = "positive" }
otherwise = "two is not positive"
[[claim.part]]
label = "three"
read = { source = "each", of = "manifold", table = "cells", where = { layer = -1, name = "b" }, field = "x" }
rule = { kind = "at_most", high = 1.0, null = false }
[[claim]]
number = 4
title = "Of one model alone"
says = "Pythia's."
measure = "Missing."
[[claim.part]]
label = "none"
read = { source = "each", of = "manifold", field = "absent" }
rule = { kind = "positive" }
only = ["pythia-410m"]
[[claim]]
number = 5
title = "Nobody can"
says = "It is."
reason = "there is no way"
"""
PYTHIA, PHI, OTHER = "EleutherAI/pythia-410m", "phi-2", "./mine"
ALL = {1, 2, 3, 4, 5}


@pytest.fixture
def claims(tmp_path) -> Claims:
    file = tmp_path / "paper9.toml"
    file.write_text(CLAIMS, encoding="utf-8")
    return read_claims(file)


def scalar(value, low, high, p=None):
    return Scalar(value, "1", interval=(low, high), interval_method="bootstrap", null=Null("chance", 0.0, (-0.1, 0.1)),
                  p=p, n=75)  # fmt: skip


X = np.array([0.1, 0.2, 0.3, 0.4])
CELLS = Table(
    {"layer": np.array([0, 0, 1, 1]), "name": np.array(["a", "b", "a", "b"]), "p": np.full(4, 0.01),
     "n": np.full(4, 75), "bare": np.arange(4.0),
     **number_columns("x", X, (X - 0.1, X + 0.1), np.outer([0.05, 0, 0.1], np.ones(4)))},
    {"layer": "label", "name": "label", "n": "prompts", "p": "1", "x": "bits", "bare": "bits"},
)  # fmt: skip


def record_of(model: str, one: Scalar, two: Scalar) -> RunRecord:
    findings = Findings("manifold", {"one": one, "two": two}, {"cells": CELLS})
    about = {"name": model, "fingerprint": "abcdef"}, {"unit": "prompt"}
    return RunRecord({}, "0" * 16, {}, {"manifold": findings}, *about, environment={})


def evidence(claims: Claims, **ones: tuple[Scalar, Scalar]) -> dict[tuple[str, str], Evidence]:
    names = {"pythia": PYTHIA, "phi": PHI, "other": OTHER}
    source = claims.sources()["each"]
    return {("each", names[n]): Evidence(source, record_of(names[n], *found)) for n, found in ones.items()}


FINE, TWO = scalar(0.9, 0.87, 0.93, p=0.001), scalar(0.4, 0.3, 0.5, p=0.002)


def cells_of(rows, number):
    return {cell.model: cell for cell in next(row for row in rows if row.number == number).cells}


def judged(claims, number, found, *models):
    """The cells of a claim, judged with all others by this evidence."""
    return cells_of(judged_rows(claims, ALL, models, numbers_of(found)), number)


def test_models_have_cells_and_comparisons_take_them_in_the_order_of_the_claim(claims):
    found = evidence(claims, pythia=(FINE, TWO), other=(scalar(0.6, 0.55, 0.7, p=0.001), TWO))
    rows = judged_rows(claims, ALL, [PYTHIA, OTHER], numbers_of(found))
    assert [row.number for row in rows] == [1, 2, 3, 4, 5]
    one = cells_of(rows, 1)
    assert [one[m].outcome for m in (PYTHIA, OTHER)] == ["supported", "supported"]
    assert one[PYTHIA].parts[0].rule.startswith("within 0.05 of 0.9")  # the paper's own number, by its hub id
    assert one[OTHER].parts[0].rule.startswith("at least 0.5")
    order = cells_of(rows, 2)
    assert set(order) == {JOINT} and order[JOINT].outcome == "not measurable here"
    assert "missing: phi-2" in order[JOINT].why
    alone = cells_of(rows, 4)
    assert alone[OTHER].why == "the paper says it of pythia-410m alone"
    assert alone[PYTHIA].outcome == "not measurable here" and "gives no absent here" in alone[PYTHIA].why
    assert cells_of(rows, 5)[""].why == "there is no way"
    low = scalar(0.2, 0.15, 0.25, p=0.001)
    for pythia, phi, outcome in ((low, FINE, "supported"), (FINE, low, "contradicted")):
        found = evidence(claims, pythia=(pythia, TWO), phi=(phi, TWO))
        assert judged(claims, 2, found, PYTHIA, PHI)[JOINT].outcome == outcome


STUDIED = """
[[source]]
name = "trained"
title = "networks of its own"
study = "training_courses"
scales.tiny = {}
[[claim]]
number = 6
is_beyond = true
title = "Of no model that is named"
says = "Networks trained for it do."
measure = "One."
[[claim.part]]
label = "one"
read = { source = "trained", of = "manifold", field = "one" }
rule = { kind = "at_least", low = 0.5 }
"""


def test_a_claim_that_reads_studies_alone_is_put_to_no_model(tmp_path):
    file = tmp_path / "paper9.toml"
    file.write_text(CLAIMS + STUDIED, encoding="utf-8")
    both = read_claims(file)
    assert [both.is_of_models(claim) for claim in both.claim] == [True] * 5 + [False]
    record = Evidence(both.sources()["trained"], record_of("", FINE, TWO))
    found = {**evidence(both, pythia=(FINE, TWO)), ("trained", ""): record}
    with_model = cells_of(judged_rows(both, {*ALL, 6}, [PYTHIA], numbers_of(found)), 6)
    assert set(with_model) == {TRAINED} and with_model[TRAINED].outcome == "supported"
    without = judged_rows(both, {*ALL, 6}, [], numbers_of({("trained", ""): record}))
    assert cells_of(without, 6)[""].outcome == "supported"
    assert "no language model was named" in cells_of(without, 1)[""].why


SECOND = """
[[claim.part]]
label = "of two others"
read = { source = "each", of = "manifold", field = "one" }
models = ["mine", "pythia-410m"]
rule = { kind = "falling" }
"""


def test_a_comparison_whose_models_are_here_decides_and_others_are_shown(tmp_path):
    (tmp_path / "paper9.toml").write_text(CLAIMS.replace("[[claim]]\nnumber = 3", SECOND + "[[claim]]\nnumber = 3"))
    claims = read_claims(tmp_path / "paper9.toml")
    found = evidence(claims, pythia=(scalar(0.2, 0.15, 0.25), TWO), other=(FINE, TWO))
    cell = judged(claims, 2, found, PYTHIA, OTHER)[JOINT]
    assert cell.outcome == "supported" and [part.outcome for part in cell.parts] == [None, "supported"]
    assert "missing: phi-2" in cell.parts[0].why
    neither = judged(claims, 2, evidence(claims, pythia=(FINE, TWO)), PYTHIA)[JOINT]
    assert [part.outcome for part in neither.parts] == ["not measurable here"] * 2


def test_parts_that_are_not_asked_or_measured_are_there_all_the_same(claims):
    held = judged(claims, 3, evidence(claims, other=(FINE, TWO)), OTHER)[OTHER]
    assert held.outcome == "supported" and held.parts[0].numbers[0].scalar.value == 0.4
    chance = scalar(0.01, -0.05, 0.07, p=0.8)
    failed = judged(claims, 3, evidence(claims, other=(FINE, chance)), OTHER)[OTHER]
    assert failed.outcome == "not measurable here" and failed.why.startswith("two is not positive")
    assert failed.parts[0].outcome is None and failed.parts[0].numbers[0].scalar.value == 0.4
    rows = judged_rows(claims, {5}, [OTHER], numbers_of({}))
    assert len(rows) == 5 and all(cell.outcome == "not measurable here" for row in rows for cell in row.cells)
    assert judged(claims, 1, {})[""].why == "no language model was named (--model)"
    found = evidence(claims, other=(scalar(math.nan, math.nan, math.nan), TWO))
    cell = judged(claims, 1, found, OTHER)[OTHER]
    assert math.isnan(cell.parts[0].numbers[0].scalar.value) and cell.parts[0].outcome == "not measurable here"


def test_p_is_corrected_and_cells_come_with_interval_null_and_p(claims):
    ones = {"pythia": (0.9, 0.03), "other": (0.9, 0.04)}
    found = evidence(claims, **{n: (scalar(v, 0.87, 0.93, p=p), replace(TWO, p=0.2)) for n, (v, p) in ones.items()})
    parts = [part for cell in judged(claims, 1, found, PYTHIA, OTHER).values() for part in cell.parts]
    assert [part.p_corrected for part in parts] == pytest.approx([0.08, 0.2, 0.08, 0.2])
    assert parts[0].outcome == "no different from the null"  # 0.03 alone would have passed
    found = evidence(claims, other=(FINE, TWO))["each", OTHER]
    number = number_of(read(table="cells", where={"layer": -1, "name": "b"}, field="x"), found)
    assert (number.value, number.interval, number.p, number.n) == (0.4, pytest.approx((0.3, 0.5)), 0.01, 75)
    assert number.null == Null("as in the table", 0.05, (0.0, 0.1)) and number.unit == "bits"
    bare = number_of(read(table="cells", where={"layer": 0, "name": "a"}, field="bare"), found)
    assert (bare.interval, bare.null) == (None, None)


def test_essential_controls_of_a_number_are_judged_with_it_and_kept_beside_it(claims):
    found = evidence(claims, other=(FINE, TWO))
    whole = found["each", OTHER]
    findings = whole.record.findings["manifold"]
    within = scalar(0.05, -0.1, 0.2, p=0.6)
    held = replace(
        findings, scalars={**findings.scalars, "one_within": within},
        controls={"one": (Control("within the last token", "one_within"),)},
    )  # fmt: skip
    found["each", OTHER] = replace(whole, record=replace(whole.record, findings={"manifold": held}))
    one, two = judged(claims, 1, found, OTHER)[OTHER].parts
    assert one.outcome == "no different from the null"
    assert one.why == "it does not hold within the last token (0.05, p = 0.6)"
    assert one.numbers[0].controls == [("within the last token", within)]
    assert two.outcome == "supported" and not two.numbers[0].controls


REVISION = """
[claim.revision]
since = 2030-02-01
why = "one part is enough."
judges = ["two"]
[[claim.revision.part]]
label = "one, asked for more"
read = { source = "each", of = "manifold", field = "one" }
rule = { kind = "at_least", low = 2.0 }
[claim.revision.premise]
read = { source = "each", of = "manifold", field = "two" }
rule = { kind = "PREMISE" }
otherwise = "two is too large"
[[claim]]
number = 9
title = "A younger claim"
says = "It is large."
measure = "How large."
since = 2030-02-01
[[claim.part]]
label = "two"
read = { source = "each", of = "manifold", field = "two" }
rule = { kind = "at_least", low = 2.0 }
"""


def test_a_later_rule_judges_the_same_numbers_and_the_first_verdict_stays_beside_it(tmp_path):
    second = "[[claim]]\nnumber = 2\n"

    def changed(premise: str) -> Claims:
        text = CLAIMS.replace(second, REVISION.replace("PREMISE", premise) + second)
        (tmp_path / "paper9.toml").write_text(text)
        return read_claims(tmp_path / "paper9.toml")

    claims = changed("positive")
    found = evidence(claims, other=(FINE, TWO))
    first = judged_rows(claims.first(), ALL, [OTHER], numbers_of(found))
    assert 9 not in [row.number for row in first]
    later = judged_rows(claims.later(), {*ALL, 9}, [OTHER], numbers_of(found))
    rows = {row.number: row for row in with_earlier(claims, first, later)}
    cell = cells_of(list(rows.values()), 1)[OTHER]
    assert cell.earlier == cells_of(first, 1)[OTHER] and cell.earlier.outcome == "supported"
    assert cell.outcome == "contradicted"
    assert [part.outcome for part in cell.parts] == [None, "supported", "contradicted"]
    assert "2030-02-01" in rows[1].revised and "one part is enough" in rows[1].revised
    assert cells_of(list(rows.values()), 9)[OTHER].earlier is None and "2030-02-01" in rows[9].revised
    assert rows[2] == next(row for row in first if row.number == 2), "what has no later rule is not judged anew"
    assert as_first_judged(list(rows.values()))[0].cells == first[0].cells
    claims = changed("negative")
    unasked = judged(claims.later(), 1, found, OTHER)[OTHER]
    assert unasked.outcome == "not measurable here" and unasked.why.startswith("two is too large")
    assert judged(claims.first(), 1, found, OTHER)[OTHER].outcome == "supported"


def read(**fields) -> Reference:
    return Reference(source="each", of="manifold", **fields)


@pytest.mark.parametrize("fields, words", [
    ({"field": "nothing"}, "manifold gives no nothing here"),
    ({"field": "x", "table": "nowhere"}, "gives no table nowhere"),
    ({"field": "x", "table": "cells", "where": {"depth": 1}}, "has no column depth"),
    ({"field": "x", "table": "cells", "where": {"layer": 0}}, "has 2 rows with layer 0"),
    ({"field": "x", "table": "cells", "where": {"layer": 7}}, "has 0 rows with layer 7"),
])  # fmt: skip
def test_a_number_that_is_not_there_is_told_in_words(claims, fields, words):
    found = evidence(claims, other=(FINE, TWO))["each", OTHER]
    missing = number_of(read(**fields), found)
    assert isinstance(missing, str) and words in missing


def test_models_are_known_by_their_names_and_a_study_lists_its_own():
    for name, other in (("pythia-410m", PYTHIA), ("pythia-410m@step1000", "pythia-410m")):
        assert is_same_model(name, other)
    assert not is_same_model("pythia-410m", "pythia-410m-deduped")
    for path in ("./phi-2", "models/phi-2/", "./phi-2.gguf", "microsoft/phi-2", "phi-2"):
        assert is_named(path, "phi-2"), path
    assert not is_named("./phi-2-tuned", "phi-2") and not is_same_model("./a/phi-2", "./b/phi-2")
    table = Table({"model": np.array(["a", "b"]), "fingerprint": np.array(["1", "2"])},
                  {"model": "label", "fingerprint": "label"})  # fmt: skip
    record = replace(record_of("", FINE, TWO), model={}, findings={"s": Findings("s", {}, {"models": table})})
    assert models_of(record) == [("a", "1"), ("b", "2")]


@pytest.mark.parametrize("paper, keywords, error, words", [
    ("paper4", {}, UnknownName, "paper3"),
    ("paper1", {"scale": "vast"}, UnknownName, "smoke"),
    ("paper1", {"rows": [4, 20]}, UsageError, "claim 20 of paper1"),
    ("paper1", {"models": ["pythia-410m"]}, UsageError, "about wind tunnels"),
    ("paper3", {}, UsageError, "none is named"),
    ("paper3", {"rows": [33, 64]}, UsageError, "none is named"),
    ("paper3", {"models": ["pythia-410m", "EleutherAI/pythia-410m"]}, UsageError, "named twice"),
])  # fmt: skip
def test_misuse_is_refused_before_anything_is_measured(tmp_path, without_type_checks, paper, keywords, error, words):
    with pytest.raises(error, match=words):
        interp.replicate(paper, out=tmp_path, quiet=True, **keywords)
    assert not list(tmp_path.iterdir())


def content_of(folder: Path) -> dict:
    """A ledger without what is different every time it is made."""
    raw = json.loads((folder / LEDGER_NAME).read_text(encoding="utf-8"))
    for paper in raw["papers"]:
        for source in paper["sources"]:
            del source["record"]
    del raw["created"], raw["environment"]
    return raw


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    """The folder of the tiny ledger of the first paper, with its evidence beside it."""
    out = tmp_path_factory.mktemp("tiny")
    return interp.replicate("paper1", scale="tiny", out=out, quiet=True).page.parent


def test_the_tiny_ledger_judges_one_claim_of_each_kind(tiny):
    ledger = read_ledger(tiny)
    rows = {row.number: row.cells[0] for row in ledger.papers[0].rows}
    assert len(ledger.papers[0].parts[""]) == 21 and not ledger.failures
    assert rows[1].earlier.parts[0].outcome == "supported" and rows[4].outcome == "supported"
    assert rows[1].outcome == "not measurable here", "the paper's own task is not trained at this scale"
    assert "one training" in rows[4].why
    assert rows[3].outcome == "not measurable here" and "scale tiny" in rows[3].why
    assert rows[2].outcome == "not measurable here" and "what its MLP sees" in rows[2].why  # at any scale
    assert rows[17].parts[-1].numbers[0].scalar is not None  # of the run of probes
    assert {heading: sum(counts(mine).values()) for heading, mine in ledger.papers[0].parts.items()} == {
        "": 21, BEYOND: len(rows) - 21,
    }  # fmt: skip


def test_a_ledger_that_was_stopped_goes_on_and_ends_the_same(tiny, capsys, monkeypatch):
    monkeypatch.setattr("interp.system.progress._SECONDS_BETWEEN_LINES", 0.0)
    before, out = content_of(tiny), tiny.parent
    records = sorted(out.glob("*/run.json"))
    (tiny / LEDGER_NAME).unlink()
    study = next(path for path in records if "tunnel_evaluation" in path.parent.name)
    (study.parent / "run.json").write_text("{", encoding="utf-8")  # killed while it was written, as it were
    interp.replicate("paper1", scale="tiny", out=out)
    said = capsys.readouterr().err.splitlines()
    (which,) = [line.partition(", tunnel evaluation: 3 of 3 after")[0] for line in said if "3 of 3" in line]
    assert any(line.startswith(f"{which}: ") for line in said)  # the source, by its title
    assert content_of(tiny) == before
    assert len(list(out.glob("*/run.json"))) == len(records) + 1  # only what was lost was done again
    interp.replicate("paper1", scale="tiny", out=out, quiet=True)
    assert len(list(out.glob("*/run.json"))) == len(records) + 1


def test_one_row_is_judged_again_and_the_page_drawn_from_the_file_alone(tiny):
    page = (tiny / "ledger.html").read_bytes()
    (tiny / "ledger.html").unlink()
    assert show_ledger(tiny / LEDGER_NAME).read_bytes() == page
    out, before = tiny.parent, content_of(tiny)
    done = interp.replicate("paper1", rows=[4], scale="tiny", out=out, quiet=True)
    (row,) = done.ledger.papers[0].rows
    assert row == next(row for row in read_ledger(tiny).papers[0].rows if row.number == 4)
    assert done.page.parent.name == "ledger-paper1-tiny-rows-4" and "--row 4" in done.ledger.command
    assert [source.name for source in done.ledger.papers[0].sources] == ["shipped_evaluation"]
    assert content_of(tiny) == before


def test_a_missing_ledger_is_refused(tmp_path):
    with pytest.raises(RecordError, match=r"there is no ledger\.json"):
        read_ledger(tmp_path)


def test_the_command_line_prints_the_claims_and_the_page(tiny):
    words = ["replicate", "paper1", "--scale", "tiny", "--out", str(tiny.parent)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert result.stdout.strip().splitlines()[-1] == str(tiny / "ledger.html")
    assert "The prediction follows every sequence" in result.stdout
    report = CliRunner().invoke(app, ["report", str(tiny)])
    assert report.stdout.strip() == str(tiny / "ledger.html")


def test_a_ledger_is_judged_again_by_the_rules_of_today_without_being_measured(tiny, tmp_path):
    copy = tmp_path / "ledger"
    shutil.copytree(tiny, copy)
    before = read_ledger(copy)
    (paper,) = before.papers
    rows = [row.model_copy(update={"revised": ""}) for row in as_first_judged(paper.rows)]
    first = before.model_copy(update={"papers": [paper.model_copy(update={"rows": rows})]})
    write_ledger(first, copy)
    after = interp.replicate(str(copy), out=tmp_path).ledger
    then, now = ([row.cells[0] for row in ledger.papers[0].rows] for ledger in (before, after))
    assert [cell.outcome for cell in now] == [cell.outcome for cell in then]
    assert [cell.earlier for cell in now] == [cell.earlier for cell in then]
    assert not list(tmp_path.glob("*/run.json"))


def test_a_selection_of_claims_is_judged_again_as_one(tiny):
    made = interp.replicate("paper1", rows=[2, 4], scale="tiny", out=tiny.parent, quiet=True)
    before = content_of(made.page.parent)
    assert interp.replicate(str(made.page), quiet=True).page == made.page
    assert content_of(made.page.parent) == before


def test_a_ledger_of_other_models_is_not_replaced(tiny, tmp_path):
    before = read_ledger(tiny)
    papers = [paper.model_copy(update={"models": ["pythia-70m", "my-model"]}) for paper in before.papers]
    write_ledger(before.model_copy(update={"papers": papers}), tmp_path / "ledger-paper3-tiny")
    with pytest.raises(UsageError, match="there is one of my-model, which it would replace"):
        interp.replicate("paper3", models=["EleutherAI/pythia-70m"], scale="tiny", out=tmp_path, quiet=True)
    with pytest.raises(UsageError, match="there is one of pythia-70m, my-model, which it would replace"):
        interp.replicate("paper3", models=["pythia-70m@step1"], scale="tiny", out=tmp_path, quiet=True)


@pytest.mark.parametrize("words", [["--row", "4"], ["--model", "gpt2"], ["--scale", "smoke"]])
def test_a_ledger_is_not_judged_again_on_something_else(tiny, words):
    with pytest.raises(UsageError, match=f"Leave .*{words[0]}"):
        CliRunner().invoke(app, ["replicate", str(tiny), *words], catch_exceptions=False)
