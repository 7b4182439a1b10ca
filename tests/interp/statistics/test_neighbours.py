"""Distinct points, intrinsic dimension and curve position against the libraries and planted truth."""

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import cdist
from sklearn.manifold import Isomap

from interp.findings import Interval
from interp.statistics.dimension import intrinsic_dimension, two_nn
from interp.statistics.isomap_curve import curve_position
from interp.statistics.neighbours import distances, distinct_rows, nearest
from interp.statistics.spectra import scaled


def test_rows_that_are_equal_or_near_are_told_by_their_distances() -> None:
    rng = np.random.default_rng(0)
    points = rng.standard_normal((9, 64))
    rows = points[rng.integers(0, 9, 300)] * (1 + 1e-7 * rng.standard_normal((300, 64)))
    kept = distinct_rows(rows.astype(np.float32))
    assert len(kept) == 9 and (np.diff(kept) > 0).all()
    assert len(distinct_rows(rng.standard_normal((500, 64)))) == 500
    assert distinct_rows(np.ones((5, 3))).tolist() == [0]
    near, index = nearest(distances(np.array([[0.0], [1.0], [3.0], [7.0]])), 2)
    assert index.tolist() == [[1, 2], [0, 2], [1, 0], [2, 1]]
    np.testing.assert_allclose(near, [[1, 3], [1, 2], [2, 3], [4, 6]])


@pytest.mark.parametrize("spread", [1.0, 1e-3, 1e-9])
def test_distances_are_those_of_scipy_also_between_points_that_nearly_coincide(spread: float) -> None:
    rng = np.random.default_rng(4)
    rows = np.repeat(rng.standard_normal((12, 300)), 5, axis=0) * np.geomspace(1, 1e4, 300)
    rows += spread * rng.standard_normal(rows.shape)
    rows[1] = rows[0]
    centred = scaled(rows, "centred")
    found = distances(centred)
    np.testing.assert_allclose(found, cdist(centred, centred), rtol=1e-9, atol=0)
    assert found[0, 1] == 0 and (found == found.T).all()
    rows = rng.standard_normal((40, 8))
    rows[7] *= 1e6  # what can be close is looked for by the longest row; each pair is judged by its own lengths
    np.testing.assert_allclose(distances(rows), cdist(rows, rows), rtol=1e-9, atol=0)


def test_dimension_is_that_of_scikit_dimension_and_of_a_plane() -> None:
    from skdim.id import TwoNN  # two seconds of numba and matplotlib

    rows = np.random.default_rng(2).standard_normal((120, 40))
    expected = TwoNN(method="mle").fit(rows).dimension_
    found = intrinsic_dimension(rows, np.arange(120), 2, np.random.default_rng(0))
    assert found.value == pytest.approx(expected, rel=1e-6)
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((400, 2)) @ rng.standard_normal((2, 100))
    found = intrinsic_dimension(rows, np.arange(400), 20, rng)
    assert found.value == pytest.approx(2, abs=0.3)
    assert isinstance(found.interval, Interval) and found.interval.low < 2 < found.interval.high


@pytest.mark.parametrize("d", [10, 1024])
def test_noise_sits_on_the_null_of_the_dimension(d: int) -> None:
    """Also with fewer rows than features, where the sample covariance is far from the true one."""
    inside = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        found = intrinsic_dimension(rng.standard_normal((75, d)), np.arange(75), 20, rng)
        mean, deviation = found.null_draws.mean(), found.null_draws.std(ddof=1)
        inside += abs(found.value - mean) < 2.15 * deviation
    assert inside >= 33


def test_a_bent_sheet_lies_below_the_null_of_the_dimension() -> None:
    rng = np.random.default_rng(4)
    t = rng.uniform(0, 9, 300)
    rows = np.stack([np.cos(k * t) for k in range(1, 9)] + [np.sin(k * t) for k in range(1, 9)], axis=1)
    found = intrinsic_dimension(rows, np.arange(300), 20, rng)
    assert found.value < 2 < found.null_draws.min()


@pytest.mark.parametrize("d", [2, 10, 1024])
def test_intervals_of_the_dimension_cover_its_expected_value(d: int) -> None:
    values, bounds = [], []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        found = intrinsic_dimension(rng.standard_normal((75, d)), np.arange(75), 0, rng)
        if isinstance(found.interval, Interval):  # with few groups of neighbours there is none
            values.append(found.value)
            bounds.append((found.interval.low, found.interval.high))
    expected, (low, high) = np.exp(np.log(values).mean()), np.array(bounds).T
    assert len(values) > 120
    covered = int(((low <= expected) & (expected <= high)).sum())
    assert covered >= stats.binom.ppf(0.0005, len(values), 0.93)
    assert np.log(high / low).mean() / 2 < 3 * np.log(values).std()  # and they are not idly wide


