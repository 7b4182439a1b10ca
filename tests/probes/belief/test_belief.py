"""The belief probe: planted beliefs, position, tokens, noise; the parts against second formulas; the shipped tunnel."""

from dataclasses import replace

import numpy as np
import pytest
from interp.probes.belief.clusters import MAX_ROWS, MIN_ROWS, Clusters, dimensions_for, gather, make_clusters
from interp.probes.belief.estimates import (
    MIXED_IN,
    Scores,
    baseline_estimate,
    decoded,
    decoded_table,
    output_distance,
    score_estimates,
    scores,
    selectivity_estimates,
    silhouette_estimates,
    subspace_estimates,
)
from interp.probes.belief.folds import cross_validate, deal, press
from interp.probes.belief.interchange import BASELINE, N_RANDOM, SUBSPACES, make_pairs, outcomes, turned_bits
from interp.probes.belief.probe import Belief
from interp.probes.belief.readout import (
    N_CONTROLS,
    Reading,
    Shares,
    beyond_token,
    make_setting,
    random_subspace_r2,
    read_belief,
)
from interp.probes.belief.target import ExactBelief, nearest_on_simplex
from interp.probes.measures.cloud import Cloud
from scipy import stats
from sklearn.linear_model import Ridge
from sklearn.metrics import silhouette_samples

import interp
from interp.errors import PromptError, UsageError
from interp.information import kl_bits, restricted
from interp.need import Need
from interp.prompting.tunnel_sequences import sampled_prompts
from interp.registry import load_entry
from interp.statistics.ridge import PENALTIES
from interp.testing import Shape, check_probe, synthetic_capture
from tests.quick import quick

D = 12
PROBE = Belief(sites=("resid",), n_permutations=39, n_bootstrap=99)


