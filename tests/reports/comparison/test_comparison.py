"""The study `comparison`: who is pooled with whom, means and differences against textbook formulas, and its page."""

import math
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from interp.reports.comparison.lead import sure_of
from interp.reports.comparison.tables import difference_of, estimate
from interp.reports.export import _FONT, _sized
from interp.reports.page.render import html
from interp.reports.page.sections import (
    ALIKE,
    CHANCE,
    CONFIRMED,
    HARDLY,
    UNCHECKED,
    UNSURE,
    differences,
)
from interp.reports.plotly.prepare import undrawable
from scipy import stats
from typer.testing import CliRunner

import interp
from interp import registry
from interp.cli.app import app
from interp.cli.tables import print_differences
from interp.errors import InterpError, RecordError, UsageError
from interp.findings import Control, Findings, Null, Scalar
from interp.formatting import short
from interp.records.answers import answers
from interp.records.record import RunRecord
from interp.registry import load_entry
from interp.running.spec import make_study
from interp.table import LABEL, Table
from tests.reports.parsed import parse


def scalar(value, half=0.1):
    return Scalar(value, "bits", interval=(value - half, value + half), interval_method="jackknife",
                  null=Null("noise", 0.0, (-0.2, 0.2)))  # fmt: skip


def by_layer(values, halves=0.1, label=None):
    values = np.asarray(values, dtype=float)
    columns = {"layer": np.arange(len(values)), "share": values, "share_low": values - halves,
               "share_high": values + halves, "share_null": np.zeros(len(values)), "plain": values}  # fmt: skip
    units = {"layer": "layer", **{name: "fraction" for name in columns if name != "layer"}}
    table = Table(columns, units)
    return table if label is None else table.with_column("positions", np.array([label] * len(values)), "label")


def made(name, value, layers=(0.1, 0.3), card=None, **model) -> RunRecord:
    findings = Findings(
        "manifold",
        {"share": scalar(value), "other": scalar(1.0)},
        tables={"by_layer": by_layer(layers), "by_head": by_layer([*layers, *layers])},
        headline=("share",),
    )
    heads = findings.tables["by_head"].with_column("layer", np.repeat(np.arange(len(layers)), 2), "layer")
    findings = replace(findings, tables={**findings.tables, "by_head": heads})
    info = {"name": name, "fingerprint": name, "family": "llama", "n_layers": len(layers), **model}
    return RunRecord(
        created="2026-01-01T12:00:00+00:00", spec={"model": name, "seed": 0, "probes": {"manifold": {}}},
        spec_hash="0" * 16, model=info | ({"card": card} if card else {}), selfcheck=(), timings={},
        prompts={"name": "mixed", "hash": "1", "n": 9}, environment={"threads": 1}, findings={"manifold": findings},
    )  # fmt: skip


def numbered(name, scalars, probe="manifold", **more) -> RunRecord:
    """A run of one probe that found these numbers, all of them headlines if none are named."""
    found = Findings(probe, scalars, **{"headline": tuple(scalars), **more})
    return replace(made(name, 1.0), findings={probe: found})


def among(value, null, half=0.1):
    return replace(scalar(value), null=Null("noise", null, (null - half, null + half)))


def card(seed, kl, **network):
    figure = {"value": kl, "unit": "bits", "low": kl - 0.01, "high": kl + 0.01, "limit": None}
    return {
        "task": "bijection", "arch": "llama", "network": {"n_layers": 2, **network}, "parameters": {"V": 5},
        "seed": seed, "recipe": {"n_steps": 9}, "figures": {"kl_bits": figure}, "n_eval": 4000,
        "core_seconds": seed + 1.0, "baselines": {"position": {"kl_bits": 1.5}}, "variant": f"s{seed}",
        "environment": {},
    }  # fmt: skip


def compared(tmp_path, records, out=None, **asked):
    """The record of a comparison; `out` for those who read its page, which takes longer to draw than to compute."""
    written = [record.write(tmp_path / f"run{i}") for i, record in enumerate(records)]
    return interp.compare(written, out=out, **asked)


def rows(record, table="differences", **where):
    frame = record.findings["comparison"].to_frame(table)
    for column, value in where.items():
        frame = frame[frame[column] == value]
    return frame.to_dict("records")


def found(record, group="b"):
    """What the table of differences says of every number of a group: what was found, and the note."""
    return {row["name"]: (row["found"], row["note"]) for row in rows(record, group=group) if row["found"]}