@pytest.mark.parametrize("are_sequences", [True, False])
def test_the_interval_of_the_dimension_leaves_out_sequences_or_points_linked_by_first_neighbours(are_sequences) -> None:
    n_rows = 120 if are_sequences else 40
    rows = np.random.default_rng(5).standard_normal((n_rows, 4))
    near, index = nearest(distances(rows), 2)
    units, group = np.arange(n_rows), np.arange(n_rows)
    if are_sequences:
        units = group = units // 6
    else:
        for i, j in enumerate(index[:, 0]):  # union by relabelling
            group[group == group[i]] = group[j]
    n = len(names := np.unique(group))
    replicates = np.log([two_nn(near[group != name]) for name in names])
    half = stats.t.ppf(0.975, n - 1) * np.sqrt((n - 1) / n * np.square(replicates - replicates.mean()).sum())
    found = intrinsic_dimension(rows, units, 0, np.random.default_rng(0))
    bounds = (found.interval.low, found.interval.high)
    np.testing.assert_allclose(bounds, found.value * np.exp([-half, half]))
    assert are_sequences or found.interval.method == f"jackknife over {n} groups of neighbours, log scale"


def test_the_dimension_of_few_distinct_points_is_undefined() -> None:
    rows = np.repeat(np.random.default_rng(6).standard_normal((8, 5)), 10, axis=0)
    found = intrinsic_dimension(rows, np.arange(80), 20, np.random.default_rng(0))
    assert np.isnan(found.value) and found.interval == "8 distinct points; TwoNN wants at least 20"


def test_curve_position_equals_isomap_and_joins_pieces() -> None:
    rng = np.random.default_rng(7)
    rows = rng.uniform(size=(150, 3)) * [8, 1, 1]
    expected = Isomap(n_neighbors=10, n_components=1).fit_transform(rows)[:, 0]
    found = curve_position(rows)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-8)
    rng = np.random.default_rng(8)
    t = rng.uniform(0, 1, 200)
    rows = np.stack([np.cos(4.5 * t), np.sin(4.5 * t)], axis=1)
    assert abs(np.corrcoef(curve_position(rows), t)[0, 1]) > 0.999
    rng = np.random.default_rng(9)
    rows = np.vstack([rng.standard_normal((30, 3)), rng.standard_normal((30, 3)) + 100])
    found = curve_position(rows)
    assert np.ptp(np.sign(found[:30])) == 0 and np.sign(found[0]) != np.sign(found[-1])
    np.testing.assert_array_equal(curve_position(np.ones((6, 2))), 0)


@pytest.mark.parametrize(("step", "n_distinct"), [(0.9e-5, 20), (1.1e-5, 40)])
def test_the_tolerance_of_equal_points_is_kept_to(step, n_distinct) -> None:
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((20, 50))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    aside = rng.standard_normal((20, 50))
    aside -= (aside * rows).sum(axis=1, keepdims=True) * rows
    twins = rows + step * aside / np.linalg.norm(aside, axis=1, keepdims=True)
    assert len(distinct_rows(np.concatenate([rows, twins]))) == n_distinct


@pytest.mark.parametrize("n_neighbours", [2, 3, 7])
def test_equal_rows_share_a_place_on_the_curve(n_neighbours: int) -> None:
    """Also where there are more of them than neighbours, and they fall into pieces of one place."""
    t = np.repeat([0.0, 1.0, 3.0], [9, 8, 7])
    found = curve_position(np.stack([t, np.zeros(24)], axis=1), n_neighbours)
    np.testing.assert_allclose(np.abs(found - found[0]), t, atol=1e-6)


def test_likelihoods_and_nearest_of_equals_are_by_hand() -> None:
    ratios = np.array([8.0, 1.5, 2.0, 1.2, 3.0, 1.1, 4.0, 2.5, 1.7, 1.3])
    log = np.sort(np.log(ratios))
    expected = 8 / (log[:9].sum() + log[8])  # of ten, the largest is censored at the ninth
    assert two_nn(np.stack([np.full(10, 0.5), 0.5 * ratios], axis=1)) == pytest.approx(expected)
    between = distances(np.array([[0.0], [1.0], [-1.0], [2.0]]))
    near, index = nearest(between, 3)
    assert index[0].tolist() == [1, 2, 3] and near[0].tolist() == [1.0, 1.0, 2.0]
    assert between[0].tolist() == [0.0, 1.0, 1.0, 2.0], "the distances that were given stay"


@pytest.mark.parametrize(("n_groups", "has_interval"), [(4, False), (5, True)])
def test_a_dimension_wants_five_groups_for_an_interval(n_groups: int, has_interval: bool) -> None:
    rows = np.random.default_rng(11).standard_normal((20, 3))
    found = intrinsic_dimension(rows, np.arange(20) * n_groups // 20, 0, np.random.default_rng(0))
    assert np.isfinite(found.value) and isinstance(found.interval, Interval) == has_interval
    assert has_interval or found.interval == "fewer than 5 independent groups of neighbours"
