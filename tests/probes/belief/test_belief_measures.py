"""The parts of the belief probe on a few rows: states, folds, encodings, decoding, and tables."""

from dataclasses import replace

import numpy as np
import pytest
from interp.probes.belief.clusters import MAX_ROWS, MIN_ROWS, dimensions_for, gather, make_clusters
from interp.probes.belief.folds import press
from interp.probes.belief.readout import make_setting, random_subspace_r2, read_belief
from interp.probes.belief.scores import decoded
from interp.probes.belief.tables import components_table
from interp.probes.belief.target import ExactBelief, nearest_on_simplex
from interp.probes.measures.cloud import Cloud

from interp.need import Need
from interp.statistics.estimates import Estimates
from interp.testing import Shape, synthetic_capture


def rng(*seed):
    return np.random.default_rng(list(seed))


def exact(values, kind="distribution"):
    return ExactBelief(np.asarray(values, dtype=np.float64), kind, "made up")


def pool_of(points, n_scored=1, **columns):
    shape = Shape(n_prompts=len(points) // n_scored, n_scored=n_scored, n_layers=0, d_model=points.shape[1])
    capture = synthetic_capture((Need("resid"),), shape, planted={"resid": points[None]}, columns=columns)
    return Cloud.of(capture, Need("resid"))


def test_beliefs_have_a_most_likely_component_a_rank_and_a_kind():
    values = [[0.2, 0.5, 0.3], [0.4, 0.4, 0.2], [0.1, 0.2, 0.7], [1 / 3] * 3]
    assert exact(values).most_likely.tolist() == [1, -1, 2, -1]
    assert exact([[0.4, 0.4 + 1e-12, 0.2]]).most_likely.tolist() == [-1], "rounding is no lead"
    simplex = rng(0).dirichlet(np.ones(4), 30)
    assert exact(simplex).rank == 3 and exact(np.tile(simplex[0], (5, 1))).rank == 0
    line = np.column_stack([np.linspace(0, 1, 9), 1 - np.linspace(0, 1, 9), np.zeros(9)])
    assert exact(line).rank == 1 and exact(line).varies.tolist() == [True, True, False]
    predicted = np.array([[0.5, 0.51, 0.49], [2.0, -1.0, 0.5]])
    assert decoded(exact(np.eye(3)[:2], "set"), predicted).tolist() == [[0, 1, 0], [1, 0, 0]]
    np.testing.assert_array_equal(decoded(exact(predicted, "vector"), predicted), predicted)
    np.testing.assert_array_equal(decoded(exact(np.eye(3)[:2]), predicted), nearest_on_simplex(predicted))


def test_axes_are_counted_up_to_the_share_that_is_asked_for():
    """Independent columns with variances of 80, 11, 5 and 4 per cent."""
    turn = np.linalg.qr(rng(1).standard_normal((40, 40)))[0]
    columns = np.linalg.qr(turn - turn.mean(axis=0))[0][:, :4] * np.sqrt([0.80, 0.11, 0.05, 0.04])
    for scale in (1e-6, 1.0, 1e6):
        assert dimensions_for(columns * scale + 3) == (2, 3)
    assert dimensions_for(columns[:, :1]) == (1, 1) and dimensions_for(np.ones((5, 3))) == (0, 0)


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        ([0, 0, 1, 1, -1], f"a single state is most likely at 4 rows alone, fewer than {MIN_ROWS}"),
        ([-1] * 24, "fewer than two states are ever the most likely one alone"),
    ],
)
def test_rows_of_too_few_states_have_no_silhouette(states, reason):
    points = rng(3).standard_normal((len(states), 2))
    clusters = make_clusters(pool_of(points), np.array(states), 7, rng(4))
    assert clusters.reason == reason and clusters.n_units == sum(state >= 0 for state in states)
    found = gather(points, clusters)
    assert np.isnan(found).all() and len(found) == 8 + clusters.n_units