def test_runs_are_held_against_the_first_with_intervals_in_quadrature(tmp_path):
    record = compared(tmp_path, [made("a", 1.0), made("b", 1.1, family="phi"), made("c", 3.0)])
    first, near, far = rows(record, name="share")
    assert (first["against"], near["against"], far["against"]) == ("", "a", "a")
    assert math.isnan(first["difference"]) and (near["verdict"], far["verdict"]) == ("within", "moved")
    half = math.hypot(0.1, 0.1)
    assert (far["difference_low"], far["difference_high"]) == pytest.approx((2 - half, 2 + half))
    assert (far["low"], far["high"], far["null_low"], far["null_high"]) == pytest.approx((2.9, 3.1, -0.2, 0.2))
    assert [each["name"] for each in rows(record, group="a")] == ["share", "other"]  # headlines first
    count = record.findings["comparison"]["n_moved"]
    assert (count.value, count.n, count.null.value, count.null.band) == (1, 2, 0, (0, 0))
    assert "several settings" not in " ".join(record.findings["comparison"].notes), "b differs in one"


def test_tunnels_that_differ_in_their_seed_alone_are_pooled(tmp_path):
    values = {"g": [1.0, 1.2, 1.4], "h": [2.0, 2.1, 2.6]}
    records = [
        made(f"{group}{seed}", value, card=card(seed, value / 10, n_kv_heads={"g": 4, "h": 2}[group]))
        for group, each in values.items() for seed, value in enumerate(each)
    ]  # fmt: skip
    record = compared(tmp_path, records)
    mine, theirs = rows(record, name="share")
    assert (mine["group"], theirs["group"], theirs["against"]) == ("g0", "h0", "g0") and theirs["n_runs"] == 3
    expected = stats.t.interval(0.95, 2, loc=np.mean(values["g"]), scale=stats.sem(values["g"]))
    assert (mine["value"], mine["low"], mine["high"]) == pytest.approx((1.2, *expected))
    welch = stats.ttest_ind(values["h"], values["g"], equal_var=False).confidence_interval(0.95)
    assert (theirs["difference_low"], theirs["difference_high"]) == pytest.approx((welch.low, welch.high))
    assert theirs["verdict"] == ("moved" if welch.low > 0 else "within") and theirs["method"] == "Welch's t over runs"
    error, _ = rows(record, name="kl_bits")
    assert error["probe"] == "tunnel" and error["value"] == pytest.approx(0.12) and error["is_headline"]
    assert "pooled: g0 (3), h0 (3)" in " ".join(record.findings["comparison"].notes)
    assert len(rows(record, "numbers", name="share")) == 6
    assert rows(record, "curves", group="g0", measure="share")[0]["n_runs"] == 3


def test_groups_and_their_references_can_be_named(tmp_path):
    records = [made(name, value) for name, value in zip("abcd", (1.0, 2.0, 2.1, 5.0), strict=True)]
    record = compared(tmp_path, records, groups=["x", "y", "y", "z"], against=["x", "x", "x", "y"], labels=list("pqrs"))
    x, y, z = rows(record, name="share")
    assert y["value"] == pytest.approx(2.05) and y["verdict"] == "" and "a group has one run" in y["method"]
    assert z["against"] == "y" and z["difference"] == pytest.approx(2.95) and x["against"] == ""
    assert [each["run"] for each in rows(record, "numbers", name="share")] == list("pqrs")


def test_difference_of_groups_without_spread_has_no_interval():
    found, verdict, method = difference_of([scalar(1.0), scalar(1.0)], [scalar(2.0), scalar(2.0)])
    assert (found.value, verdict) == (1.0, "differs") and math.isnan(found.low) and "no spread" in method
    assert math.isnan(estimate([replace(scalar(1.0), interval=None, interval_reason="weights")]).low)


def test_curves_run_along_the_fraction_of_the_depth_and_leave_finer_rows_out(tmp_path):
    two, three = made("a", 1.0, layers=(0.1, 0.3)), made("b", 1.0, layers=(0.2, 0.4, 0.8))
    curves = rows(compared(tmp_path, [two, three]), "curves")
    assert {(c["table"], c["measure"]) for c in curves} == {("by_layer", "share")}
    assert [(c["group"], c["depth"], c["value"]) for c in curves] == [
        ("a", 0.0, 0.1), ("a", 1.0, 0.3), ("b", 0.0, 0.2), ("b", 0.5, 0.4), ("b", 1.0, 0.8),
    ]  # fmt: skip
    assert curves[0]["low"] == pytest.approx(0.0) and curves[0]["null"] == 0


def test_curves_keep_labels_apart(tmp_path):
    def labelled(name):
        plain = made(name, 1.0)
        parts = [by_layer((0.1, 0.2), label="scored"), by_layer((0.5, 0.6), label="all")]
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0].columns}
        found = replace(plain.findings["manifold"], tables={"by_layer": Table(columns, parts[0].units)})
        return replace(plain, findings={"manifold": found})

    curves = rows(compared(tmp_path, [labelled("a"), labelled("b")]), "curves", group="b")
    assert [(c["measure"], c["value"]) for c in curves] == [
        ("share (scored)", 0.1), ("share (scored)", 0.2), ("share (all)", 0.5), ("share (all)", 0.6),
    ]  # fmt: skip


