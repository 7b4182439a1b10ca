"""SULA: readers whose answers are known, coordinates planted and absent, error rates, refusals, real models."""

from dataclasses import replace

import numpy as np
import pytest
from interp.probes.measures.answers import Answers
from interp.probes.measures.calibration import Slopes, calibration, kl_of_best_single
from interp.probes.measures.permutations import mean_bands, permutations_within, rearranged_within
from interp.probes.sula.movement import Halved, fit_axes, movement_of_halves
from interp.probes.sula.probe import Sula
from interp.probes.sula.quantities import QUANTITIES
from interp.probes.sula.tables import along_table, answers_table, by_condition_table, trajectory_table
from interp.prompts.evidence import draw_problems, evidence_columns, posterior
from sklearn.linear_model import Ridge

from interp.errors import InterpError, PromptError
from interp.information import entropy_bits, kl_bits
from interp.need import Need
from interp.statistics.resampling import bootstrap_weights
from interp.statistics.ridge import PENALTIES
from interp.testing import Shape, check_probe, synthetic_capture

SMALL = Sula(n_permutations=99, n_bootstrap=60)
OUTCOME = Need("outcome_log_prob")
KS = (0, 1, 2, 4, 8)


def world(reader, *, per_k=40, ks=KS, seed=0, values=None, conditions=("main",), needs=(OUTCOME,), mass=0.25):
    """A capture of SULA prompts on which `reader(log_odds, swapped, k, rng)` gives the log-odds of label 1 (bits).

    The word of token 3 is label 1, or label 2 where roles are swapped; `mass` is on both labels together.
    """
    rng = np.random.default_rng(seed)
    problems = draw_problems(ks, per_k, 0.9, rng)
    parts = []
    for condition in conditions:
        shown = problems.shown
        if condition == "shuffled":
            shown = np.where(shown >= 0, rng.integers(0, 2, shown.shape), -1)
        known = evidence_columns(shown, 0.9)
        parts.append(known | {"condition": np.full(len(problems), condition), "problem": np.arange(len(problems))})
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    swapped, exact = np.tile(problems.swapped, len(parts)), posterior(columns["log_odds_bits"])
    answered = posterior(reader(columns["log_odds_bits"], swapped, columns["k"], rng))
    planted = {"outcome_log_prob": np.log2(answered * mass)}
    if values is not None:
        planted["v"] = values(columns, rng)
    return synthetic_capture(
        needs, Shape(n_prompts=len(swapped)), planted=planted, columns=columns, posterior=exact,
        outcome_ids=np.where(swapped[:, None], [[7, 3]], [[3, 7]]), seed=seed,
    )  # fmt: skip


def bayes(log_odds, swapped, k, rng):
    return log_odds


def measured(capture, n_permutations=99, n_bootstrap=60):
    answers = Answers.of(capture, OUTCOME)
    rng = np.random.default_rng([0, 9])
    orders = permutations_within(answers.stratum, answers.cluster, n_permutations, rng)
    weights = bootstrap_weights(answers.cluster, answers.stratum, n_bootstrap, rng)
    return QUANTITIES.scalars(calibration(answers, orders, weights, capture.model.vocab_size))


def test_conformance():
    check_probe(SMALL, world(bayes, per_k=10, needs=SMALL.needs, conditions=("main", "shuffled")))
    columns = {"evidence": np.tile(np.arange(5), 30)}
    shape = Shape(n_prompts=30, n_scored=5, n_outcomes=4)
    check_probe(SMALL, synthetic_capture(SMALL.needs, shape, columns=columns))


