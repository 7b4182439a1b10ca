"""Reading from inner products alone: the same as from the rows."""

import numpy as np
import pytest
from interp.probes.measures.cloud import Cloud
from interp.probes.measures.halves import halve
from interp.probes.measures.nuisances import Removal, mean_alone
from interp.probes.measures.places import Scale, ScaledRows
from interp.probes.value_axis.probe import ValueAxis
from interp.probes.value_axis.readout import make_labels, read

from interp.testing import Shape, synthetic_capture

N, D = 40, 60


def halves_of(seed=0):
    needs = ValueAxis(sites=("v",)).needs
    cloud = Cloud.of(synthetic_capture(needs, Shape(n_prompts=N)), needs[0])
    return halve(cloud, 19, 20, np.random.default_rng(seed))


def removal_of(halves, n_columns, seed=1):
    design = np.random.default_rng(seed).standard_normal((N, n_columns))
    return Removal.of(np.hstack([np.ones((N, 1)), design]), halves.fitting, ("something",))


def both_ways(points, halves, removal):
    """Readings of scaled rows with and without their products."""
    rng = np.random.default_rng(2)
    labels = make_labels(
        {"next_entropy_bits": points[:, 0] + rng.standard_normal(N)}, rng.random((N, 3)), halves, removal
    )
    scaled = Scale.of(points[halves.fitting], "centred").apply(points)
    rows = ScaledRows.of(scaled)
    assert rows.products is not None
    return [read(one, labels, halves, removal) for one in (rows, ScaledRows(scaled, None))]


@pytest.mark.parametrize("n_columns", [1, 3])
def test_products_after_removal_equal_those_of_what_is_left(n_columns):
    halves = halves_of()
    removal = removal_of(halves, n_columns)
    points = np.random.default_rng(0).standard_normal((N, D))
    left = removal.apply(points)
    expected = left @ left[halves.fitting].T
    assert removal.apply_to_products(points @ points.T) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("cancelled", [1.0, 1e3, 1e5])
@pytest.mark.parametrize("is_removed", [False, True])
def test_readings_from_products_equal_those_from_rows(is_removed, cancelled):
    """Also where nuisances tell nearly all of what varies, so that products would cancel."""
    halves = halves_of()
    removal = removal_of(halves, 2) if is_removed else mean_alone(N, halves.fitting)
    rng = np.random.default_rng(0)
    points = rng.standard_normal((N, D)) + cancelled * np.outer(removal.design[:, -1], rng.standard_normal(D))
    found, expected = both_ways(points, halves, removal)
    for axis in ("ridge", "pc1"):
        assert found[axis].r2 == pytest.approx(expected[axis].r2, abs=1e-6)
        assert found[axis].cosine == pytest.approx(expected[axis].cosine, abs=1e-6)
        mine, other = found[axis].axes["next_entropy_bits"], expected[axis].axes["next_entropy_bits"]
        assert abs(mine @ other) == pytest.approx(1, abs=1e-6)
        assert mine @ other > 0 and np.linalg.norm(mine) == pytest.approx(1)
        assert found[axis].controls == pytest.approx(expected[axis].controls, abs=1e-6)
    assert found["ridge"].penalty == expected["ridge"].penalty
    assert found["ridge"].spectrum == pytest.approx(expected["ridge"].spectrum, rel=1e-6)


def test_what_nuisances_tell_exactly_leaves_nothing_to_read():
    halves = halves_of()
    removal = removal_of(halves, 2)
    points = removal.design @ np.random.default_rng(0).standard_normal((3, D))
    for readings in both_ways(points, halves, removal):
        assert np.isnan(readings["ridge"].r2).all() and not readings["pc1"].axes


def test_rows_that_outnumber_features_twice_have_no_products():
    assert ScaledRows.of(np.ones((9, 4))).products is None
    assert ScaledRows.of(np.ones((8, 4))).products is not None


def test_the_first_axis_reads_by_its_slope_alone_and_ridge_by_all():
    """PC1: a line through the fitting rows; the judged ones are told by it."""
    halves, rng = halves_of(), np.random.default_rng(3)
    removal = mean_alone(N, halves.fitting)
    points = rng.standard_normal((N, D)) + 4 * np.outer(rng.standard_normal(N), rng.standard_normal(D))
    label, control = points[:, :3].sum(axis=1) + rng.standard_normal(N), rng.random((N, 1))
    labels = make_labels({"next_entropy_bits": label}, control, halves, removal)
    fitting, judged = halves.fitting, halves.judged
    scaled = Scale.of(points[fitting], "centred").apply(points)
    first = np.linalg.svd(scaled[fitting])[2][0]
    slope = np.polyfit(scaled[fitting] @ first, label[fitting], 1)[0]
    for rows in (ScaledRows.of(scaled), ScaledRows(scaled, None)):
        found = read(rows, labels, halves, removal)["pc1"]
        told = slope * (scaled[judged] @ first)
        assert found.predicted["next_entropy_bits"] == pytest.approx(told)
        truth = label[judged] - label[fitting].mean()
        assert found.r2[0] == pytest.approx(1 - np.square(truth - told).sum() / np.square(truth).sum())
        assert found.cosine == pytest.approx(1) and np.abs(found.axes["next_entropy_bits"] @ first) == pytest.approx(1)
        other = np.polyfit(scaled[fitting] @ first, control[fitting, 0], 1)[0]
        assert found.controls[:, 0] == pytest.approx(other * (scaled[judged] @ first))