@pytest.mark.parametrize(("by", "n_said"), [("shared wording", 0), ("each prompt by itself", 1)])
def test_runs_that_do_not_resample_the_same_things_are_told_apart(tmp_path, by, n_said):
    records = [
        replace(made(name, value), prompts={"name": "mixed", "hash": "1", "n": 9, "clusters": {"n": 3, "by": mine}})
        for name, value, mine in (("a", 1.0, "shared wording"), ("b", 2.0, by))
    ]
    notes = compared(tmp_path, records).findings["comparison"].notes
    assert sum("resample different clusters" in note and by in note for note in notes) == n_said


def test_what_differs_behind_the_runs_is_said(tmp_path):
    one, other = made("a", 1.0, dtype="float32"), made("b", 1.0, family="phi", dtype="float16")
    record = compared(tmp_path, [one, replace(other, prompts={"name": "code", "hash": "2", "n": 5})])
    notes = " ".join(record.findings["comparison"].notes)
    assert "differ in several settings (family, dtype, prompts.hash, prompts.n)" in notes
    assert "different numbers of prompts" in notes
    settings = {(row["setting"], row["run"]): row["value"] for row in rows(record, "settings")}
    assert settings["model.family", "b"] == "phi" and ("model.fingerprint", "b") not in settings


def with_null(name, value, null):
    return numbered(name, {"share": among(value, null)})


@pytest.mark.parametrize(
    ("null", "kind", "note"),
    [
        (0.9, UNCHECKED, ""),
        (1.0, CONFIRMED, "holds, 0.5 times as large, with each model's baseline subtracted: 2 and 1"),
        (
            1.5,
            UNSURE,
            "much smaller, 0.25 times as large, with each model's baseline subtracted: 1.5 and 1",
        ),
        (1.95, UNSURE, "no difference with each model's baseline subtracted: 1.05 and 1"),
        (2.5, UNSURE, "reversed with each model's baseline subtracted: 0.5 and 1"),
    ],
)
def test_a_difference_that_its_nulls_can_make_is_checked_without_them(tmp_path, null, kind, note):
    record = compared(tmp_path, [with_null("a", 1.0, 0.0), with_null("b", 3.0, null)])
    assert found(record)["share"] == (kind, note)


def test_numbers_that_moved_with_their_null_are_named(tmp_path):
    record = compared(tmp_path, [with_null("a", 1.0, 0.0), with_null("b", 3.0, 1.5), with_null("c", 3.0, -1.5)])
    notes = " ".join(record.findings["comparison"].notes)
    assert "Differences whose null differs too (by at least half as much): share (b). " in notes


def test_page_draws_every_figure_and_a_comparison_is_not_made_twice(tmp_path):
    runs = [made("a", 1.0, card=card(0, 0.1, n_kv_heads=4)), made("b", 3.0, card=card(0, 0.1, n_kv_heads=2))]
    record = compared(tmp_path, runs, tmp_path / "out")
    figures = make_study("comparison", {}).figures(record.findings["comparison"])
    names = [figure.name for figure in figures]
    assert names == ["numbers", "curves-manifold"]
    assert all(undrawable(figure.plot) is None for figure in figures)
    curves, drawn = record.findings["comparison"].tables["curves"], figures[1].plot.data
    assert [(trace.name, trace.showlegend) for trace in drawn] == [
        ("null", True),
        ("a", None),
        ("null", False),
        ("b", None),
    ]
    for i, group in enumerate("ab"):
        mine = curves.where(curves["group"] == group)
        np.testing.assert_array_equal(drawn[2 * i].y, mine["null"])
        np.testing.assert_array_equal(drawn[2 * i + 1].y, mine["value"])
    (button,) = figures[1].plot.layout.updatemenus[0].buttons
    assert button.args[0]["visible"] == [True] * 4
    page = (record.path / "report.html").read_text()
    assert "<h1>Does b differ from a?</h1>" in page and "cannot be drawn" not in page
    again = interp.compare([run.path for run in (interp.open_run(tmp_path / f"run{i}") for i in range(2))],
                           out=tmp_path / "out", reuse=True)  # fmt: skip
    assert again.path == record.path


def drawn(record):
    return {figure.name: figure for figure in make_study("comparison", {}).figures(record.findings["comparison"])}


