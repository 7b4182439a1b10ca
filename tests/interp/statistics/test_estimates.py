"""One quantity at every place, and means over units: bounds, nulls and p are those of one place, or by hand."""

from dataclasses import replace

import numpy as np
import pytest

from interp.errors import UnknownName
from interp.findings import Control
from interp.registry import entries, load_entry
from interp.statistics import intervals
from interp.statistics.estimates import Estimates
from interp.statistics.intervals import band
from interp.statistics.quantities import Quantities, Quantity
from interp.statistics.units import Units, counted, mean_of_units
from interp.table import Table

RNG = np.random.default_rng(0)
BY_HALF_SPLIT = RNG.normal([0.5, 0.2, 0.0], 0.05, (10, 3))
EXCHANGED = RNG.normal(0, 0.1, (39, 3))
VALUE = BY_HALF_SPLIT.mean(axis=0)
R2 = Quantity("fraction", "Share of {target}.", "exchanged between {unit}s", "half splits", p_over="layers")


@pytest.mark.parametrize("scale", [intervals.PLAIN, intervals.FISHER, intervals.UNEXPLAINED])
def test_half_splits_have_the_interval_of_each_place_and_the_null_of_its_exchanges(scale):
    found = Estimates.halved(BY_HALF_SPLIT, scale, permuted=EXCHANGED)
    p = intervals.maximum_statistic_p(*intervals.excess(VALUE, EXCHANGED))
    for i in range(3):
        least = intervals.chance_half_width(EXCHANGED[:, i]) if scale is intervals.UNEXPLAINED else 0.0
        band = tuple(np.quantile(EXCHANGED[:, i], (0.025, 0.975)))
        scalar = R2.filled(unit="prompt").scalar(found, i)
        assert scalar.interval == pytest.approx(intervals.half_split_interval(BY_HALF_SPLIT[:, i], scale, least))
        assert (scalar.null.name, scalar.null.n_draws) == ("exchanged between prompts", 39)
        assert scalar.null.band == pytest.approx(band) and scalar.null.value == pytest.approx(EXCHANGED[:, i].mean())
        assert (scalar.value, scalar.p, scalar.p_over) == (VALUE[i], p[i], "layers")


@pytest.mark.parametrize("scale", [None, intervals.PLAIN, intervals.FISHER])
def test_resamples_have_the_interval_of_each_place(scale):
    replicates = VALUE + RNG.normal(0, 0.1, (50, 3))
    found = Estimates.resampled(VALUE, replicates, scale).drawn(EXCHANGED, known=0.0)
    for i in range(3):
        mine = VALUE[i], replicates[:, i]
        low, high = np.quantile(replicates[:, i], intervals.TAILS)
        bounds = (min(low, VALUE[i]), max(high, VALUE[i])) if scale is None else intervals.normal_interval(*mine, scale)
        assert tuple(found.interval[:, i]) == bounds
        assert found.null[:, i] == pytest.approx([0.0, *intervals.prediction_band(EXCHANGED[:, i])[1:]])
    assert found.p is None and "x_p" not in found.columns("x")


def test_shares_have_the_bootstrap_interval_of_each_place_no_narrower_than_exchanges_scatter():
    errors, totals, weights = RNG.random((8, 2)), RNG.random((8, 2)) + 1, RNG.multinomial(8, [1 / 8] * 8, 50)
    permuted = np.array([[0.1, np.nan], [0.0, 0.2], [-0.1, 0.1]])
    found = Estimates.shares(errors, totals, weights, permuted=permuted)
    for i, of_place in enumerate(np.nan_to_num(permuted).T):
        least = intervals.chance_half_width(of_place)
        resampled = 1 - (weights @ errors[:, i]) / (weights @ totals[:, i])
        expected = intervals.normal_interval(found.value[i], resampled, intervals.UNEXPLAINED, least)
        assert tuple(found.interval[:, i]) == pytest.approx(expected)
        assert found.null[0, i] == of_place.mean()
    np.testing.assert_allclose(found.value, 1 - errors.sum(axis=0) / totals.sum(axis=0))
    still = Estimates.shares(errors * 0, totals * 0, weights)
    assert np.isnan(still.value).all() and np.isnan(still.interval).all()


