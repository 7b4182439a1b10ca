"""Means within prompts and over resamples of prompts, with rows and prompts that have nothing, by hand."""

import numpy as np
import pytest

from interp.statistics.intervals import band, percentile_interval
from interp.statistics.units import Units, mean_bounds, mean_of_units
from interp.table import Table

NAN = np.nan
WEIGHTS = np.array([[1, 1, 1], [3, 0, 0], [0, 0, 3], [0, 1, 2]])
UNITS = Units(np.array([0, 2, 0, 1, 2, 2]), np.array([4, 5, 9]), np.array([4, 5, 9]), WEIGHTS, "prompt")


def test_rows_are_averaged_and_resampled_within_their_units():
    rows = np.array([[1.0, 2, 3, 4, 5, 11], [NAN, 2, 3, NAN, NAN, 4]])
    np.testing.assert_allclose(UNITS.means(rows), [[2, 3], [4, NAN], [6, 3]])
    by_head = UNITS.means(np.stack([rows, 10 * rows], axis=-1))
    assert by_head.shape == (3, 2, 2)
    np.testing.assert_allclose(by_head[..., 1], 10 * by_head[..., 0])
    np.testing.assert_allclose(UNITS.resampled(np.array([1.0, 4, 10])), [5, 1, 10, 8])
    values = np.arange(12.0).reshape(3, 2, 2)
    found = UNITS.resampled(values)
    assert found.shape == (4, 2, 2)
    for weights, mean in zip(WEIGHTS, found, strict=True):
        np.testing.assert_allclose(mean, np.average(values, axis=0, weights=weights))
    values = np.array([[1.0, NAN], [4.0, 4.0], [NAN, 10.0]])
    np.testing.assert_allclose(UNITS.resampled(values), [[2.5, 7], [1, NAN], [NAN, 10], [4, 8]])
    np.testing.assert_allclose(mean_of_units(values), [2.5, 7])
    assert np.isnan(mean_of_units(np.full((3, 1), NAN))).all()


@pytest.mark.parametrize("size", [1, 4])
def test_a_mean_over_copies_is_as_uncertain_as_one_over_what_was_copied(size):
    values = np.random.default_rng(1).standard_normal(60)
    low, high = mean_bounds(np.repeat(values, size), np.repeat(np.arange(60), size), 4000)
    assert (low + high) / 2 == pytest.approx(values.mean())
    assert (high - low) / 2 == pytest.approx(1.96 * values.std() / 60**0.5, rel=0.05)


def test_units_resampled_whole_have_bands_of_what_is_defined():
    rows = Table({"prompt": np.array([7, 7, 3, 3, 9, 5]), "stratum": np.array([0, 0, 1, 1, 0, 1])},
                 {"prompt": "index", "stratum": "index"})  # fmt: skip
    units = Units.of(rows, "text", 50, np.random.default_rng(0))
    assert units.index.tolist() == [3, 5, 7, 9] and units.code.tolist() == [2, 2, 0, 0, 3, 1] and units.n == 4
    assert (units.weights[:, [0, 1]].sum(axis=1) == 2).all() and (units.weights[:, [2, 3]].sum(axis=1) == 2).all()
    assert len(np.unique(units.weights, axis=0)) == 9, "each stratum draws 2 and 0, 1 and 1, or 0 and 2"
    replicates = np.stack([np.arange(201.0), np.full(201, NAN), np.append(np.arange(200.0), NAN)], axis=1)
    np.testing.assert_allclose(band(replicates), [[5, NAN, 4.975], [195, NAN, 194.025]])
    np.testing.assert_allclose(band(replicates[:, 0]), [5, 195])
    drawn = np.arange(201.0)
    assert percentile_interval(100.0, drawn) == pytest.approx((5, 195))
    assert percentile_interval(1.0, drawn) == pytest.approx((1, 195)) and percentile_interval(
        200.0, drawn
    ) == pytest.approx((5, 200))
    assert percentile_interval(NAN, drawn) is None and percentile_interval(3.0, np.full(4, NAN)) is None