def test_two_models_stand_side_by_side_under_each_question(tmp_path):
    record = compared(tmp_path, [made("a", 1.0, card=card(0, 0.1)), made("b", 3.0, card=card(1, 0.105, d_head=2))])
    figure = drawn(record)["numbers"]
    said = [note.text.replace("<br>", " ") for note in figure.plot.layout.annotations]
    lines = [line for note in figure.plot.layout.annotations for line in re.sub("</?b>", "", note.text).split("<br>")]
    assert max(map(len, lines)) <= 50, "a phone shows as many"
    asked = ["How far is the tunnel from the exact posterior?", load_entry("probe", "manifold").question]
    assert said == [f"<b>{asked[0]}</b>", "KL from the exact posterior (bits)", f"<b>{asked[1]}</b>", "share (bits)"]
    a, b = (next(trace for trace in figure.plot.data if trace.name == name) for name in "ab")
    low, width = -0.2, 3.1 + 0.2  # from the band of the null to the end of the higher interval
    assert (a.x[1], b.x[1]) == pytest.approx(((1 - low) / width, (3 - low) / width))
    assert (a.error_x.array[1], a.error_x.arrayminus[1]) == pytest.approx((0.1 / width, 0.1 / width))
    assert list(b.marker.symbol) == ["circle-open", "circle"]
    assert np.all(b.y > a.y) and np.all(b.y - a.y < 0.5)
    assert "share: b compared with a: 2 bits" in b.customdata[1]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            1.01,
            "No sign of it: none of 1 measurements on the same prompts differs. In 1 (share) no difference was "
            "found, which does not show that there is none.",
        ),
        (math.nan, "No sign of it: none of 0 measurements on the same prompts differs."),
    ],
)
def test_the_answer_of_two_says_what_differs(tmp_path, value, said):
    record = compared(tmp_path, [made("a", 1.0), made("b", value)])
    assert record.findings["comparison"].facts["n_moved"].startswith(said)
    assert undrawable(drawn(record)["numbers"].plot) is None


def test_a_number_that_neither_has_takes_no_row(tmp_path):
    none = Scalar.undefined("too few prompts", "bits")
    records = [numbered("a", {"none": none, "share": none}), numbered("b", {"none": none, "share": scalar(3.0)})]
    plot = drawn(compared(tmp_path, records))["numbers"].plot
    assert [note.text for note in plot.layout.annotations][1:] == ["share (bits)"]


def test_runs_without_any_value_have_an_empty_figure(tmp_path):
    undefined = {"share": Scalar.undefined("too few prompts")}
    record = compared(tmp_path, [numbered(name, undefined) for name in "ab"])
    assert undrawable(record.findings["comparison"].figures()["numbers"])


def test_runs_of_a_probe_that_cannot_be_imported_are_compared(tmp_path, monkeypatch):
    def fails(kind, entry):
        raise InterpError(asked=f"the {kind} {entry.name!r}", found="it cannot be imported", fix="Install it again.")

    imported = registry._imported
    monkeypatch.setattr(
        registry, "_imported", lambda kind, of: (fails if of.name == "manifold" else imported)(kind, of)
    )
    record = compared(tmp_path, [made("a", 1.0), made("b", 1.0)])
    assert {row["question"] for row in rows(record, "answers")} == {"manifold"}


def test_two_pooled_groups_show_their_runs(tmp_path):
    records = [made(name, value) for name, value in zip("abcd", (1.0, 1.2, 2.0, 2.4), strict=True)]
    plot = drawn(compared(tmp_path, records, groups=["x", "x", "y", "y"]))["numbers"].plot
    assert [list(trace.customdata) for trace in plot.data if trace.marker.size == 4] == [["a", "b"], ["c", "d"]]


def test_of_more_than_two_every_group_has_dots_in_every_row_and_the_page_says_what_differs(tmp_path):
    records = [made(name, value, card=card(0, 0.1, n_kv_heads=i)) for i, (name, value) in
               enumerate(zip("abcd", (1.0, 3.0, 1.1, 0.2), strict=True))]  # fmt: skip
    record = compared(tmp_path, records, tmp_path / "out")
    figures = drawn(record)
    assert list(figures) == ["numbers", "curves-manifold"]
    figure = figures["numbers"]
    assert answers(record)[0].sentence == (
        "Yes: 2 of 3 measurements on the same prompts differ, measured in one way only. Measured in one way only: "
        "share is higher in b (3) than in a (1). Measured in one way only: share is lower in d (0.2) than in a (1). "
        "In 1 (share) no difference was found, which does not show that there is none."
    )
    assert [found(record, group)["share"][0] for group in "bcd"] == [UNCHECKED, ALIKE, UNCHECKED]
    dots = {trace.name: trace for trace in figure.plot.data if trace.name}
    assert list(dots) == list("abcd") and np.all(np.diff([dots[name].y for name in "abcd"], axis=0) > 0)
    assert np.ptp([dots[name].y[1] for name in "abcd"]) < 1 and list(dots["b"].marker.symbol)[1] == "circle"
    page = parse((record.path / "report.html").read_text()).text
    band = "chance −0.2 to 0.2"
    assert "a (reference) b c d" in page and f"share 1{band} ▲3{band} ≈1.1{band} ▼0.2{band}" in page
    assert "▼ lower than a;" in page and "<h1>Do b, c and d differ from a?" in (record.path / "report.html").read_text()
    assert f"a difference (first − second) 95 % interval note {UNCHECKED} (1) share (bits) 3 1 2 1.86 to 2.14" in page
    assert f"{ALIKE} (1) share (bits) 1.1 1 0.1 −0.0414 to 0.241" in page


