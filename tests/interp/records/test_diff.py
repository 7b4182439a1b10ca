"""`interp diff`: the interval of a difference, what is said of it, and what else differs between two records."""

import math
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import interp
from interp.cli.app import app
from interp.findings import Findings, Interval, Null, Scalar
from interp.records.diff import _ONE_AXIS, difference_interval, flat_settings
from interp.records.record import RunRecord
from interp.registry import load_entry


def scalar(value, low=None, high=None, unit="1"):
    if low is None:
        return Scalar(value, unit, interval_reason="weights only", null_reason="none in this test")
    return Scalar(value, unit, interval=(low, high), interval_method="t", null_reason="none in this test")


def record(scalars, **changed):
    plain = RunRecord(
        created="2026-01-01T12:00:00+00:00", spec={"model": "m", "seed": 0, "probes": {"p": {}}},
        spec_hash="0" * 16, model={"name": "m", "fingerprint": "aa", "device": "cpu"},
        prompts={"name": "mixed", "hash": "11", "n": 5},
        environment={"threads": 1, "packages": {"torch": "2.13.0", "numpy": "2.0"}}, selfcheck=(),
        timings={"load": 1.0}, findings={"p": Findings("p", scalars)},
    )  # fmt: skip
    return replace(plain, **changed)


def test_difference_interval_is_quadrature_on_either_side():
    low, high = difference_interval(scalar(1.0, 0.7, 1.3), scalar(3.0, 2.6, 3.4))
    assert (low, high) == pytest.approx((2 - math.hypot(0.3, 0.4), 2 + math.hypot(0.3, 0.4)))
    low, high = difference_interval(scalar(1.0, 0.9, 1.5), scalar(3.0, 2.0, 3.1))
    assert low == pytest.approx(2 - math.hypot(1.0, 0.5)) and high == pytest.approx(2 + math.hypot(0.1, 0.1))


def test_an_interval_of_one_fitted_axis_is_widened_by_the_scatter_of_matched_axes():
    """In 40 pairs of runs of one model on other prompts `causal` moved in .10 to .35 of its effects before."""

    def of_axis(value: float, null: Null | None) -> Scalar:
        method = f"percentile bootstrap over prompts, {_ONE_AXIS}"
        return Scalar.of(value, "bits", Interval(value - 0.3, value + 0.3, method), null or "none")

    one, two = (of_axis(value, Null("controls", 0.0, (-0.4, 0.8))) for value in (1.0, 2.0))
    wide, narrow = math.hypot(0.3, 0.8), math.hypot(0.3, 0.4)
    assert difference_interval(one, two) == pytest.approx((1 - math.hypot(narrow, wide), 1 + math.hypot(wide, narrow)))
    assert difference_interval(of_axis(1.0, None), two) is None
    assert _ONE_AXIS in load_entry("probe", "causal").quantities["kl_beyond_controls"].method


@pytest.mark.parametrize(
    "first, second, verdict",
    [
        (scalar(1.0, 0.9, 1.1), scalar(2.0, 1.9, 2.1), "moved"),
        (scalar(1.0, 0.9, 1.1), scalar(1.15, 1.0, 1.3), "within"),
        (scalar(1.0, 0.9, 1.1), scalar(1.0, 0.5, 1.5), "same"),
        (scalar(1.0), scalar(1.0 + 1e-8), "same"),
        (scalar(1.0), scalar(1.01), "differs"),
        (scalar(1.0, 0.9, 1.1), scalar(1.01), "differs"),
        (scalar(math.nan), scalar(math.nan), "same"),
        (scalar(math.nan), scalar(1.0), "differs"),
        (scalar(1.0, 0.9, 1.1), replace(scalar(2.0, 1.9, 2.1), underpowered=True), "differs"),
        (scalar(1.0, 0.9, 1.1, "bits"), scalar(1.05, 0.9, 1.1, "nats"), "differs"),
    ],
)
def test_verdict(first, second, verdict):
    (shift,) = interp.diff(record({"x": first}), record({"x": second})).shifts
    assert shift.verdict == verdict


def test_numbers_of_two_targets_are_not_tested_and_those_of_none_are():
    def of(target):
        r2 = Scalar.of(0.1 * len(target), "1", Interval(0.0, 0.9, "t"), "none", meaning=f"Share of “{target}”.")
        about = {"spec": {"probes": {"p": {"target": target}}}}
        return record({"r2": r2, "size": scalar(float(len(target)), 0.0, 9.0)}, **about)

    found = {each.name: each.verdict for each in interp.diff(of("words"), of("rating")).shifts}
    assert found == {"r2": "differs", "size": "within"}
    assert {each.verdict for each in interp.diff(of("words"), of("words")).shifts} == {"same"}