def test_readers_have_the_skill_of_their_distribution():
    found = measured(world(bayes))
    assert found["slope"].value == pytest.approx(1) and found["label_bias"].value == pytest.approx(0, abs=1e-5)
    assert found["skill"].value == pytest.approx(1, abs=1e-5) and found["kl_skill"].value == pytest.approx(1, abs=1e-5)
    assert found["entropy_error"].value == pytest.approx(0, abs=1e-5)
    assert found["kl"].value == pytest.approx(0, abs=1e-5)
    assert found["entropy_correlation"].value == pytest.approx(1)
    assert found["outcome_mass"].value == pytest.approx(0.25)
    assert all(found[name].p == 0.01 for name in ("slope", "skill", "kl", "kl_skill", "entropy_error"))
    assert found["slope"].null.band[1] < 0.5
    even = measured(world(lambda x, s, k, rng: np.zeros(len(x)), per_k=400))
    assert even["kl_skill"].value == pytest.approx(0, abs=0.01)
    exact = Answers.of(world(bayes, per_k=400), OUTCOME).entropy_exact
    assert even["entropy_error"].value == pytest.approx((1 - exact).mean())
    p = np.zeros((80, 4))
    for i in range(80):
        p[i, : 1 + i % 4] = 1 / (1 + i % 4)
    found = measured(synthetic_capture((OUTCOME,), Shape(n_prompts=80), posterior=p))
    assert np.isnan(found["slope"].value) and "nothing to weigh" in found["slope"].null_reason


def test_nulls_of_shares_follow_from_those_of_their_errors():
    capture = world(bayes)
    found, answers = measured(capture), Answers.of(capture, OUTCOME)
    exact = answers.entropy_exact
    constants = {"kl": kl_of_best_single(answers).mean(), "entropy_error": np.abs(exact - np.median(exact)).mean()}
    for share, error in (("kl_skill", "kl"), ("skill", "entropy_error")):
        low, high = found[error].null.band
        expected = (1 - high / constants[error], 1 - low / constants[error])
        assert found[share].null.band == pytest.approx(expected)


@pytest.mark.parametrize(("weight", "bias"), [(0.5, 0.0), (1.0, 3.0), (2.0, -1.5)])
def test_weight_of_evidence_and_liking_for_a_word_are_told_apart(weight, bias):
    capture = world(lambda x, s, k, rng: weight * x + np.where(s, -bias, bias) + rng.normal(0, 0.3, len(x)))
    found = measured(capture)
    assert found["slope"].value == pytest.approx(weight, abs=0.03)
    assert found["label_bias"].value == pytest.approx(bias, abs=0.1)
    p, q = np.log2(capture.posterior), capture[OUTCOME]
    sign = np.where(capture.outcomes[:, 0] == 3, 1, -1)
    fit = np.polyfit(sign * (p[:, 0] - p[:, 1]), sign * (q[:, 0] - q[:, 1]), 1)
    assert found["slope"].value == pytest.approx(fit[0]) and found["label_bias"].value == pytest.approx(fit[1])
    for name in ("slope", "label_bias"):
        low, high = found[name].interval
        assert low < found[name].value < high


def many_outcomes(weight, n=60, n_scored=4, zero=False):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(5), n * n_scored)
    if zero:
        p[np.arange(len(p)), rng.integers(0, 5, len(p))] = 0
        p /= p.sum(axis=1, keepdims=True)
    log = weight * np.log2(p, out=np.full_like(p, -9.0), where=p > 0)
    q = np.exp2(log - np.logaddexp2.reduce(log, axis=1, keepdims=True))
    return synthetic_capture(
        (OUTCOME,), Shape(n_prompts=n, n_scored=n_scored), posterior=p, planted={"outcome_log_prob": np.log2(q)},
        columns={"evidence": np.tile(np.arange(n_scored), n)},
    )  # fmt: skip


@pytest.mark.parametrize("zero", [False, True])
def test_with_many_outcomes_the_slope_is_over_the_possible_ones(zero):
    capture = many_outcomes(0.7, zero=zero)
    found = measured(capture)
    assert found["slope"].value == pytest.approx(0.7, abs=1e-5) and found["slope"].p == 0.01
    assert np.isnan(found["label_bias"].value) and "one pair" in found["label_bias"].null_reason
    answers = Answers.of(capture, OUTCOME)
    x, y = [], []
    for p, q in zip(answers.posterior, answers.log_q, strict=True):
        x += (np.log2(p[p > 0]) - np.log2(p[p > 0]).mean()).tolist()
        y += (q[p > 0] - q[p > 0].mean()).tolist()
    assert Slopes(answers).value() == pytest.approx(np.dot(x, y) / np.dot(x, x))
    assert answers.excluded_mass.max() > 0 if zero else answers.excluded_mass.max() == 0
    assert np.isinf(answers.kl_reverse).all() if zero else np.isfinite(answers.kl_reverse).all()