def depth_correlation(value):
    return Scalar(value, "1", (value - 0.01, value + 0.01), "bootstrap", null_reason="one draw",
                  meaning="Spearman's ρ of attention entropy with depth")  # fmt: skip


def test_a_rank_correlation_over_few_layers_is_not_tested_and_what_a_run_lacks_is_marked(tmp_path):
    def run(name, n_layers, **more):
        found = {"share": scalar(1.0), "correlation": depth_correlation({7: 0.5, 8: 0.9}[n_layers]), **more}
        return replace(numbered(name, found), model=made(name, 1.0, layers=[0.1] * n_layers).model)

    runs = [run("a", 8, lacking=scalar(1.0)), run("b", 8), run("c", 7), run("d", 8, lacking=scalar(1.0))]
    other = {"components": Findings("components", {"mine": scalar(1.0)}, headline=("mine",))}
    runs += [made("e", 1.0)]
    runs[3:] = [
        replace(each, findings=found)
        for each, found in zip(runs[3:], ({**runs[3].findings, **other}, other), strict=True)
    ]
    page = parse((compared(tmp_path, runs, tmp_path / "out").path / "report.html").read_text()).text
    band = "chance −0.2 to 0.2"
    assert "with depth 0.9 ≈0.9 0.5 ≈0.9 not run" in page and "no sign: not tested" in page
    assert f"lacking 1{band} n/a n/a ≈1{band} not run" in page
    assert f"mine not run not run not run 1{band} 1{band}" in page


def test_a_probe_that_declares_its_question_has_the_verdict_of_every_run(tmp_path):
    def run(name, value):
        plain = replace(scalar(value), p=0.001, meaning="entropy with the first axis")
        return numbered(name, {"entropy_correlation": plain})

    record = compared(tmp_path, [run("a", 0.8), run("b", 0.0), run("c", 0.85)], tmp_path / "out")
    assert [row["said"] for row in rows(record, "answers")] == ["Yes", "No, the opposite", "Yes"]
    page = parse((record.path / "report.html").read_text()).text
    assert "Does the direction of largest variance follow the model's next-token entropy?" in page
    assert found(record, "c") == {"entropy_correlation": (ALIKE, "")}


def test_the_page_says_what_every_run_read_and_warns_of_rounded_weights_and_other_prompts(tmp_path):
    rounded = made("b", 3.0, stored_as="Q4_K")
    other = replace(rounded, prompts={"name": "code", "hash": "2", "n": 1200})
    texts = [
        parse(
            (compared(tmp_path / name, [made("a", 1.0), b], tmp_path / name / "out").path / "report.html").read_text()
        ).text
        for name, b in (("alike", made("b", 3.0)), ("rounded", rounded), ("other", other))
    ]
    assert "b: llama, 2 layers, 9 prompts of “mixed” · a: llama, 2 layers, 9 prompts" in texts[0]
    assert "b: llama, 2 layers, 1,200 prompts" in texts[2]
    assert ["Quantised weights of b:" in text for text in texts] == [False, True, True]
    assert ["Where runs read different prompts" in text for text in texts] == [False, False, True]
    assert ["b (other prompts, not compared)" in text for text in texts] == [False, False, True]
    assert all("such as the size of a model or the prompts" in text for text in texts[:2])
    assert not any("two models" in text for text in texts), "runs of one model are compared too"


def with_control(name, value, other, null=0.0):
    """A number with its control, and beside it the same without one, whose null is that of all others."""
    controls = {"share": (Control("without the first position", "other", essential=False),)}
    scalars = {"share": among(value, null, 0.2), "other": scalar(other), "again": scalar(value)}
    return numbered(name, scalars, headline=("share", "again"), controls=controls)


@pytest.mark.parametrize(("twin", "side", "kind"), [
    (4.0, "holds", CONFIRMED), (1.1, "no difference", UNSURE), (8.0, "much larger, 3.5 times as large,", UNSURE),
    (0.99, "no difference", UNSURE), (0.3, "reversed", UNSURE),
])  # fmt: skip
def test_a_difference_says_which_control_does_not_move_with_it(tmp_path, twin, side, kind):
    record = compared(tmp_path, [with_control("a", 1.0, 1.0), with_control("b", 3.0, twin)])
    note = f"{side} without the first position: {short(twin)} and 1"
    assert found(record) == {"share": (kind, note), "again": (UNCHECKED, "")}


@pytest.mark.parametrize("null", [0.5, 3.0])
def test_a_number_that_a_control_turns_stands_apart_wherever_chance_is(tmp_path, null):
    record = compared(tmp_path, [with_control("a", 1.0, 1.5), with_control("b", 3.0, 0.5, null)])
    kind, note = found(record)["share"]
    assert (kind, note.partition("; ")[0]) == (UNSURE, "reversed without the first position: 0.5 and 1.5")
    assert found(record)["again"] == (UNCHECKED, "")