def test_p_is_of_the_side_asked_about_in_columns_of_one_order():
    permuted = np.arange(-9.0, 10)[:, None]
    p = {asks: Estimates(np.array([9.5])).permuted(permuted, asks=asks).p for asks in ("above", "below", "either")}
    assert {asks: float(of[0]) for asks, of in p.items()} == {"above": 1 / 20, "below": 1.0, "either": 2 / 20}
    assert Estimates(np.array([-9.5])).permuted(permuted, asks="either").p == pytest.approx([2 / 20])
    assert Estimates(np.array([9.5])).permuted(permuted, asks="nothing").p is None
    found = Estimates.halved(BY_HALF_SPLIT, permuted=EXCHANGED)
    table = Quantities({"r2": R2}).table({"layer": np.arange(3), "r2": found}, "said")
    assert list(table.columns) == ["layer", "r2", "r2_low", "r2_high", "r2_null", "r2_null_low", "r2_null_high", "r2_p"]
    assert [table.units[name] for name in ("layer", "r2_null_low", "r2_p")] == ["layer", "fraction", "probability"]
    assert list(Estimates(VALUE).columns("x")) == ["x"] and len(Estimates.bare(VALUE).columns("x")) == 6


def test_what_is_undefined_says_why_and_has_no_null():
    by_half_split = np.where([True, False, True], BY_HALF_SPLIT, np.nan)
    about = {"n": 10, "underpowered": [False, False, True], "enough": 20}
    found = Estimates.halved(by_half_split, permuted=EXCHANGED, why=["", "flat", ""], about=about)
    first, undefined, few = (R2.scalar(found, i) for i in range(3))
    assert np.isnan(undefined.value) and undefined.null is None and undefined.p is None and not undefined.p_over
    assert undefined.null_reason == undefined.interval_reason == "flat" and undefined.underpowered
    assert not first.underpowered and few.underpowered and (few.n, few.enough) == (10, 20)
    assert np.isnan(found.columns("x")["x_null"][1])
    alike = R2.scalar(Estimates.halved(np.ones((4, 1))))
    assert alike.interval is None and alike.interval_reason == "half splits" and alike.null_reason == R2.null
    some = found.at([2, 1])
    assert (some.value[0], some.at(1).why, some.at(0).about["underpowered"]) == (found.value[2], "flat", True)


def test_a_reason_is_given_where_there_is_no_value_and_nowhere_else():
    found = Estimates(np.array([1.0, np.nan, np.nan]))
    assert found.because("nothing varies").why == ["", "nothing varies", "nothing varies"]
    assert found.because(["a", "b", ""]).why == ["", "b", ""]


def test_a_table_of_quantities_names_headlines_controls_and_facts_that_were_measured():
    controls = (Control("small", "small"), Control("other", "{prefix}_r2"), Control("gone", "deep"))
    late = replace(R2, unit="bits", is_headline=True, fact="{target} is late", controls=controls)
    declared = Quantities({"{prefix}_r2": R2, "late": late, "small": R2, "deep": R2})
    told = declared.filled(target="“a {b}”", prefix="a")
    one = Estimates(np.array([0.5]))
    scalars = told.scalars({"a_r2": one, "small": one, "late": one})
    found = told.findings("mine", scalars, {})
    assert found.headline == ("late",) and found.facts == {"late": "“a {b}” is late"}
    assert [c.scalar for c in found.controls["late"]] == ["small", "a_r2"]
    assert scalars["a_r2"].meaning == "Share of “a {b}”." and scalars["late"].unit == "bits"
    assert told.findings("mine", scalars, {}, headline=("small",)).headline == ("small",)
    with pytest.raises(UnknownName, match="late"):
        told.scalar("lat", one)