def test_a_row_alone_in_its_state_counts_as_0():
    """Of four rows in two states one is left out in turn: (b − a) / max(a, b) by hand."""
    points = np.array([[0.0], [1.0], [4.0], [6.0], [50.0]])
    clusters = make_clusters(pool_of(points), np.array([0, 0, 1, 1, -1]), 7, rng(2))
    left_out = gather(points, replace(clusters, reason=""))[8:]
    thirds = [1 - 2 / 3 + 1 - 2 / 5, 1 - 2 / 4 + 1 - 2 / 6, 1 - 1 / 6 + 1 - 1 / 5, 1 - 1 / 4 + 1 - 1 / 3]
    np.testing.assert_allclose(left_out, np.array(thirds) / 3)


def test_states_are_taken_from_whole_sequences_up_to_a_limit_and_exchanged_whole():
    per = 7
    n = MAX_ROWS // per + 20
    pool = pool_of(rng(3).standard_normal((n * per, 2)), n_scored=per)
    states = rng(4).integers(0, 3, n * per)
    clusters = make_clusters(pool, states, 3, rng(5))
    code = pool.units[clusters.rows]
    assert MAX_ROWS - per < len(clusters.rows) <= MAX_ROWS and (np.bincount(code)[np.unique(code)] == per).all()
    np.testing.assert_array_equal(clusters.states[0], states[clusters.rows])
    whole = {tuple(x) for x in clusters.states[0].reshape(-1, per).tolist()}
    assert all(tuple(x) in whole for x in clusters.states[1:].reshape(-1, per).tolist())
    assert (clusters.states[0] >= 0).all() and clusters.reason == ""
    assert "fewer than two states" in make_clusters(pool, np.minimum(states, 0), 3, rng(5)).reason


def setting_of(points, belief, **columns):
    pool = pool_of(points, **columns)
    return make_setting(pool, belief, 20, 30, rng(9))


def test_the_encoding_is_least_squares_on_all_folds_but_the_first():
    points = rng(10).standard_normal((50, 6)) + 5
    belief = rng(11).standard_normal((50, 2)) + 3
    setting = setting_of(points, exact(belief, "vector"))
    reading = read_belief(points, setting, rng(12))
    others = setting.folds.code != 0
    design = np.column_stack([np.ones(others.sum()), belief[others]])
    expected = np.linalg.lstsq(design, points[others], rcond=None)[0][1:]
    np.testing.assert_allclose(reading.encoding, expected, rtol=1e-8)
    np.testing.assert_allclose(reading.origin, points[others].mean(axis=0))


@pytest.mark.parametrize(
    ("rank", "n_rows", "n_features", "has_draws"),
    [(0, 40, 4, False), (3, 40, 4, True), (4, 40, 4, False), (4, 10, 12, True), (5, 10, 12, False)],
)
def test_random_subspaces_are_smaller_than_the_whole_and_than_half_the_rows_fitted_on(
    rank, n_rows, n_features, has_draws
):
    points, belief = rng(17).standard_normal((n_rows, n_features)), rng(18).dirichlet(np.ones(2), n_rows)
    setting = setting_of(points, exact(belief))
    parts = press(setting.folds, setting.mean, points, setting.targets)
    assert (len(random_subspace_r2(setting.folds, parts, rank, 2, rng(19))) > 0) == has_draws


def test_the_table_of_components_names_them():
    r2 = Estimates(np.array([0.3, 0.4]), np.array([[0.2, 0.3], [0.4, 0.5]]), np.full((3, 2), 0.1), np.full(2, 0.05))
    belief = replace(exact([[0.2, 0.8], [0.4, 0.6]]), names=("x", "y"))
    row = {name: column[1] for name, column in components_table(belief, r2).columns.items()}
    assert row == {"component": 1, "mean": pytest.approx(0.7), "r2": 0.4, "r2_low": 0.3, "r2_high": 0.5, "r2_null": 0.1,
                   "r2_null_low": 0.1, "r2_null_high": 0.1, "r2_p": 0.05, "value": "y"}  # fmt: skip