def test_a_larger_number_within_its_null_stands_apart(tmp_path):
    record = compared(tmp_path, [made("a", 1.0), numbered("b", {"share": among(3.0, 0.0, 9.0)})], tmp_path / "out")
    assert found(record) == {"share": (CHANCE, "b: 3, and chance alone gives −9 to 9")}
    assert answers(record)[0].sentence.endswith(
        " One cannot be judged, share: in one model the value is no more than chance gives."
    )
    assert "b: 3, and chance alone gives −9 to 9" in (record.path / "report.html").read_text()


def test_one_measurement_has_one_row_however_many_numbers_it_has(tmp_path):
    """With and without the first position, at a layer set beforehand and at the best one, by two probes."""

    def run(name, pc1, best, held_out, sharper, sharper_with, sink=0.5):
        named = {"entropy_correlation": pc1, "best_layer_entropy_correlation": best, "pc1_correlation": held_out,
                 "sink": sink, "sharpening_no_first": sharper, "sharpening": sharper_with}  # fmt: skip
        numbers = {name: replace(scalar(value, 0.01), null_reason="none", null=None) for name, value in named.items()}
        probes = {"manifold": [*numbers][:2], "value_axis": [*numbers][2:3], "attention_entropy": [*numbers][3:]}
        found = {
            probe: Findings(probe, {key: numbers[key] for key in keys}, headline=tuple(keys[:2]))
            for probe, keys in probes.items()
        }
        return replace(made(name, 1.0), findings=found)

    a = run("a", 0.1, 0.1, 0.1, 0.5, 0.5)
    record = compared(tmp_path, [a, run("b", 0.3, 0.11, 0.29, 0.7, 0.6, 0.9)])
    assert found(record) == {
        "entropy_correlation": (
            UNSURE,
            "no difference at the layer that is best for each: 0.11 and 0.1; "
            "holds with the axis fitted on half of the prompts and read on the others: 0.29 and 0.1",
        ),
        "sink": (UNCHECKED, ""),
        "sharpening_no_first": (
            CONFIRMED,
            "holds, 0.5 times as large, with the first position: 0.6 and 0.5",
        ),
    }
    counted = record.findings["comparison"]["n_moved"]
    assert (counted.value, counted.n) == (2, 3)
    turned = found(compared(tmp_path / "turned", [a, run("b", 0.101, 0.3, 0.101, 0.7, 0.2, 0.505)]))
    assert turned == {
        "entropy_correlation": (ALIKE, "differs at the layer that is best for each: 0.3 and 0.1"),
        "sink": (ALIKE, ""),
        "sharpening_no_first": (UNSURE, "reversed with the first position: 0.2 and 0.5"),
    }


def test_a_difference_is_said_again_with_each_models_baseline_subtracted(tmp_path):
    def run(name, value, null):
        plain = replace(scalar(value, 0.01), null=Null("noise", null, (null - 0.01, null + 0.01)))
        return numbered(name, {"reduction": plain}, "attention_entropy")

    record = compared(tmp_path, [run("a", 0.1, 0.0), run("b", 0.6, 0.3)])
    assert record.findings["comparison"].facts["n_moved"] == (
        "Yes: 1 of 1 measurements on the same prompts differs, confirmed by another way of measuring. Confirmed: "
        "fall of attention entropy, first to last layer, as a share (negative: a rise) is higher in b (0.6) than in a "
        "(0.1); the difference holds, 0.4 times as large, with each model's baseline subtracted: 0.3 and 0.1."
    )


@pytest.mark.parametrize(("mass", "kind"), [(0.5, UNCHECKED), (0.001, HARDLY)])
def test_answers_that_a_model_hardly_gives_are_compared_with_a_caveat(tmp_path, mass, kind):
    def run(name, slope, mass):
        return numbered(name, {"slope": scalar(slope), "outcome_mass": scalar(mass, 0.0001)}, "sula")

    shown = found(compared(tmp_path, [run("a", 1.0, 0.6), run("b", 3.0, mass)]))
    note = "b gives all possible answers together a probability of 0.001" if kind == HARDLY else ""
    assert shown["slope"] == (kind, note)
    assert "probability" not in shown["outcome_mass"][1]