def test_every_declared_number_of_a_probe_has_a_unit_a_meaning_and_known_controls():
    for probe in entries("probe"):
        quantities = load_entry("probe", probe).quantities
        for name, quantity in quantities.items():
            said = quantity.unit, quantity.meaning, quantity.null, quantity.method or quantity.no_interval
            assert all(said), f"{probe}: {name}"
            assert {c.scalar for c in quantity.controls} <= {*quantities}, f"{probe}: {name}"


NAN = np.nan
WEIGHTS = np.array([[1, 1, 1], [3, 0, 0], [0, 0, 3], [0, 1, 2]]).astype(float)
UNITS = Units(np.array([0, 2, 0, 1, 2, 2]), np.array([4, 5, 9]), np.array([4, 5, 9]), WEIGHTS, "prompt")


def test_rows_are_averaged_within_their_unit_and_units_as_often_as_each_is_drawn():
    rows = np.array([[1.0, 2, 3, 4, 5, 11], [NAN, 2, 3, NAN, NAN, 4]])
    np.testing.assert_allclose(UNITS.means(rows), [[2, 3], [4, NAN], [6, 3]])
    by_head = UNITS.means(np.stack([rows, 10 * rows], axis=-1))
    np.testing.assert_allclose(by_head, UNITS.means(rows)[..., None] * [1, 10])
    values = np.arange(12.0).reshape(3, 2, 2)
    means = [np.average(values, axis=0, weights=weights) for weights in WEIGHTS]
    np.testing.assert_allclose(UNITS.resampled(values), means)
    values = np.array([[1.0, NAN], [4.0, 4.0], [NAN, 10.0]])
    np.testing.assert_allclose(UNITS.resampled(values), [[2.5, 7], [1, NAN], [NAN, 10], [4, 8]])
    np.testing.assert_allclose(mean_of_units(values), [2.5, 7])
    assert np.isnan(mean_of_units(np.full((3, 1), NAN))).all()


def test_units_are_resampled_whole_within_their_stratum():
    rows = Table({"prompt": np.array([7, 7, 3, 3, 9, 5]), "stratum": np.array([0, 0, 1, 1, 0, 1])},
                 {"prompt": "index", "stratum": "index"})  # fmt: skip
    units = Units.of(rows, "text", 50, np.random.default_rng(0))
    assert units.index.tolist() == [3, 5, 7, 9] and units.code.tolist() == [2, 2, 0, 0, 3, 1] and units.n == 4
    assert (units.weights[:, [0, 1]].sum(axis=1) == 2).all() and (units.weights[:, [2, 3]].sum(axis=1) == 2).all()
    assert len(np.unique(units.weights, axis=0)) == 4, "of two units one is drawn, for both"


@pytest.mark.parametrize(("sizes", "is_few"), [
    ([1] * 20, False), ([1] * 19, True), ([60, 60] + [1] * 60, True), ([15] + [1] * 60, False), ([9] * 20, False),
])  # fmt: skip
def test_clusters_are_few_where_few_of_them_hold_most_prompts(sizes, is_few):
    cluster = np.repeat(np.arange(len(sizes)), sizes)
    assert counted(np.arange(len(cluster)), cluster, "prompt")["underpowered"] == is_few


def test_bands_hold_the_central_ninety_five_per_cent_and_an_interval_its_value():
    replicates = np.stack([np.arange(201.0), np.full(201, NAN), np.append(np.arange(200.0), NAN)], axis=1)
    np.testing.assert_allclose(band(replicates), [[5, NAN, 4.975], [195, NAN, 194.025]])
    drawn = np.repeat(replicates[:, :1], 4, axis=1)
    held = Estimates.resampled(np.array([100.0, 1.0, 200.0, NAN]), drawn).interval
    np.testing.assert_allclose(held, [[5, 1, 5, NAN], [195, 195, 200, NAN]])
    assert np.isnan(Estimates.resampled(np.array([3.0]), np.full((4, 1), NAN)).interval).all()