def world(points, belief, n_scored=1, seed=0, probe=PROBE, capture=None, **columns):
    """The last depth planted, the embedding noise; the posterior is the belief."""
    if capture is None:
        rng = np.random.default_rng([seed, 5])
        resid = np.stack([rng.standard_normal(points.shape), points])
        shape = Shape(n_prompts=len(points) // n_scored, n_scored=n_scored, n_layers=1, d_model=points.shape[1])
        capture = synthetic_capture(
            probe.needs, shape, planted={"resid": resid}, posterior=belief, columns=columns, seed=seed
        )
    return replace(probe, seed=seed).analyse(capture, {})


def planted(n=300, noise=0.3, seed=0, n_components=3):
    """A linear image of the belief in noise, and the R² of the best linear readout of it."""
    rng = np.random.default_rng(seed)
    belief = rng.dirichlet(np.ones(n_components), n)
    image = rng.standard_normal((n_components, D))
    image -= image.mean(axis=0)
    covariance = (np.eye(n_components) - 1 / n_components) / (n_components * (n_components + 1))
    both = covariance @ image
    explained = both @ np.linalg.inv(image.T @ both + noise**2 * np.eye(D)) @ both.T
    return belief @ image + noise * rng.standard_normal((n, D)), belief, np.trace(explained) / np.trace(covariance)


def capture_of(points, n_scored=1, **given):
    shape = Shape(n_prompts=len(points) // n_scored, n_scored=n_scored, n_layers=0, d_model=points.shape[1])
    return synthetic_capture((Need("resid"),), shape, planted={"resid": points[None]}, **given)


def pool_of(points, n_scored=1):
    return Cloud.of(capture_of(points, n_scored), Need("resid"))


def setting_of(points, belief, n_scored=1, n_permutations=20, seed=0, **columns):
    capture = capture_of(points, n_scored, posterior=belief, columns=columns, seed=seed)
    pool = Cloud.of(capture, Need("resid"))
    return pool, make_setting(pool, ExactBelief.of(capture), n_permutations, 50, np.random.default_rng(seed))


@pytest.mark.slow
@pytest.mark.parametrize("kind", quick(["set"], ["distribution", "set", "vector"]))
def test_conformance_on_sequences(kind):
    rng = np.random.default_rng(0)
    shape = Shape(n_prompts=40, n_scored=6)
    belief = {
        "distribution": rng.dirichlet(np.ones(4), 240),
        "set": rng.integers(0, 2, (240, 5)).astype(float),
        "vector": rng.standard_normal((240, 3)),
    }[kind]
    probe = replace(PROBE, sites=("resid", "v", "z"), n_permutations=19)
    found = check_probe(probe, synthetic_capture(probe.needs, shape, belief=belief))
    assert ("tvd" in found.scalars, "accuracy" in found.scalars) == (kind == "distribution", kind == "set")


def test_a_linear_image_of_the_belief_is_read_as_well_as_can_be():
    points, belief, best = planted(n=600)
    found = world(points, belief, seed=1)
    assert 0.5 < best < 0.95
    assert found["r2"].value == pytest.approx(best, abs=0.03)
    low, high = found["r2"].interval
    assert low < best < high and high - low < 0.12
    assert found["r2"].p == 1 / 40 == found["r2_beyond_position"].p
    assert found["r2"].null.band[1] < 0.05
    assert found["selectivity"].value == pytest.approx(found["r2"].value, abs=0.05), "tokens say nothing here"
    table = found.tables["by_layer"]
    assert table["r2_p"][0] > 0.05 and abs(table["r2"][0]) < 0.03, "the embedding is noise"
    assert (found.tables["components"]["r2_p"] == 1 / 40).all()


def test_position_alone_is_no_belief_about_the_sequence():
    rng = np.random.default_rng(0)
    n, per = 80, 6
    position = np.tile(np.arange(per), n)
    level = np.linspace(0.1, 0.9, per)[position] + 0.05 * rng.standard_normal(n * per)
    points = rng.standard_normal((n * per, D)) * 0.01
    points[:, :per] += np.eye(per)[position]
    found = world(points, np.column_stack([level, 1 - level]), n_scored=per)
    assert found["r2"].value > 0.9 and found["r2"].value == pytest.approx(found["r2"].null.value, abs=0.02)
    assert found["r2"].p > 0.05 and found["r2_beyond_position"].p > 0.05
    assert abs(found["r2_beyond_position"].value) < 0.02
    assert found["position_r2"].value == pytest.approx(found["r2"].value, abs=0.01)


@pytest.mark.parametrize(("of_token", "of_rest"), [(1.0, 0.0), (1.0, 1.0), (0.0, 1.0)])
def test_beyond_the_last_token_is_what_the_token_does_not_tell(of_token, of_rest):
    """The belief is what its token says plus what no token says; activations hold some of either, and noise."""
    rng = np.random.default_rng(3)
    token, n, noise = np.repeat(np.arange(8), 75), 600, 0.5
    said, rest = rng.standard_normal((8, 2))[token], rng.standard_normal((n, 2))
    image = np.linalg.qr(rng.standard_normal((D, 2)))[0].T
    points = (of_token * said + of_rest * rest) @ image + noise * rng.standard_normal((n, D))
    found = world(points, said + rest, seed=1, token=token)["r2_beyond_token"]
    expected = of_rest**2 / (of_rest**2 + noise**2)
    assert found.value == pytest.approx(expected, abs=0.04) and found.null.band[1] < 0.04
    low, high = found.interval
    assert low < expected < high or not of_rest
    assert (found.standing() == "above") == (found.p == 1 / 40) == bool(of_rest)


def test_the_read_out_saved_is_the_one_that_judged_the_held_out_prompts():
    points, belief, _ = planted(n=200)
    _, setting = setting_of(points, belief)
    found = world(points, belief)
    held = found.arrays["held_out"]
    centred = points[held] - found.arrays["resid.origin"][1]
    told = found.arrays["belief_mean"] + centred @ found.arrays["resid.readout"][1].T
    corners = np.array([[0, 0], [1, 0], [0.5, 3**0.5 / 2]])
    table = found.tables["decoded"]
    mine = np.isin(table["prompt"], held)
    assert (nearest_on_simplex(told) @ corners)[:, 0] == pytest.approx(table["decoded_x"][mine], abs=1e-5)
    assert (belief @ corners)[held, 1] == pytest.approx(table["exact_y"][mine])
    assert len(held) == pytest.approx(len(belief) / setting.folds.n, abs=1)


def test_the_bases_are_orthonormal_and_span_what_was_planted():
    rng = np.random.default_rng(4)
    belief = rng.dirichlet(np.ones(3), 500)
    image = rng.standard_normal((3, D))
    arrays = world(belief @ image + 0.01 * rng.standard_normal((500, D)), belief).arrays
    for name in ("readout_basis", "encoding_basis"):
        basis = arrays[f"resid.{name}"][1]
        assert basis.shape == (2, D)
        np.testing.assert_allclose(basis @ basis.T, np.eye(2), atol=1e-9)
    span = np.linalg.svd(image - image.mean(axis=0))[2][:2]
    for name in ("readout_basis", "encoding_basis"):
        assert np.linalg.svd(span @ arrays[f"resid.{name}"][1].T, compute_uv=False).min() > 0.99, name


def brute_force(points, targets, design, folds):
    """Nested cross-validation with scikit-learn, fold by fold and penalty by penalty."""
    error = total = 0.0
    for fold in range(folds.n):
        inner = np.zeros(len(PENALTIES))
        for other in folds.others(fold):
            inner += np.array([
                _sse(points, targets, design, folds.code, (fold, other), other, a) for a in PENALTIES
            ])  # fmt: skip
        error += _sse(points, targets, design, folds.code, (fold,), fold, PENALTIES[inner.argmin()])
        total += _sse(points * 0, targets, design, folds.code, (fold,), fold, 1.0)
    return error, total


def _sse(points, targets, design, code, left_out, held, penalty):
    train, test = ~np.isin(code, left_out), code == held
    x_on, y_on = (np.linalg.lstsq(design[train], v[train], rcond=None)[0] for v in (points, targets))
    x, y = points - design @ x_on, targets - design @ y_on
    singular = np.linalg.svd(x[train], compute_uv=False)
    alive = singular[singular > 1e-5 * max(singular[0], 1e-9)] if singular.any() else np.ones(1)
    fitted = Ridge(alpha=penalty * np.square(alive).mean(), fit_intercept=False, solver="svd").fit(x[train], y[train])
    return np.square(y[test] - fitted.predict(x[test])).sum()


@pytest.mark.parametrize(("n_units", "per", "d"), [(30, 6, 5), (25, 1, 40)])
def test_cross_validation_equals_scikit_learn_fold_by_fold(n_units, per, d):
    rng = np.random.default_rng(0)
    n = n_units * per
    units = np.repeat(np.arange(n_units), per)
    points = rng.standard_normal((n, d))
    targets = points[:, :2] @ rng.standard_normal((2, 4)) + 2 * rng.standard_normal((n, 4))
    design = np.hstack([np.ones((n, 1)), np.eye(per)[np.tile(np.arange(per), n_units)]])  # its columns add up
    folds = deal(units, rng)
    parts = press(folds, design, points, [targets[folds.rows(f)] for f in range(folds.n)])
    found = cross_validate(folds, parts, design, points, 2, 1)
    for group in range(2):
        at = slice(2 * group, 2 * group + 2)
        error, total = brute_force(points, targets[:, at], design, folds)
        assert found.error[at].sum() == pytest.approx(error, rel=1e-6)
        assert found.total[at].sum() == pytest.approx(total, rel=1e-9)
    assert np.square(targets[:, :2] - found.predicted).sum() == pytest.approx(found.error[:2].sum(), rel=1e-9)


def test_folds_hold_whole_sequences_in_equal_number():
    units = np.repeat(np.arange(23), 4)
    folds = deal(units, np.random.default_rng(0))
    assert all(len(set(folds.code[units == u])) == 1 for u in range(23))
    assert np.ptp(np.bincount(folds.code[::4])) <= 1 and folds.n == 5
    assert deal(np.arange(3), np.random.default_rng(0)).n == 3


def test_exchanged_beliefs_are_other_sequences_at_the_same_position():
    rng = np.random.default_rng(0)
    n, per = 12, 3
    belief = rng.dirichlet(np.ones(3), n * per)
    points, length = rng.standard_normal((n * per, 4)), np.full(n * per, 9)
    _, setting = setting_of(points, belief, n_scored=per, n_permutations=5, length=length)
    assert setting.position.names == ("position (3 levels)",)
    for fold in range(setting.folds.n):
        rows = setting.folds.rows(fold)
        groups = setting.targets[fold].reshape(len(rows), setting.n_groups, 3)
        np.testing.assert_array_equal(groups[:, 0], belief[rows])
        for exchange in range(5):
            moved = belief[setting.orders[exchange][rows]]
            np.testing.assert_allclose(groups[:, 1 + N_CONTROLS + exchange], moved, atol=1e-12)
            assert (setting.orders[exchange][rows] % per == rows % per).all()


def test_control_tasks_give_a_token_one_belief_wherever_it_stands():
    rng = np.random.default_rng(0)
    n, per = 40, 3
    belief, token = rng.dirichlet(np.ones(3), n * per), rng.integers(0, 4, n * per)
    _, setting = setting_of(rng.standard_normal((n * per, 4)), belief, n_scored=per, token=token)
    controls = setting.followed.reshape(n * per, 1 + N_CONTROLS, 3)[:, 1:]
    for place in range(per):
        for t in range(4):
            mine = (np.arange(n * per) % per == place) & (token == t)
            assert len(np.unique(controls[mine], axis=0)) == 1
            assert any(np.array_equal(controls[mine][0, 0], b) for b in belief[place::per])


def test_random_subspaces_equal_least_squares_fold_by_fold():
    points, belief, _ = planted(n=90)
    _, setting = setting_of(points, belief)
    folds = setting.folds
    parts = press(folds, np.ones((len(points), 1)), points, setting.targets)
    found = random_subspace_r2(folds, parts, 2, 3, np.random.default_rng(8))
    directions = np.random.default_rng(8).standard_normal((len(found), D, 2))
    for draw in (0, len(found) - 1):
        projected, error, total = points @ directions[draw], 0.0, 0.0
        for fold in range(folds.n):
            train, test = folds.code != fold, folds.code == fold
            design = np.column_stack([np.ones(train.sum()), projected[train]])
            w = np.linalg.lstsq(design, belief[train], rcond=None)[0]
            error += np.square(belief[test] - w[0] - projected[test] @ w[1:]).sum()
            total += np.square(belief[test] - belief[train].mean(axis=0)).sum()
        assert found[draw] == pytest.approx(1 - error / total, abs=1e-9)


def test_the_projection_is_the_nearest_point_of_the_simplex():
    rng = np.random.default_rng(0)
    points = 2 * rng.standard_normal((50, 4))
    nearest = nearest_on_simplex(points)
    np.testing.assert_allclose(nearest.sum(axis=1), 1)
    assert nearest.min() >= 0
    others = rng.dirichlet(np.ones(4), 4000)
    distance = np.linalg.norm(points - nearest, axis=1)
    assert (np.linalg.norm(points[:, None] - others, axis=2).min(axis=1) >= distance - 1e-12).all()
    inside = rng.dirichlet(np.ones(4), 20)
    np.testing.assert_allclose(nearest_on_simplex(inside), inside, atol=1e-12)


def told(predicted, position):
    """A reading that holds predictions alone; the mean belief is uniform."""
    n = predicted.shape[1]
    empty, vectors, sums = np.zeros(0), np.zeros((n, 0)), np.zeros((0, 1, n))
    shares, uniform = Shares(empty, np.zeros((0, n)), sums, sums), np.full_like(predicted, 1 / n)
    return Reading(shares, shares, predicted, position, uniform, empty, vectors, vectors, empty, 1.0)


def test_scores_equal_their_definitions():
    points, belief, _ = planted(n=60)
    belief[0] = [1, 0, 0]
    _, setting = setting_of(points, belief)
    repeating = np.arange(60) // 2  # as where clusters differ in size
    setting = replace(setting, orders=np.vstack([setting.orders, repeating]))
    predicted, position = belief + 0.3, np.full((60, 3), 1 / 3)
    predicted[1] = [2, -1, -1]
    found = scores(setting, told(predicted, position))
    decoded = np.array([[1.0, 0, 0], [1, 0, 0]])
    assert found["tvd"].by_row[:2] == pytest.approx(0.5 * np.abs(belief[:2] - decoded).sum(axis=1))
    q = (1 - MIXED_IN) * decoded[1] + MIXED_IN / 3
    by_hand = sum(p * np.log2(p / x) for p, x in zip(belief[1], q, strict=True))
    assert found["kl_bits"].by_row[1] == pytest.approx(by_hand)
    assert found["tvd"].by_position[0] == pytest.approx(2 / 3)
    assert found["kl_bits"].by_position[0] == pytest.approx(np.log2(3))
    put = nearest_on_simplex(predicted)
    one = np.mean([0.5 * np.abs(belief[o] - put).sum(axis=1).mean() for o in setting.orders])
    assert found["tvd"].permuted.mean() == pytest.approx(one)
    mixed = (1 - MIXED_IN) * put + MIXED_IN / 3
    two = [kl_bits(belief[o], mixed).mean() for o in setting.orders]
    assert found["kl_bits"].permuted == pytest.approx(np.array(two))


def test_sets_are_decoded_at_one_half():
    rng = np.random.default_rng(0)
    belief = rng.integers(0, 2, (40, 3)).astype(float)
    _, setting = setting_of(rng.standard_normal((40, 4)), belief)
    predicted = np.where(belief > 0, 0.6, 0.4)
    predicted[0] = 1 - predicted[0]
    found = scores(setting, told(predicted, np.full((40, 3), 0.7)))["accuracy"]
    assert found.by_row[0] == 0 and (found.by_row[1:] == 1).all()
    assert found.by_position == pytest.approx(belief.mean(axis=1))


def test_the_model_s_own_prediction_is_renormalised_over_the_outcomes():
    posterior = np.array([[0.5, 0.5], [1.0, 0.0]])
    found = output_distance(np.log2([[0.1, 0.3], [0.2, 0.2]]), posterior, np.array([[1, 0]]))
    assert found.by_row == pytest.approx([0.25, 0.5])
    assert found.permuted == pytest.approx([(0.75 + 0.0) / 2])


def test_what_cannot_be_read_is_refused_in_words():
    points, belief, _ = planted(n=30)
    capture = replace(synthetic_capture(PROBE.needs, Shape(n_prompts=20)), posterior=None)
    with pytest.raises(PromptError) as refusal:
        PROBE.analyse(capture, {})
    assert "belief needs the exact posterior" in str(refusal.value) and "--prompts sula" in refusal.value.fix
    with pytest.raises(UsageError, match=r"belief\.sites") as refusal:
        world(points, belief, probe=replace(PROBE, sites=()))
    assert "Choose among resid, v, z" in refusal.value.fix
    belief[3, 1] = np.inf
    with pytest.raises(PromptError, match="1 of 30 rows"):
        world(points, belief)


def test_components_that_never_vary_count_for_nothing():
    points, belief, _ = planted(n=150)
    with_still = np.hstack([belief, np.zeros((150, 1))])
    found = world(points, with_still)
    assert found["r2"].value == pytest.approx(world(points, belief)["r2"].value, abs=1e-9)
    assert np.isnan(found.tables["components"]["r2"]).tolist() == [False] * 3 + [True]
    assert any("1 of 4 components never vary" in note for note in found.notes)
    assert found.arrays["resid.readout_basis"].shape == (2, 2, D)


def test_beliefs_and_activations_that_never_vary_are_said_to():
    points, belief, _ = planted(n=40)
    capture = still(points, np.broadcast_to(belief[0], belief.shape).copy())
    found = check_probe(PROBE, capture)
    for name in ("r2", "r2_beyond_position", "selectivity", "random_subspace_r2", "silhouette"):
        assert np.isnan(found[name].value), name
    assert found["r2"].null_reason == "the exact posterior does not vary"
    assert list(PROBE.conditions(capture)) == [], "and is not swapped"
    _, belief, _ = planted(n=40)
    found = check_probe(PROBE, still(np.ones((40, D)), belief))
    assert found["r2"].value == pytest.approx(0, abs=1e-9) and found["r2"].underpowered
    assert np.isnan(found["silhouette"].value)


def still(points, belief):
    shape = Shape(n_prompts=len(points), n_layers=1, d_model=D)
    return synthetic_capture(PROBE.needs, shape, planted={"resid": np.stack([points, points])}, posterior=belief)


def test_the_primary_layer_is_the_one_asked_for():
    points, belief, _ = planted(n=60)
    found = world(points, belief, probe=replace(PROBE, layer=0))
    table = found.tables["by_layer"]
    assert found["r2"].value == table["r2"][0] and int(found.arrays["primary_layer"]) == 0


def made_setting():
    """Four units of one to three rows, and three resamples of which the last holds the fourth alone."""
    _, setting = setting_of(np.random.default_rng(0).standard_normal((7, 3)), np.full((7, 2), 0.5))
    return replace(
        setting, code=np.array([0, 1, 1, 2, 2, 2, 3]), weights=np.array([[1, 1, 1, 1], [2, 0, 1, 1], [0, 0, 0, 4]])
    )


def made_reading():
    rng = np.random.default_rng(1)
    points, belief, _ = planted(n=60)
    _, other = setting_of(points, belief)
    reading = read_belief(points, other, rng)
    errors, totals = rng.uniform(0.1, 1, (4, 1 + N_CONTROLS, 3)), rng.uniform(1, 2, (4, 1 + N_CONTROLS, 3))
    kept = Shares(np.array([0.5, 0.1, 0.0, 0.3, 0.2, 0.4, 0.1, 0.2]), np.zeros((8, 3)), errors, totals)
    return replace(reading, kept=kept, subspace_r2=np.array([0.1, 0.2, 0.6]))


def normal(value, replicates):
    half = 1.959964 * np.std(replicates, ddof=1)
    return pytest.approx((value - half, value + half))


def test_selectivity_is_the_share_above_that_of_control_tasks():
    setting = made_setting()
    reading = made_reading()
    found = selectivity_estimates([reading], setting)
    assert found.value == pytest.approx(0.5 - 0.2)
    drawn = []
    for w in setting.weights:
        left = (w @ reading.kept.errors.sum(axis=2)) / (w @ reading.kept.totals.sum(axis=2))
        drawn.append((1 - left[0]) - (1 - left[1:]).mean())
    assert tuple(found.interval[:, 0]) == normal(found.value[0], drawn)
    # each control task less the mean of the others
    null = np.array([0.1 - 0.225, 0.0 - 0.25, 0.3 - 0.175, 0.2 - 0.2, 0.4 - 0.15])
    half = stats.t.ppf(0.975, 4) * null.std(ddof=1) * np.sqrt(6 / 5)
    assert found.null[:, 0] == pytest.approx([null.mean(), -half, half], abs=1e-12)


@pytest.mark.parametrize(("of_position", "of_token"), [(1, 0), (0, 1), (1, 1), (0, 0)])
def test_baselines_are_the_shares_that_position_and_token_hold(of_position, of_token):
    rng = np.random.default_rng(0)
    n, per = 300, 4
    place, token = np.tile(np.arange(per), n), rng.integers(0, 6, n * per)
    parts = rng.standard_normal((per, 3))[place], rng.standard_normal((6, 3))[token], rng.standard_normal((n * per, 3))
    parts = [
        (part - part.mean(axis=0)) / np.sqrt(np.square(part - part.mean(axis=0)).sum(axis=1).mean()) for part in parts
    ]
    belief = of_position * parts[0] + of_token * parts[1] + parts[2]  # noise has a variance of one, too
    _, setting = setting_of(parts[2], belief, n_scored=per, n_permutations=5, length=np.full(n * per, 9), token=token)
    of_all = of_position + of_token + 1
    reading, (_, by_token) = read_belief(parts[2], setting, rng), beyond_token(parts[2], setting)
    by_position = baseline_estimate(setting.position, reading.by_position, reading.by_mean, setting)
    by_token = baseline_estimate(setting.token, by_token, reading.by_mean, setting)
    assert by_position.value == pytest.approx(of_position / of_all, abs=0.03)
    assert by_token.value == pytest.approx((of_position + of_token) / of_all, abs=0.03)
    assert [name.split(" (")[0] for name in setting.token.names] == ["position", "last token"]
    low, high = tuple(by_token.interval[:, 0])
    assert low < by_token.value < high < low + 0.1


def test_a_baseline_of_nothing_that_varies_says_so():
    rng = np.random.default_rng(0)
    columns = {"length": np.full(40, 9), "position": np.full(40, 8), "token": np.full(40, 2)}
    _, setting = setting_of(rng.standard_normal((40, 3)), rng.dirichlet(np.ones(3), 40), **columns)
    found = baseline_estimate(setting.token, setting.belief.values, setting.belief.values, setting)
    assert np.isnan(found.value).all() and found.at(0).why == "neither position nor last token varies"


def test_random_subspaces_have_the_interval_of_their_mean():
    setting = made_setting()
    found = subspace_estimates([made_reading()], setting, "sequence")
    half = stats.t.ppf(0.975, 2) * np.std([0.1, 0.2, 0.6], ddof=1) / np.sqrt(3)
    assert found.value == pytest.approx(0.3) and tuple(found.interval[:, 0]) == pytest.approx((0.3 - half, 0.3 + half))


def test_a_score_is_a_mean_over_rows_with_sequences_resampled():
    setting, by_row = made_setting(), np.array([1.0, 2, 4, 3, 3, 9, 5])
    infinite = Scores(np.append(by_row[1:], np.inf), by_row, np.array([4.0, 8.0]))
    found = score_estimates([Scores(by_row, by_row + 1, np.array([4.0, 8.0])), infinite], setting)
    sums, counts = np.array([1, 6, 15, 5]), np.array([1, 2, 3, 1])
    assert found.value[0] == pytest.approx(27 / 7) and found.at(0).words["position"] == "4.86"
    assert tuple(found.interval[:, 0]) == normal(27 / 7, [(w @ sums) / (w @ counts) for w in setting.weights])
    assert found.null[:, 0] == pytest.approx([6, 4.1, 7.9])
    assert np.isnan(found.value[1]) and "decoded as impossible" in found.at(1).why


def test_a_silhouette_has_the_jackknife_interval_of_what_is_left_without_each_group():
    states = np.zeros((3, 7), dtype=np.int64)
    clusters = Clusters(np.arange(7), states, np.zeros((4, 7), dtype=np.int64), 9, 2, "")
    one = np.array([0.5, 0.1, 0.2, 0.4, 0.5, 0.7, 0.6])
    found = silhouette_estimates(np.array([one, np.full(7, np.nan)]), clusters, "n")
    half = stats.t.ppf(0.975, 3) * np.sqrt(7**2 / (9 * 2 * 3) * 0.05)
    assert tuple(found.interval[:, 0]) == pytest.approx((0.5 - half, 0.5 + half)) and found.at(0).about == {"n": 9}
    assert found.null[1:, 0] == pytest.approx([0.1025, 0.1975]) and found.p[0] == 1 / 3
    assert np.isnan(found.value[1]) and found.at(1).why == "nothing varies in these activations"


def test_silhouettes_are_of_the_rows_with_a_state_with_and_without_some_sequences():
    rng = np.random.default_rng(4)
    n, per = 130, 2
    pool = pool_of(rng.standard_normal((n * per, 5)), n_scored=per)
    states = rng.integers(-1, 3, n * per)
    states[7] = 3  # a row alone in its state counts as 0
    clusters = make_clusters(pool, states, 19, rng)
    of_all, found = np.split(gather(pool.points[0], clusters), [len(clusters.states)])
    has_state = states >= 0
    assert of_all[0] == pytest.approx(silhouette_samples(pool.points[0][has_state], states[has_state]).mean())
    assert clusters.n_deleted > 1 and len(found) == clusters.n_units // clusters.n_deleted
    for group, without in zip(clusters.without, found, strict=True):
        gone = np.unique(pool.units[(group < 0) & (states >= 0)])
        assert len(gone) == clusters.n_deleted
        left = ~np.isin(pool.units, gone) & (states >= 0)
        assert without == pytest.approx(silhouette_samples(pool.points[0][left], states[left]).mean())


def exact(values, kind="distribution"):
    return ExactBelief(np.asarray(values, dtype=np.float64), kind, "made up")


def test_beliefs_have_a_most_likely_component_a_rank_and_a_kind():
    values = [[0.2, 0.5, 0.3], [0.4, 0.4, 0.2], [0.1, 0.2, 0.7], [1 / 3] * 3]
    assert exact(values).most_likely.tolist() == [1, -1, 2, -1]
    assert exact([[0.4, 0.4 + 1e-12, 0.2]]).most_likely.tolist() == [-1], "rounding is no lead"
    simplex = np.random.default_rng(0).dirichlet(np.ones(4), 30)
    assert exact(simplex).rank == 3 and exact(np.tile(simplex[0], (5, 1))).rank == 0
    line = np.column_stack([np.linspace(0, 1, 9), 1 - np.linspace(0, 1, 9), np.zeros(9)])
    assert exact(line).rank == 1 and exact(line).varies.tolist() == [True, True, False]
    predicted = np.array([[0.5, 0.51, 0.49], [2.0, -1.0, 0.5]])
    assert decoded(exact(np.eye(3)[:2], "set"), predicted).tolist() == [[0, 1, 0], [1, 0, 0]]
    np.testing.assert_array_equal(decoded(exact(predicted, "vector"), predicted), predicted)
    np.testing.assert_array_equal(decoded(exact(np.eye(3)[:2]), predicted), nearest_on_simplex(predicted))
    rng = np.random.default_rng(0)
    capture = synthetic_capture((Need("resid"),), Shape(n_prompts=50), posterior=rng.dirichlet(np.ones(4), 50))
    assert (ExactBelief.of(capture).kind, ExactBelief.of(capture).rank) == ("distribution", 3)
    assert ExactBelief.of(replace(capture, belief=np.eye(3)[np.arange(50) % 3])).kind == "distribution"
    taken = ExactBelief.of(replace(capture, belief=rng.integers(0, 2, (50, 3)).astype(float)))
    assert (taken.kind, taken.rank) == ("set", 3) and "latent" in taken.source


def test_axes_are_counted_up_to_the_share_that_is_asked_for():
    """Independent columns with variances of 80, 11, 5 and 4 per cent."""
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((40, 40)))[0]
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
    points = np.random.default_rng(3).standard_normal((len(states), 2))
    clusters = make_clusters(pool_of(points), np.array(states), 7, np.random.default_rng(4))
    assert clusters.reason == reason and clusters.n_units == sum(state >= 0 for state in states)
    found = gather(points, clusters)
    assert np.isnan(found).all() and len(found) == 8 + clusters.n_units


def test_states_are_taken_from_whole_sequences_up_to_a_limit_and_exchanged_whole():
    per = 7
    n = MAX_ROWS // per + 20
    pool = pool_of(np.random.default_rng(3).standard_normal((n * per, 2)), n_scored=per)
    states = np.random.default_rng(4).integers(0, 3, n * per)
    clusters = make_clusters(pool, states, 3, np.random.default_rng(5))
    code = pool.units[clusters.rows]
    assert MAX_ROWS - per < len(clusters.rows) <= MAX_ROWS and (np.bincount(code)[np.unique(code)] == per).all()
    np.testing.assert_array_equal(clusters.states[0], states[clusters.rows])
    whole = {tuple(x) for x in clusters.states[0].reshape(-1, per).tolist()}
    assert all(tuple(x) in whole for x in clusters.states[1:].reshape(-1, per).tolist())
    assert (clusters.states[0] >= 0).all() and clusters.reason == ""
    assert "fewer than two states" in make_clusters(pool, np.minimum(states, 0), 3, np.random.default_rng(5)).reason
    longer = pool_of(np.random.default_rng(3).standard_normal((4 * (MAX_ROWS + 1), 2)), n_scored=MAX_ROWS + 1)
    long = make_clusters(longer, np.arange(longer.rows.n_rows) % 2, 3, np.random.default_rng(5))
    assert len(long.rows) == 3 * (MAX_ROWS + 1), "where none is as short, three are taken"


def test_the_encoding_is_least_squares_on_all_folds_but_the_first():
    points = np.random.default_rng(10).standard_normal((50, 6)) + 5
    belief = np.random.default_rng(11).standard_normal((50, 2)) + 3
    _, setting = setting_of(points, belief)
    reading = read_belief(points, setting, np.random.default_rng(12))
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
    points = np.random.default_rng(17).standard_normal((n_rows, n_features))
    belief = np.random.default_rng(18).dirichlet(np.ones(2), n_rows)
    _, setting = setting_of(points, belief)
    parts = press(setting.folds, np.ones((len(points), 1)), points, setting.targets)
    assert (len(random_subspace_r2(setting.folds, parts, rank, 2, np.random.default_rng(19))) > 0) == has_draws


def test_everybody_has_another_donor_of_as_many_rows_asked_about_the_same_outcomes():
    units = np.repeat(np.arange(9), [3, 3, 2, 3, 3, 1, 3, 3, 3])
    alike = np.zeros((len(units), 2), dtype=np.int64)
    pairs = make_pairs(units, alike, np.array([0, 1, 2, 3, 4, 5]), np.random.default_rng(0))
    assert pairs.prompts.tolist() == [0, 1, 3, 4], "no other one has two rows, or one"
    assert (units[pairs.rows] == np.repeat(pairs.prompts, 3)).all()
    sources = units[pairs.source_rows].reshape(-1, 3)
    assert (np.ptp(sources, axis=1) == 0).all() and sorted(sources[:, 0]) == [0, 1, 3, 4]
    assert (sources[:, 0] != pairs.prompts).all()
    first = {u: np.flatnonzero(units == u)[0] for u in range(9)}
    assert [r - first[units[r]] for r in pairs.source_rows] == [0, 1, 2] * 4, "positions stay"
    units = np.arange(6)
    outcomes = np.array([[1, 2], [3, 4], [1, 2], [3, 4], [2, 1], [1, 2]])
    pairs = make_pairs(units, outcomes, units, np.random.default_rng(0))
    assert pairs.prompts.tolist() == [0, 1, 2, 3, 5], "nobody else is asked about 2 and 1, in this order"
    np.testing.assert_array_equal(outcomes[pairs.source_rows], outcomes[pairs.rows])


def test_swaps_give_the_donors_coordinates_in_orthonormal_subspaces():
    points, belief, _ = planted(n=50)
    shape = Shape(n_prompts=50, n_layers=1, d_model=D)
    resid = np.stack([np.ones_like(points), points])
    capture = synthetic_capture(PROBE.needs, shape, planted={"resid": resid}, posterior=belief)
    conditions = list(PROBE.conditions(capture))
    assert [c.name for c in conditions] == list(dict.fromkeys(c.name for c in conditions))
    assert len(conditions) == 1 + 4 + N_RANDOM, "the embedding never varies and is not swapped"
    assert conditions[0].name == BASELINE and conditions[0].edits == ()
    held = PROBE.analyse(capture, {}).arrays["held_out"]
    for condition in conditions[1:]:
        (edit,) = condition.edits
        assert condition.prompts.tolist() == held.tolist() and (edit.layer, edit.at) == (1, "scored")
        np.testing.assert_allclose(edit.axis @ edit.axis.T, np.eye(len(edit.axis)), atol=1e-9)
        assert len(edit.axis) == (D if condition.name.endswith("all") else 2)
    whole = next(c for c in conditions if c.name.endswith("all")).edits[0].values
    assert sorted(whole[:, 0]) == pytest.approx(sorted(points[held][:, 0])) and not np.allclose(whole, points[held])
    under = replace(capture.where(np.isin(capture.rows["prompt"], held)))
    read = conditions[0].read(under)
    log_q = restricted(under[Need("outcome_log_prob")])
    np.testing.assert_allclose(np.exp2(log_q).sum(axis=1), 1)
    np.testing.assert_allclose(read["own_kl"], kl_bits(belief[held], np.exp2(log_q)))


@pytest.mark.parametrize("change", [{"interchange": False}, {"sites": ("v",)}])
def test_swaps_can_be_left_out(change):
    _, belief, _ = planted(n=20)
    probe = replace(PROBE, **change)
    capture = synthetic_capture(probe.needs, Shape(n_prompts=20), posterior=belief)
    assert list(probe.conditions(capture)) == []
    assert "redirected" not in probe.analyse(capture, {}).scalars


def test_redirected_bits_turn_from_the_own_posterior_to_the_donors():
    units = np.repeat(np.arange(4), 2)
    pairs = make_pairs(units, np.zeros((8, 2), dtype=np.int64), np.arange(4), np.random.default_rng(0))
    own = np.linspace(0, 1, 8)
    under = {BASELINE: {"donor_kl": np.arange(8) + 3.0, "own_kl": own}}
    under["interchange at 2: encoding"] = {"donor_kl": np.arange(8) + 1.0, "own_kl": own + 1}
    under["interchange at 2: readout"] = {"donor_kl": np.full(8, 3.0), "own_kl": own}
    under["interchange at 2: principal"] = {"donor_kl": np.arange(8) + 2.5, "own_kl": own - 0.5}
    under["interchange at 2: all"] = under["interchange at 2: encoding"]
    for i in range(19):
        under[f"interchange at 2: random {i}"] = {"donor_kl": np.arange(8) + 3.0 - 0.1 * i, "own_kl": own}
    code = np.repeat(np.arange(4), 2)
    bits = {name: turned_bits(under[BASELINE], under[f"interchange at 2: {name}"], code) for name in SUBSPACES}
    assert bits["encoding"] == pytest.approx([1.5] * 4)
    assert bits["readout"] == pytest.approx([0.25, 1.25, 2.25, 3.25])
    assert bits["principal"] == pytest.approx([0.0] * 4), "nearer to both alike is no redirection"
    pool = pool_of(np.random.default_rng(0).standard_normal((8, 3)), n_scored=2)
    found = outcomes(under, pairs, pool, 20)[2, "encoding"]["redirected_bits"]
    assert found.value[0] == 1.5 and found.p[0] == 1 / 20, "no random subspace is above .9"
    assert found.null[0, 0] == pytest.approx(0.05 * np.arange(19).mean())


@pytest.mark.parametrize("n_components", [2, 3, 5])
def test_figures_say_how_to_read_them(n_components):
    points, belief, _ = planted(n=80, n_components=n_components)
    figures = PROBE.figures(world(points, belief))
    assert [f.name for f in figures] == ["simplex", "r2_by_site", "controls", "silhouette", "components"]
    drawn = {trace.name for trace in figures[0].plot.data}
    assert {f"state {i}" for i in range(n_components)} <= drawn
    assert ("xaxis2" in figures[0].plot.layout.to_plotly_json()) == (n_components > 2)
    assert "position alone" in {trace.name for trace in figures[2].plot.data}


def test_both_sides_of_the_simplex_have_one_scale_that_holds_every_point():
    points, belief, _ = planted(n=80, n_components=5)
    plot = PROBE.figures(world(points, belief))[0].plot
    assert (plot.layout.yaxis.scaleanchor, plot.layout.yaxis2.scaleanchor) == ("x", "x2")
    assert plot.layout.yaxis.scaleratio == plot.layout.yaxis2.scaleratio == 1
    for axis, other in (("xaxis", "xaxis2"), ("yaxis", "yaxis2")):
        low, high = plot.layout[axis].range
        assert plot.layout[other].range == (low, high) and plot.layout[axis].matches is None
        shown = np.concatenate([trace[axis[0]] for trace in plot.data])
        assert low < shown.min() < shown.max() < high


def test_the_plane_of_many_components_is_the_principal_one():
    points, belief, _ = planted(n=80, n_components=5)
    pool, setting = setting_of(points, belief)
    table = decoded_table(pool, setting, belief, capture_of(points, posterior=belief), np.random.default_rng(0))
    values = belief - belief.mean(axis=0)
    expected = np.linalg.svd(values, compute_uv=False)[:2]
    assert np.linalg.norm(table["exact_x"]) == pytest.approx(expected[0])
    assert np.linalg.norm(table["exact_y"]) == pytest.approx(expected[1])
    np.testing.assert_allclose(table["decoded_x"], table["exact_x"], atol=1e-9)


def test_the_surviving_set_is_what_no_earlier_pair_has_taken():
    task = load_entry("tunnel", "bijection")(V=5, L=6)
    drawn = task.sample(np.random.default_rng(0), 20)
    for tokens, belief in zip(drawn.tokens, drawn.belief, strict=True):
        for i, position in enumerate(drawn.scored):
            seen = {int(t) - 5 for t in tokens[: position + 1] if t >= 5}
            assert belief[i].tolist() == [float(v not in seen) for v in range(5)]


def test_a_distribution_moves_activations_along_finite_directions_and_is_swapped():
    """Three probabilities fill two dimensions: the third, rounding alone, must not be inverted."""
    model = interp.load("tunnel:mess3-gpt-neox")
    probe = Belief()
    base = interp.collect(model, sampled_prompts(model.task, 200, 0), list(probe.needs))
    setting = make_setting(Cloud.of(base, Need("resid")), ExactBelief.of(base), 1, 1, np.random.default_rng(0))
    encoding = read_belief(base[Need("resid")][-1], setting, np.random.default_rng(1)).encoding
    assert np.abs(encoding.sum(axis=0)).max() < 1e-6 * np.abs(encoding).max() < 1e3
    assert any(": encoding" in condition.name for condition in probe.conditions(base))