def test_the_correction_is_that_of_benjamini_and_yekutieli_and_p_is_below_five_percent_where_0_is_left_out(tmp_path):
    rng = np.random.default_rng(0)

    def run(name, values):
        return numbered(name, {f"n{i}": scalar(value) for i, value in enumerate(values)})

    record = compared(tmp_path, [run("a", np.zeros(12)), run("b", rng.normal(0.22, 0.1, 12))]).findings["comparison"]
    held = record.tables["differences"].where(record.tables["differences"]["against"] == "a")
    excludes_0 = held["difference_low"] * held["difference_high"] > 0
    np.testing.assert_array_equal(excludes_0, held["p"] < 0.05)
    assert 2 < excludes_0.sum() < 12
    half = (held["difference_high"] - held["difference_low"]) / 2
    np.testing.assert_allclose(held["p"], 2 * stats.norm.sf(np.abs(held["difference"]) / (half / 1.959964)), rtol=1e-4)
    together, usual = (stats.false_discovery_control(held["p"], method=method) for method in ("by", "bh"))
    assert {name for _, name, _ in sure_of(held, ["b"])} == set(held["name"][together <= 0.05])
    assert (together <= 0.05).sum() < (usual <= 0.05).sum(), "Benjamini and Hochberg's would leave more"


def test_differences_on_the_same_and_on_other_prompts_are_counted_apart(tmp_path):
    texts = [made("a", 1.0, n_parameters=135_000_000), made("b", 3.0, n_parameters=260_000)]
    tunnel = replace(
        made("c", 3.0, card=card(0, 0.1), n_parameters=153_000),
        prompts={"name": "tunnel:bijection", "hash": "2", "n": 5, "unit": "sequence"},
    )
    said = answers(compared(tmp_path, [*texts, tunnel]))[0].sentence
    assert said == (
        "Yes: 1 of 1 measurements on the same prompts differs, measured in one way only. Measured in one way only: "
        "share is higher in b (3) than in a (1)."
    )


@pytest.mark.parametrize(
    "asked, said",
    [
        ({"labels": ["x"]}, "1 labels for 2 runs"),
        ({"groups": ["x"]}, "1 groups for 2 runs"),
        ({"labels": ["x", "x"]}, "two of them are named 'x'"),
        ({"against": ["b", "nobody"]}, "against 'nobody'"),
    ],
)
def test_words_that_do_not_fit_the_runs_are_refused(tmp_path, asked, said):
    with pytest.raises(UsageError) as refused:
        compared(tmp_path, [made("a", 1.0), made("b", 1.0)], **asked)
    assert said in str(refused.value)


def test_one_run_a_study_and_a_record_in_memory_are_refused(tmp_path):
    record = compared(tmp_path, [made("a", 1.0), made("b", 1.0)], tmp_path / "out")
    with pytest.raises(UsageError, match="there is nothing to compare"):
        interp.compare([tmp_path / "run0"], out=None)
    with pytest.raises(UsageError, match="it is the record of a study"):
        interp.compare([tmp_path / "run0", record], out=None)
    with pytest.raises(RecordError, match="it was not saved to a folder"):
        interp.compare([made("a", 1.0), made("b", 1.0)], out=None)


def test_command_line_compares(tmp_path):
    for i, value in enumerate((1.0, 3.0)):
        made("m", value).write(tmp_path / f"run{i}")
    words = ["compare", str(tmp_path / "run0"), str(tmp_path / "run1"), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*words, "--label", "first", "--label", "second"])
    assert result.exit_code == 0, result.output
    assert "manifold.share" in result.stdout and "Differ" in result.stdout and "second" in result.stdout
    page = result.stdout.strip().splitlines()[-1]
    record = interp.open_run(page.removesuffix("/report.html"))
    assert record.spec["command"].startswith(" ".join(["interp", *words[:3]]))


def test_the_counts_of_the_answer_are_those_of_the_table(tmp_path):
    rng = np.random.default_rng(3)

    def run(name, values):
        numbers = {f"n{i}{ending}": scalar(values[i]) for i in range(12) for ending in ("", "_no_first")}
        numbers["n12"] = replace(scalar(values[0] + 1.0), null=Null("chance", 0.0, (-9.0, 9.0)))
        if name == "b":
            numbers |= {"n0": scalar(-2 * values[0]), "n1": scalar(0.0)}
        return numbered(name, numbers)

    record = compared(tmp_path, [run("a", np.zeros(12)), run("b", rng.normal(0.3, 0.3, 12))])
    said = answers(record)[0].sentence
    shown = Counter(kind for kind, _ in found(record).values())
    of_kind = [shown[kind] for kind in (CONFIRMED, UNSURE, ALIKE, CHANCE)]
    counted = re.fullmatch(
        r"Yes: (\d+) of (\d+) measurements .* Not counted: (\d+) found in one way of measuring and not, or reversed, "
        r"in another\. "
        r"In (\d+), for example .*, no difference .* none\. (\d+) cannot be judged.*", said
    )  # fmt: skip
    assert counted, said
    plain, in_all, *rest = map(int, counted.groups())
    assert [plain, *rest] == of_kind and min(of_kind) > 0 and in_all == sum(of_kind)
    assert record.findings["comparison"]["n_moved"].value == plain