def test_diff_names_versions_weights_prompts_options_and_machine_and_no_times():
    one = record({"x": scalar(1.0), "gone": scalar(2.0)})
    two = record(
        {"x": scalar(1.0), "new": scalar(2.0)}, created="2026-02-02T12:00:00+00:00", timings={"load": 9.0},
        spec={"model": "m", "seed": 1, "probes": {"p": {"layer": 3}}, "command": "other"},
        model={"name": "m", "fingerprint": "bb", "device": "cuda:0"}, prompts={"name": "mixed", "hash": "22", "n": 5},
        environment={"threads": 2, "packages": {"torch": "2.14.0", "numpy": "2.0"}},
    )  # fmt: skip
    found = interp.diff(one, two)
    assert {s.path: (s.first, s.second) for s in found.settings} == {
        "spec.seed": (0, 1), "spec.probes.p": ({}, None), "spec.probes.p.layer": (None, 3),
        "model.fingerprint": ("aa", "bb"), "model.device": ("cpu", "cuda:0"), "prompts.hash": ("11", "22"),
        "environment.threads": (1, 2), "environment.packages.torch": ("2.13.0", "2.14.0"),
    }  # fmt: skip
    assert found.only_first == ("p.gone",) and found.only_second == ("p.new",) and found.moved == ()
    assert "environment.packages.numpy" in flat_settings(one)


def test_what_is_resampled_is_told_where_it_differs_and_what_follows_from_it_is_not(tmp_path):
    found = {"n": 2, "by": "shared wording", "n_at": {"0.5": 2}, "examples": ["a", "b"], "caution": "5 in 2"}
    each = {"n": 5, "by": "each prompt by itself", "n_at": {"0.5": 2}, "examples": ["c"], "caution": ""}
    prompts = [{"name": "mixed", "hash": "11", "n": 5, "clusters": c, "notes": [c["by"]]} for c in (found, each)]
    one, two = (record({"x": scalar(1.0)}, prompts=p) for p in prompts)
    assert {s.path for s in interp.diff(one, two).settings} == {"prompts.clusters.n", "prompts.clusters.by"}
    runs = [str(r.write(tmp_path / name).path) for r, name in ((one, "a"), (two, "b"), (one, "c"))]
    said = [CliRunner().invoke(app, ["diff", runs[0], other]).stdout for other in runs[1:]]
    assert ["do not resample the same things" in text for text in said] == [True, False]


def test_of_a_tunnel_its_training_is_compared_and_not_how_well_it_went():
    def trained(n_steps: int, kl: float) -> dict:
        card = {"recipe": {"n_steps": n_steps}, "figures": {"kl_bits": {"value": kl}}, "core_seconds": 9 * kl}
        return {"name": "m", "fingerprint": "aa", "card": {**card, "baselines": {"uniform": {"kl_bits": kl}}}}

    one, two = (record({"x": scalar(1.0)}, model=trained(n, kl)) for n, kl in ((100, 0.1), (200, 0.05)))
    assert {s.path for s in interp.diff(one, two).settings} >= {"model.card.recipe.n_steps"}
    assert not any(word in s.path for s in interp.diff(one, two).settings for word in ("kl_bits", "core_seconds"))


def test_a_number_without_an_interval_is_told_and_counts_where_exact_results_are_expected(tmp_path):
    def run(name: str, **scalars) -> str:
        return str(record(scalars).write(tmp_path / name).path)

    one = run("a", x=scalar(1.0, 0.9, 1.1), stability=scalar(0.95))
    two = run("b", x=scalar(1.0, 0.9, 1.1), stability=scalar(0.91))
    found = interp.diff(one, two)
    assert found.moved == () and [shift.name for shift in found.differing] == ["stability"] and not found.is_exact
    told = CliRunner().invoke(app, ["diff", one, two])
    assert told.exit_code == 0 and "0 of 2 numbers moved" in told.stdout
    assert "changed, and cannot be tested" in told.stdout and "p.stability" in told.stdout
    assert CliRunner().invoke(app, ["diff", one, two, "--exact"]).exit_code == 1
    same = run("c", x=scalar(1.0, 0.9, 1.1), stability=scalar(0.95))
    assert CliRunner().invoke(app, ["diff", one, same, "--exact"]).exit_code == 0
    within = run("d", x=scalar(1.01, 0.9, 1.1), stability=scalar(0.95))
    told = CliRunner().invoke(app, ["diff", one, within])
    assert told.exit_code == 0 and "1 are within" in told.stdout and "nothing else differs" in told.stdout
    assert CliRunner().invoke(app, ["diff", one, within, "--exact"]).exit_code == 1
    fewer = run("e", x=scalar(1.0, 0.9, 1.1))
    assert CliRunner().invoke(app, ["diff", one, fewer, "--exact"]).exit_code == 1
    far = record({"x": scalar(2.0, 1.9, 2.1)}, model={"name": "m", "fingerprint": "bb"}).write(tmp_path / "f")
    moved = CliRunner().invoke(app, ["diff", one, str(far.path)])
    assert moved.exit_code == 1 and "p.x" in moved.stdout and "model.fingerprint" in moved.stdout
    assert "1 in 20" in " ".join(moved.stdout.split()) and "1 in 20" not in told.stdout