def test_shuffled_labels_are_scored_for_both_readers():
    def noise_knower(log_odds, swapped, k, rng):
        return np.concatenate([log_odds[: len(k) // 2], np.zeros(len(k) // 2)])

    capture = world(noise_knower, needs=SMALL.needs, conditions=("main", "shuffled"), per_k=60)
    table = SMALL.analyse(capture, {}).to_frame("by_condition").set_index("condition")
    assert table.loc["shuffled", "error_noise_reader"] == pytest.approx(0, abs=1e-6)
    assert table.loc["shuffled", "kl_noise_reader"] == pytest.approx(0, abs=1e-6)
    assert table.loc["shuffled", "kl"] > 0.3 and table.loc["main", "kl"] == pytest.approx(0, abs=1e-5)
    assert table.loc["main", "kl_noise_reader"] > 0.3 and table.loc["main", "slope"] == pytest.approx(1)
    assert table.loc["main", "error_always_open"] == pytest.approx(0.637, abs=0.04)


ROWS = np.repeat([0, 1, 1, 2], 5), np.arange(20)
KINDS = np.repeat(np.arange(4), 6) + 10 * (np.tile(np.arange(6), 4) >= 4), np.tile(np.arange(6), 4)
"""Six units of four rows, two kinds of them."""


@pytest.mark.parametrize(("stratum", "unit", "reached"), [(*ROWS, {3: 5, 7: 10}), (*KINDS, {0: 4, 5: 2})])
def test_exchanges_move_whole_units_within_their_strata(stratum, unit, reached):
    orders = permutations_within(stratum, unit, 300, np.random.default_rng(0))
    assert (np.sort(orders, axis=1) == np.arange(len(unit))).all() and (stratum[orders] == stratum).all()
    for one in np.unique(unit):
        assert (np.ptp(unit[orders][:, unit == one], axis=1) == 0).all()
    assert {row: len(np.unique(orders[:, row])) for row in reached} == reached


def features(coordinate, rng):
    """Values whose one direction at one layer is the coordinate; noise elsewhere."""
    values = rng.normal(0, 0.3, (3, len(coordinate), 16))
    values[2, :, 5] += 3 * coordinate
    return values.reshape(3, len(coordinate), 2, 8)


def test_a_coordinate_that_moves_is_found_out_of_sample_at_its_layer():
    moving = lambda columns, rng: features(np.log2(1 + columns["k"]) + rng.normal(0, 0.2, len(columns["k"])), rng)  # noqa: E731
    capture = world(bayes, per_k=60, needs=SMALL.needs, values=moving)
    found = SMALL.analyse(capture, {})
    assert abs(found["movement"].value) > 0.9 and found["movement"].p == 0.01
    assert found["movement"].n == 300 and not found["movement"].underpowered
    assert abs(found["movement_after_first"].value) > 0.8 and found["movement_after_first"].n == 240  # of five amounts
    assert found["entropy_movement"].value > 0.5
    assert found["entropy_movement_within"].p > 0.05  # k tells it all
    table = found.to_frame("movement").query("first == 'in' and variable == 'evidence'")
    assert (table.query("layer < 2")["p"] > 0.05).all() and (table.query("layer == 2")["p"] == 0.01).all()
    assert abs(found.arrays["v.pc1.axis"][2, 5]) > 0.99 and abs(found.arrays["v.ridge.axis"][2, 5]) > 0.9
    path = found.to_frame("trajectories").query("axis == 'pc1'")["coordinate"].to_numpy()
    assert (np.diff(path) < 0).all()  # turned so that the exact entropy, which falls with k, rises along it


def test_every_condition_of_a_problem_is_of_one_cluster_whatever_is_named():
    capture = world(bayes, per_k=4, needs=SMALL.needs, conditions=("main", "shuffled"))
    named = capture.rows.with_column("cluster", np.arange(40) // 3 * 3, "index")
    answers = Answers.of(replace(capture, tables={**capture.tables, "scored": named}), OUTCOME)
    for one in np.unique(answers.unit):
        assert len(np.unique(answers.cluster[answers.unit == one])) == 1
    for one in np.unique(named["cluster"]):
        assert len(np.unique(answers.cluster[named["cluster"] == one])) == 1
    assert answers.n_clusters < answers.n_units == 20 and answers.resampled == "cluster"


@pytest.mark.parametrize("cluster", [np.arange(60) // 5, np.arange(60) % 7, np.minimum(np.arange(60) // 2, 20)])
def test_axes_are_judged_by_other_clusters_in_twenty_half_splits(cluster):
    answers = replace(Answers.of(world(bayes, per_k=12), OUTCOME), cluster=cluster)
    points = np.random.default_rng(0).normal(size=(1, 60, 6))
    halved = Halved.of(points, answers, np.ones(60, dtype=bool), np.random.default_rng(1))
    assert len(halved.held_out) == 20 and 0 < halved.held_out.mean() < 1
    for held_out, along in zip(halved.held_out, halved.coordinates, strict=True):
        assert not set(cluster[held_out]) & set(cluster[~held_out])
        from_mean = points[0] - points[0, ~held_out].mean(axis=0)
        by_hand = from_mean @ fit_axes(points, answers, ~held_out)[:, 0].T
        np.testing.assert_allclose(along[:, 0], (by_hand / by_hand[~held_out].std(axis=0)).T)
    unread = replace(halved, coordinates=np.where(halved.held_out[:, None, None], halved.coordinates, 9.0))
    everywhere, draws = np.ones(60, dtype=bool), np.random.default_rng
    one, other = (movement_of_halves(each, answers, everywhere, 19, draws(2)) for each in (halved, unread))
    assert all(np.array_equal(one[name].value, other[name].value, equal_nan=True) for name in one)
    by_hand = [np.mean([c[0, 0, 7] for c, j in zip(halved.coordinates, halved.held_out, strict=True) if j[7]])]
    assert halved.mean[0, 0, 7] == pytest.approx(by_hand[0])


def test_exchanges_move_whole_clusters_of_mixed_and_unequal_strata():
    rng = np.random.default_rng(0)
    cluster = np.concatenate([np.tile(np.arange(12), 4), rng.integers(0, 12, 42)])
    stratum = np.arange(90) // 12 % 2
    orders = permutations_within(stratum, cluster, 200, rng)
    assert (stratum[orders] == stratum).all() and (orders != np.arange(90)).any(axis=1).all()
    for one in range(12):
        given = cluster[orders][:, cluster == one]
        assert (given == given[:, :1]).all() and len(np.unique(given)) > 6


def test_what_prompts_without_evidence_alone_do_is_no_movement():
    """Their values lie elsewhere, whatever the others show."""
    shifted = lambda columns, rng: features((columns["k"] == 0) + rng.normal(0, 0.1, len(columns["k"])), rng)  # noqa: E731
    capture = world(bayes, per_k=40, needs=SMALL.needs, values=shifted, conditions=("main", "padded"))
    found = SMALL.analyse(capture, {})
    for name in ("movement", "movement_same_length", "entropy_movement"):
        assert found[name].standing() in ("above", "below") and found.standing(name) == "within", name
        assert abs(found[name].value) > 0.4 and abs(found[f"{name}_after_first"].value) < 0.3
    moving = world(
        bayes, per_k=40, needs=SMALL.needs, values=lambda columns, rng: features(np.log2(1 + columns["k"]), rng)
    )
    assert SMALL.analyse(moving, {}).standing("movement") == "below"


def test_prompts_that_all_hold_evidence_need_no_such_control():
    found = SMALL.analyse(world(bayes, ks=(1, 2, 4, 8), needs=SMALL.needs), {})
    assert "movement_after_first" not in found.scalars and not found.controls


@pytest.mark.parametrize("width", [6, 90], ids=["more rows", "more features"])
def test_axes_are_the_first_principal_one_and_ridge_with_the_penalty_of_left_out_clusters(width):
    """By singular vectors, and by fitting again without each cluster at every penalty."""
    answers = replace(Answers.of(world(bayes, per_k=12), OUTCOME), cluster=np.arange(60) // 3)
    rows = np.random.default_rng(2).normal(size=(60, width)) * np.geomspace(3, 0.3, width) + 5
    rows[:, 1] += answers.entropy_exact
    fitting = np.arange(60) % 6 < 3
    x, y, cluster = rows[fitting], answers.entropy_exact[fitting], answers.cluster[fitting]
    scale = np.square(np.linalg.svd(x - x.mean(axis=0))[1]).sum() / min(len(x) - 1, width)

    def left_out(penalty):
        out, ridge = [cluster == c for c in np.unique(cluster)], Ridge(alpha=penalty * scale)
        return sum(np.square(y[o] - ridge.fit(x[~o], y[~o]).predict(x[o])).sum() for o in out)

    best = Ridge(alpha=min(PENALTIES, key=left_out) * scale).fit(x, y).coef_
    expected = np.array([np.linalg.svd(x - x.mean(axis=0))[2][0], best])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    expected *= np.sign(expected @ (x - x.mean(axis=0)).T @ (y - y.mean()))[:, None]
    np.testing.assert_allclose(fit_axes(rows[None], answers, fitting)[:, 0], expected, atol=1e-9)


def test_a_common_trend_of_sequences_is_found():
    answers = Answers.of(many_outcomes(1.0, n=24, n_scored=6), OUTCOME)
    rng = np.random.default_rng(0)
    drift = (np.tile(np.arange(6.0), 24) + rng.normal(0, 2, 144))[None]
    halved = Halved(np.broadcast_to(drift, (20, 2, 1, 144)), np.ones((20, 144), dtype=bool))
    found = movement_of_halves(halved, answers, np.ones(144, dtype=bool), 99, rng)["evidence"]
    one_by_one = [np.corrcoef(np.argsort(np.argsort(x)), np.arange(6))[0, 1] for x in drift.reshape(24, 6)]
    assert found.value[0] == pytest.approx(np.mean(one_by_one))


def test_prompts_that_cannot_be_read_are_refused():
    capture = synthetic_capture((Need("v"),), Shape(n_prompts=20))
    capture = replace(capture, arrays={**capture.arrays, OUTCOME: {"rows": np.zeros((20, 0))}})
    with pytest.raises(PromptError, match="these prompts have none"):
        SMALL.analyse(capture, {})
    capture = world(bayes, needs=SMALL.needs)
    broken = np.full(capture[OUTCOME].shape, -np.inf)
    with pytest.raises(InterpError, match="zero or no numbers"):
        SMALL.analyse(replace(capture, arrays={**capture.arrays, OUTCOME: {"rows": broken}}), {})
    with pytest.raises(PromptError, match="make no halves"):
        SMALL.analyse(synthetic_capture(SMALL.needs, Shape(n_prompts=3)), {})


def test_the_best_single_answers_are_those_by_hand():
    p = np.array([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0], [0.2, 0.3, 0.5], [0.4, 0.1, 0.5]])
    outcomes = np.array([[1, 2, 3], [1, 2, 3], [4, 5, 6], [4, 5, 6]])
    found = kl_of_best_single(answered(p, np.full((4, 3), 1 / 3), outcomes))
    means = np.repeat([[0.375, 0.625, 0.0], [0.3, 0.2, 0.5]], 2, axis=0)
    np.testing.assert_allclose(found, kl_bits(p, means))


def answered(posterior, q, outcomes=None, condition=None, evidence=None, unit=None):
    """Answers of a model that gives these probabilities, half of its mass on the outcomes."""
    p, n = np.asarray(posterior, dtype=np.float64), len(posterior)
    unit = np.arange(n) if unit is None else np.asarray(unit)
    return Answers(
        p, np.log2(np.asarray(q) / 2), np.tile(np.arange(p.shape[1]), (n, 1)) if outcomes is None else outcomes,
        np.full(n, "main") if condition is None else np.asarray(condition),
        np.zeros(n) if evidence is None else np.asarray(evidence, dtype=np.float64),
        np.zeros(n, dtype=np.int64), unit, unit, None, "k", "observations",
        "problem",
    )  # fmt: skip


def pairs(n=8, seed=0):
    rng = np.random.default_rng(seed)
    p, q = rng.uniform(0.1, 0.9, (2, n))
    outcomes = np.where(np.arange(n)[:, None] % 2, [[1, 2]], [[5, 9]])
    return answered(np.stack([p, 1 - p], axis=1), np.stack([q, 1 - q], axis=1), outcomes)


def test_slopes_of_resamples_are_regressions_with_an_intercept_for_each_pair():
    answers = pairs()
    x, y = (np.log2(z[:, 0] / z[:, 1]) for z in (answers.posterior, np.exp2(answers.log_q)))
    weights = np.random.default_rng(1).multinomial(8, np.full(8, 1 / 8), 20)
    weights[0] = [3, 0, 2, 0, 1, 0, 2, 0]  # one of the pairs is not drawn
    slopes = Slopes(answers)
    for w, found in zip(weights, slopes.resampled(weights), strict=True):
        rows = np.repeat(np.arange(8), w)
        design = np.column_stack([x[rows], rows % 2 == 0, rows % 2 == 1])
        assert found == pytest.approx(np.linalg.lstsq(design, y[rows], rcond=None)[0][0])
    everything = np.column_stack([x, np.arange(8) % 2 == 0, np.arange(8) % 2])
    assert slopes.value() == pytest.approx(np.linalg.lstsq(everything, y, rcond=None)[0][0])
    assert slopes.is_pair and not slopes.is_one_pair
    alone = Slopes(answered(answers.posterior, np.exp2(answers.log_q) * 2))
    assert alone.is_one_pair
    for w, found in zip(weights, alone.intercept(weights.astype(float)), strict=True):
        assert found == pytest.approx(np.polyfit(x, y, 1, w=np.sqrt(w))[1])


def test_calibration_resamples_problems_with_their_means():
    answers = pairs(24, seed=3)
    rng = np.random.default_rng(4)
    weights = rng.multinomial(24, np.full(24, 1 / 24), 60)
    weights[:, 0] += 3  # resamples of unequal size are means too
    orders = np.vstack([[rng.permutation(24) for _ in range(9)], rng.integers(24, size=(10, 24))])  # rows over again
    found = QUANTITIES.scalars(calibration(answers, orders, weights, 100))
    error = np.abs(answers.entropy_model - answers.entropy_exact)
    for name, values in (("entropy_error", error), ("kl", answers.kl), ("outcome_mass", np.full(24, 0.5))):
        drawn = [np.average(values, weights=w) for w in weights]
        low, high = np.quantile(drawn, [0.025, 0.975])
        assert found[name].value == pytest.approx(values.mean())
        assert found[name].interval == pytest.approx((min(low, values.mean()), max(high, values.mean())))
    assert found["outcome_mass"].null.value == 2 / 100
    permuted = [np.abs(answers.entropy_model - answers.entropy_exact[o]).mean() for o in orders]
    assert found["entropy_error"].null.value == pytest.approx(np.mean(permuted))
    assert found["entropy_error"].p == pytest.approx((1 + (np.array(permuted) <= error.mean()).sum()) / 20)
    kl = [np.mean(kl_bits(answers.posterior[o], np.exp2(answers.log_restricted))) for o in orders]
    assert found["kl"].null.value == pytest.approx(np.mean(kl))
    constant = np.abs(np.median(answers.entropy_exact) - answers.entropy_exact)
    assert found["skill"].value == pytest.approx(1 - error.sum() / constant.sum())
    assert found["kl_skill"].value == pytest.approx(1 - answers.kl.sum() / kl_of_best_single(answers).sum())
    correlation = np.corrcoef(answers.entropy_exact, answers.entropy_model)[0, 1]
    assert found["entropy_correlation"].value == pytest.approx(correlation)
    exchanged = [np.corrcoef(answers.entropy_exact[o], answers.entropy_model)[0, 1] for o in orders]
    assert found["entropy_correlation"].null.value == pytest.approx(np.mean(exchanged))


def test_an_exact_entropy_that_never_varies_has_no_correlation():
    answers = answered(np.tile([0.3, 0.7], (8, 1)), np.exp2(pairs().log_q) * 2)
    orders, weights = np.array([np.arange(8)[::-1]] * 19), np.ones((3, 8), dtype=np.int64)
    correlation = QUANTITIES.scalar(
        "entropy_correlation", calibration(answers, orders, weights, 100)["entropy_correlation"]
    )
    assert np.isnan(correlation.value) and correlation.null_reason == "one of the two entropies never varies"


def test_orders_within_units_are_all_as_likely_and_bands_are_of_weighted_means():
    alone = rearranged_within(np.arange(3), np.arange(3), 600, np.random.default_rng(6))
    assert len(np.unique(alone, axis=0)) == 6 and np.unique(alone, axis=0, return_counts=True)[1].min() > 60
    units = np.array([4, 7, 4, 7, 4])
    within = rearranged_within(units, units, 600, np.random.default_rng(7))
    assert (units[within] == units).all() and len(np.unique(within, axis=0)) == 12
    values = np.random.default_rng(8).standard_normal((2, 5))
    bands = mean_bands(values, units, 400, np.random.default_rng(9))
    ends = [values[:, units == 4].mean(axis=1), values[:, units == 7].mean(axis=1)]
    np.testing.assert_allclose(bands, [np.minimum(*ends), np.maximum(*ends)])


@pytest.mark.slow
def test_layers_that_are_silent_and_values_that_follow_entropy_are_told():
    points = np.random.default_rng(10).standard_normal((2, 12, 4))
    points[0] = 3.0
    answers = pairs(12, seed=11)
    coordinates = Halved.of(points, answers, np.arange(12) < 12, np.random.default_rng(0)).coordinates
    assert not coordinates[:, :, 0].any() and np.isfinite(coordinates).all() and coordinates[:, :, 1].any()
    assert not fit_axes(points, answers, np.arange(12) < 6)[:, 0].any()
    flat = lambda columns, rng: features(rng.normal(size=len(columns["k"])), rng)  # noqa: E731
    found = SMALL.analyse(world(bayes, per_k=60, needs=SMALL.needs, values=flat), {})
    for name in ("movement", "movement_after_first", "entropy_movement", "entropy_movement_within"):
        low, high = found[name].null.band
        assert found[name].p > 0.05 and low < found[name].value < high
    still = lambda columns, rng: np.ones((3, len(columns["k"]), 2, 8))  # noqa: E731
    found = SMALL.analyse(world(bayes, needs=SMALL.needs, values=still), {})
    assert np.isnan(found["movement"].value) and "never varies" in found["movement"].null_reason


def two_conditions():
    p = pairs(12, seed=12).posterior
    q = np.exp2(pairs(12, seed=13).log_q) * 2
    condition, evidence = np.repeat(["main", "padded"], 6), np.tile([0, 1, 1, 2, 2, 2], 2)
    return answered(p, q, condition=condition, evidence=evidence, unit=np.tile(np.arange(6), 2))


def test_the_table_of_conditions_has_means_of_their_own_rows():
    answers = two_conditions()
    named = {name: answers.where(answers.condition == name) for name in ("main", "padded")}
    found = {
        name: calibration(mine, np.array([np.arange(6)] * 19), np.ones((20, 6), dtype=np.int64), 50)
        for name, mine in named.items()
    }
    table = by_condition_table(answers, found)
    for i, (condition, mine) in enumerate(named.items()):
        q = np.exp2(mine.log_restricted)
        assert (table["condition"][i], table["n"][i]) == (condition, 6)
        assert table["kl_reverse"][i] == pytest.approx(kl_bits(q, mine.posterior).mean())
        exact = entropy_bits(mine.posterior)
        for name, constant in (
            ("mean_constant", exact.mean()),
            ("best_constant", np.median(exact)),
            ("always_open", 1.0),
        ):
            assert table[f"error_{name}"][i] == pytest.approx(np.abs(constant - exact).mean())
        assert table["excluded_mass"][i] == 0 and np.isnan(table["kl_noise_reader"][i])
    impossible = answered([[1.0, 0.0], [0.5, 0.5]], [[0.75, 0.25], [0.5, 0.5]])
    row = by_condition_table(impossible, {"main": found["main"]})
    assert np.isnan(row["kl_reverse"][0]) and row["excluded_mass"][0] == pytest.approx(0.125)


def test_tables_along_the_evidence_hold_means_of_their_condition_and_amount():
    answers, rng = two_conditions(), np.random.default_rng(14)
    coordinate = rng.standard_normal(12)
    along = along_table(answers, 30, np.random.default_rng(0))
    path = trajectory_table({"pc1": coordinate}, answers, 400, 30, np.random.default_rng(0))
    cells = [(c, a) for c in ("main", "padded") for a in (0, 1, 2)]
    assert list(zip(along["condition"], along["evidence"], strict=True)) == cells
    for i, (condition, amount) in enumerate(cells):
        at = (answers.condition == condition) & (answers.evidence == amount)
        mine = answers.where(at)
        error = mine.entropy_model - mine.entropy_exact
        of_condition = entropy_bits(answers.posterior[answers.condition == condition])
        expected = {
            "n": at.sum(), "bayes_entropy": mine.entropy_exact.mean(), "model_entropy": mine.entropy_model.mean(),
            "residual": error.mean(), "error": np.abs(error).mean(), "kl": mine.kl.mean(), "outcome_mass": 0.5,
            "error_best_constant": np.abs(np.median(of_condition) - mine.entropy_exact).mean(),
        }  # fmt: skip
        assert {name: along[name][i] for name in expected} == pytest.approx(expected)
        assert along["kl_low"][i] <= along["kl"][i] <= along["kl_high"][i]
        row = path.where((path["condition"] == condition) & (path["evidence"] == amount))
        assert (row["n"][0], row["coordinate"][0]) == (at.sum(), pytest.approx(coordinate[at].mean()))
        every = coordinate[answers.condition == condition]
        error_of_null = every.std() / np.sqrt(at.sum() * 400)
        assert row["coordinate_null"][0] == pytest.approx(every.mean(), abs=5 * error_of_null)
        assert row["coordinate_null_low"][0] <= row["coordinate_null"][0] <= row["coordinate_null_high"][0]


@pytest.mark.parametrize(
    ("posterior", "has_odds"), [([[0.8, 0.2], [0.5, 0.5]], True), ([[1.0, 0.0], [0.5, 0.5]], False)]
)
def test_log_odds_are_listed_where_both_outcomes_are_possible(posterior, has_odds):
    capture = synthetic_capture((OUTCOME,), Shape(n_prompts=2), posterior=np.array(posterior))
    answers = Answers.of(capture, OUTCOME)
    table = answers_table(answers, capture)
    assert ("exact_log_odds" in table) == has_odds
    if has_odds:
        np.testing.assert_allclose(table["exact_log_odds"], [2, 0], atol=1e-12)
        np.testing.assert_allclose(table["model_log_odds"], answers.log_q[:, 0] - answers.log_q[:, 1])
    np.testing.assert_allclose(table["kl"], answers.kl)