def test_a_comparison_of_another_version_is_drawn_with_what_it_says(tmp_path, capsys):
    """That of an earlier one says what moved and not what was found; a later one may find something else."""
    record = compared(tmp_path, [made("a", 1.0), made("b", 3.0)])
    findings = record.findings["comparison"]
    held = findings.tables["differences"]
    kept = {name: unit for name, unit in held.units.items() if name not in ("found", "note", "meaning", "method")}
    early = Table({name: held[name] for name in kept}, kept)
    earlier = replace(findings, tables={**findings.tables, "differences": early})
    assert differences({"comparison": earlier}) == {}
    page = parse(html(replace(record, findings={"comparison": earlier}))).text
    assert "cannot draw these findings" in page and "Table differences" in page
    print_differences(early)
    assert "moved" in capsys.readouterr().out
    unknown = "Differ, as another version says it"
    words = np.where(held["found"] == "", "", unknown)
    later = replace(findings, tables={**findings.tables, "differences": held.with_column("found", words, LABEL)})
    (parts,) = differences({"comparison": later}).values()
    assert {kind: [each.name for each in of] for kind, of in parts.items() if of} == {unknown: ["share (bits)"]}


def test_a_causal_no_is_a_no_beside_others(tmp_path):
    """Its sentence opens in another way, which is no undecided control."""

    def run(name):
        numbers = {"kl": scalar(1.0), "kl_beyond_controls": scalar(0.0)}
        return numbered(name, numbers, "causal", headline=("kl_beyond_controls",))

    record = compared(tmp_path, [run("a"), run("b")])
    assert [row["said"] for row in rows(record, "answers")] == ["No", "No"]


def test_numbers_of_two_targets_are_not_compared_and_the_page_says_which_settings_differ(tmp_path):
    def of(target, layer):
        words = {"target": f"“{target}”" if target else "the next-token entropy"}
        quantity = load_entry("probe", "value_axis").quantities["r2"].filled(**words)
        r2 = replace(scalar(0.3), meaning=quantity.in_words(quantity.meaning), n=99)
        asked = {"layer": layer, "n_permutations": 9 + layer} | ({"target": target} if target else {})
        one = numbered(target or "usual", {"r2": r2, "selectivity": scalar(0.1)}, probe="value_axis")
        found = {"value_axis": replace(one["value_axis"], parameters=asked)}
        return replace(one, spec=one.spec | {"probes": {"value_axis": asked}}, findings=found)

    record = compared(tmp_path, [of("words", 2), of("rating", 2), of("", 1)], out=tmp_path)
    for group in ("rating", "usual"):
        r2, other = (rows(record, name=name, group=group)[0] for name in ("r2", "selectivity"))
        assert math.isnan(r2["difference"]) and r2["verdict"] == r2["found"] == "" and "another target" in r2["note"]
        assert other["difference"] == 0.0 and other["verdict"] == "same"
    said = parse(record.page.read_text(encoding="utf-8")).text
    assert "value_axis.layer: 2 (words and rating), 1 (usual); value_axis.target: words (words), " in said
    assert (
        "rating (rating), its default (usual)." in said
        and "n_permutations" not in said.partition("Number by number")[0]
    )
    assert said.count(" other target") == 6, "of each question that is of one target, in two of three cells"
    figure = next(f for f in record.findings["comparison"].figures().values())
    drawn = " ".join(a.text.replace("<br>", " ") for a in figure.layout.annotations)
    assert "of “words” in held-out" in drawn and "of “rating” in held-out" in drawn
    values = [trace for trace in figure.data if trace.name in ("words", "rating", "usual")]
    r2 = [trace.y[0] for trace in values]
    assert len({round(y) for y in r2}) == 3, "a row for each target"


def test_an_edited_run_is_named_with_its_edits(tmp_path):
    edits = [{"kind": "ablate", "layer": 1, "heads": [0], "by": "mean"}, {"kind": "of a later version"}]
    other = made("b", 1.0)
    record = compared(tmp_path, [made("a", 1.0), replace(other, spec=other.spec | {"edits": edits})])
    base, edited = rows(record, "runs")
    assert "edited" not in base["read"]
    assert edited["read"].endswith("edited (ablate z at layer 1, heads 0, by mean; of a later version)")


def test_words_and_values_beside_the_rows_fit_on_a_phone_and_in_a_column_of_a_paper(tmp_path):
    numbers = {f"n{i}": scalar(-0.0000123) for i in range(9)}
    record = compared(tmp_path, [numbered("a", numbers), numbered("b", numbers)])
    shown = record.findings["comparison"].figures()["numbers"]
    low, high = shown.layout.xaxis.range
    n = len(short(-0.0000123))
    assert n == 8 and 335 * (high - 1.04) / (high - low) > 6.5 * n, "pixels of a phone; a digit takes six"
    on_page = shown.layout.height
    assert _sized(shown, 1).layout.height >= on_page * _FONT / 12, "rows grow with their words"
