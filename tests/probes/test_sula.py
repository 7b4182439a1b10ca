"""SULA: readers whose answers are known, coordinates planted and absent, error rates, refusals, real models."""

from dataclasses import replace

import numpy as np
import pytest

import interp
from interp.errors import InterpError, PromptError, UsageError
from interp.information import entropy_bits, kl_bits
from interp.need import Need
from interp.testing import Shape, check_probe, synthetic_capture
from probes.measures.sula_answers import Answers
from probes.measures.sula_calibration import Resamples, Slopes, calibration
from probes.measures.sula_movement import fit_axes, movement
from probes.measures.sula_resampling import exchange_within, rearranged_within, resampled_correlations
from probes.sula import Sula
from prompts.evidence import draw_problems, evidence_columns, evidence_of_one, posterior

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


def measured(capture, n_permutations=99, n_bootstrap=60, seed=0):
    answers = Answers.of(capture, OUTCOME)
    rng = np.random.default_rng([seed, 9])
    return calibration(answers, Resamples.of(answers, n_permutations, n_bootstrap, rng), capture.model.vocab_size)


def test_conformance():
    check_probe(SMALL)
    check_probe(SMALL, world(bayes, needs=SMALL.needs, conditions=("main", "shuffled")))


def test_conformance_on_sequences():
    columns = {"evidence": np.tile(np.arange(5), 30)}
    shape = Shape(n_prompts=30, n_scored=5, n_outcomes=4)
    check_probe(SMALL, synthetic_capture(SMALL.needs, shape, columns=columns))


def test_a_bayesian_reader_has_slope_one_and_full_skill():
    found = measured(world(bayes))
    assert found["slope"].value == pytest.approx(1) and found["label_bias"].value == pytest.approx(0, abs=1e-5)
    assert found["skill"].value == pytest.approx(1, abs=1e-5) and found["kl_skill"].value == pytest.approx(1, abs=1e-5)
    assert found["entropy_error"].value == pytest.approx(0, abs=1e-5)
    assert found["kl"].value == pytest.approx(0, abs=1e-5)
    assert found["entropy_correlation"].value == pytest.approx(1)
    assert found["outcome_mass"].value == pytest.approx(0.25)
    assert all(found[name].p == 0.01 for name in ("slope", "skill", "kl", "kl_skill", "entropy_error"))
    assert found["slope"].null.band[1] < 0.5


def test_a_constant_reader_has_no_skill():
    capture = world(bayes)
    answers = Answers.of(capture, OUTCOME)
    median = float(np.median(answers.entropy_exact))
    grid = np.linspace(0, 12, 200_001)
    odds = grid[np.argmin(np.abs(entropy_bits(posterior(grid)) - median))]
    found = measured(world(lambda x, s, k, rng: np.where(s, -odds, odds)))
    assert found["skill"].value == pytest.approx(0, abs=1e-4) and found["skill"].p > 0.05
    assert found["slope"].value == pytest.approx(0, abs=1e-6) and found["slope"].p > 0.05
    assert found["label_bias"].value == pytest.approx(odds, abs=1e-4)
    assert found["kl_skill"].value < 0
    assert np.isnan(found["entropy_correlation"].value) and "never varies" in found["entropy_correlation"].null_reason


def test_the_best_single_distribution_has_no_kl_skill():
    even = measured(world(lambda x, s, k, rng: np.zeros(len(x)), per_k=400))
    assert even["kl_skill"].value == pytest.approx(0, abs=0.01)
    exact = Answers.of(world(bayes, per_k=400), OUTCOME).entropy_exact
    assert even["entropy_error"].value == pytest.approx((1 - exact).mean())


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


def test_numbers_are_their_definitions():
    capture = world(lambda x, s, k, rng: 0.6 * x + rng.normal(0, 1, len(x)), seed=4)
    found, p = measured(capture), capture.posterior
    q = np.exp2(capture[OUTCOME].astype(np.float64))
    q /= q.sum(axis=1, keepdims=True)
    exact, model = entropy_bits(p), entropy_bits(q)
    error = np.abs(model - exact).mean()
    assert found["entropy_error"].value == pytest.approx(error)
    assert found["skill"].value == pytest.approx(1 - error / np.abs(np.median(exact) - exact).mean())
    assert found["kl"].value == pytest.approx(kl_bits(p, q).mean())
    ordered = np.take_along_axis(p, np.argsort(capture.outcomes, axis=1), axis=1)
    single = kl_bits(ordered, np.broadcast_to(ordered.mean(axis=0), p.shape)).mean()
    assert found["kl_skill"].value == pytest.approx(1 - kl_bits(p, q).mean() / single)
    assert found["entropy_correlation"].value == pytest.approx(np.corrcoef(exact, model)[0, 1])


def many_outcomes(weight, seed=0, n=60, alpha=1.0, n_scored=4, zero=False):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(5, alpha), n * n_scored)
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


def test_even_odds_have_no_slope_and_say_so():
    p = np.zeros((80, 4))
    for i in range(80):
        p[i, : 1 + i % 4] = 1 / (1 + i % 4)
    found = measured(synthetic_capture((OUTCOME,), Shape(n_prompts=80), posterior=p))
    assert np.isnan(found["slope"].value) and "nothing to weigh" in found["slope"].null_reason


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


def brute_exchanges(stratum, unit, orders):
    """Whether every order moves whole units onto units of the same strata."""
    for order in orders:
        assert sorted(order) == list(range(len(unit)))
        assert (stratum[order] == stratum).all()
        for one in np.unique(unit):
            assert len(set(unit[order][unit == one])) == 1


def test_exchanges_keep_strata_and_units():
    rng = np.random.default_rng(0)
    stratum, unit = np.repeat([0, 1, 1, 2], 5), np.arange(20)
    orders = exchange_within(stratum, unit, 300, rng)
    brute_exchanges(stratum, unit, orders)
    assert len(np.unique(orders[:, 3])) == 5 and len(np.unique(orders[:, 7])) == 10
    unit = np.tile(np.arange(6), 4)  # six units of four rows, two kinds of them
    stratum = np.repeat(np.arange(4), 6) + 10 * (unit >= 4)
    orders = exchange_within(stratum, unit, 300, rng)
    brute_exchanges(stratum, unit, orders)
    assert len(np.unique(orders[:, 0])) == 4 and len(np.unique(orders[:, 5])) == 2
    inside = rearranged_within(unit, 300, rng)
    assert (unit[inside] == unit).all() and len(np.unique(inside[:, 0])) == 4


def test_resampled_correlations_repeat_rows():
    rng = np.random.default_rng(0)
    x, y, weights = rng.normal(size=(2, 12)), rng.normal(size=12), rng.multinomial(12, np.full(12, 1 / 12), 20)
    found = resampled_correlations(x, y, weights)
    for i, w in enumerate(weights):
        rows = np.repeat(np.arange(12), w)
        for j in range(2):
            assert found[j, i] == pytest.approx(np.corrcoef(x[j, rows], y[rows])[0, 1])


def features(coordinate, rng, n_layers=3, noise=0.3, layer=2):
    """Values whose one direction at one layer is the coordinate; noise elsewhere."""
    values = rng.normal(0, noise, (n_layers, len(coordinate), 16))
    values[layer, :, 5] += 3 * coordinate
    return values.reshape(n_layers, len(coordinate), 2, 8)


def test_a_coordinate_that_moves_is_found_out_of_sample_at_its_layer():
    moving = lambda columns, rng: features(np.log2(1 + columns["k"]) + rng.normal(0, 0.2, len(columns["k"])), rng)  # noqa: E731
    capture = world(bayes, per_k=60, needs=SMALL.needs, values=moving)
    found = SMALL.analyse(capture, {})
    assert abs(found["movement"].value) > 0.9 and found["movement"].p == 0.01
    assert found["movement"].n == 150 and not found["movement"].underpowered
    assert abs(found["movement_after_first"].value) > 0.8
    assert found["entropy_movement"].value > 0.5
    assert found["entropy_movement_within"].p > 0.05  # k tells it all
    table = found.to_frame("movement").query("what == 'values' and first == 'in' and variable == 'evidence'")
    assert (table.query("layer < 2")["p"] > 0.05).all() and (table.query("layer == 2")["p"] == 0.01).all()
    assert abs(found.arrays["v.pc1.axis"][2, 5]) > 0.99 and abs(found.arrays["v.ridge.axis"][2, 5]) > 0.9
    path = found.to_frame("trajectories").query("axis == 'pc1'")["coordinate"].to_numpy()
    assert (np.diff(path) < 0).all()  # turned so that the exact entropy, which falls with k, rises along it


def test_a_coordinate_that_follows_entropy_beyond_k_is_found_within_k():
    told = lambda columns, rng: features(columns["bayes_entropy_bits"], rng, noise=0.2)  # noqa: E731
    found = SMALL.analyse(world(bayes, per_k=60, needs=SMALL.needs, values=told), {})
    assert found["entropy_movement_within"].p == 0.01 and found["entropy_movement_within"].value > 0.2
    assert found["entropy_movement"].value > 0.7


def test_a_flat_coordinate_is_null():
    flat = lambda columns, rng: features(rng.normal(size=len(columns["k"])), rng)  # noqa: E731
    found = SMALL.analyse(world(bayes, per_k=60, needs=SMALL.needs, values=flat), {})
    for name in ("movement", "movement_after_first", "entropy_movement", "entropy_movement_within"):
        low, high = found[name].null.band
        assert found[name].p > 0.05 and low < found[name].value < high


def test_values_that_never_vary_are_undefined():
    still = lambda columns, rng: np.ones((3, len(columns["k"]), 2, 8))  # noqa: E731
    found = SMALL.analyse(world(bayes, needs=SMALL.needs, values=still), {})
    assert np.isnan(found["movement"].value) and "never varies" in found["movement"].null_reason


def test_axes_are_fitted_on_the_fitting_rows_alone():
    answers = Answers.of(world(bayes), OUTCOME)
    points = np.random.default_rng(0).normal(size=(2, len(answers), 6))
    fitting = np.arange(len(answers)) % 2 == 0
    spoilt = np.where(fitting[:, None], points, 1e6)
    one, other = (fit_axes(x, answers, fitting) for x in (points, spoilt))
    np.testing.assert_array_equal(one.directions, other.directions)
    scores = one.coordinates(points)[:, :, fitting]
    np.testing.assert_allclose(scores.std(axis=-1), 1)
    np.testing.assert_allclose(scores.mean(axis=-1), 0, atol=1e-12)


def test_prompts_that_an_axis_was_fitted_on_do_not_judge_it():
    """Sixteen features of noise and thirty fitting prompts: in its own half ridge finds a correlation every time."""
    probe = replace(SMALL, axis="ridge", n_bootstrap=20)
    found = [probe.analyse(world(bayes, per_k=12, seed=seed, needs=SMALL.needs), {}) for seed in range(12)]
    assert sum(f["entropy_movement"].p <= 0.05 for f in found) <= 3
    assert abs(np.mean([f["entropy_movement"].value for f in found])) < 0.15  # in-sample about 0.4


@pytest.mark.slow
def test_readers_of_k_alone_are_called_at_the_nominal_rate():
    """Answers that depend on how much was shown, not on what; with a liking for a word that grows with k."""
    called = dict.fromkeys(("slope", "kl", "kl_skill", "skill", "entropy_error"), 0)
    for seed in range(200):
        capture = world(
            lambda x, s, k, rng: np.where(s, -1.0, 1.0) * k + rng.normal(0, 1 + k, len(x)), per_k=12, seed=seed
        )
        found = measured(capture, n_bootstrap=20, seed=seed)
        for name in called:
            called[name] += found[name].p <= 0.05
    assert all(1 <= count <= 20 for count in called.values()), called  # 10 ± 3 standard deviations


@pytest.mark.slow
def test_movement_of_noise_is_called_at_the_nominal_rate():
    """Over all places; `entropy_within` of coordinates that follow k alone."""
    n, called = 150, dict.fromkeys(("evidence", "entropy", "entropy_within"), 0)
    for seed in range(n):
        answers = Answers.of(world(bayes, per_k=10, seed=seed), OUTCOME)
        rng = np.random.default_rng([seed, 5])
        noise = rng.normal(size=(4, len(answers)))
        found = movement(noise, answers, 99, 20, rng)
        for name in ("evidence", "entropy"):
            called[name] += np.nanmin(found[name].p) <= 0.05
        found = movement(noise + 2 * answers.evidence, answers, 99, 20, rng)
        called["entropy_within"] += np.nanmin(found["entropy_within"].p) <= 0.05
    assert all(1 <= count <= 16 for count in called.values()), called  # 7.5 ± 3 standard deviations


def test_trends_of_random_walks_are_called_at_the_nominal_rate():
    """Sequences whose coordinate wanders with no common direction, and a posterior that follows position."""
    n, called = 150, {"evidence": 0, "entropy_within": 0}
    for seed in range(n):
        answers = Answers.of(many_outcomes(1.0, seed=seed, n=24, n_scored=6), OUTCOME)
        rng = np.random.default_rng([seed, 6])
        walks = rng.normal(size=(3, 24, 6)).cumsum(axis=2).reshape(3, -1)
        found = movement(walks, answers, 99, 20, rng)
        for name in called:
            called[name] += np.nanmin(found[name].p) <= 0.05
    assert all(1 <= count <= 16 for count in called.values()), called


def test_a_common_trend_of_sequences_is_found():
    answers = Answers.of(many_outcomes(1.0, n=24, n_scored=6), OUTCOME)
    rng = np.random.default_rng(0)
    drift = (np.tile(np.arange(6.0), 24) + rng.normal(0, 2, 144))[None]
    found = movement(drift, answers, 99, 99, rng)["evidence"]
    one_by_one = [np.corrcoef(np.argsort(np.argsort(x)), np.arange(6))[0, 1] for x in drift.reshape(24, 6)]
    assert found.rho[0] == pytest.approx(np.mean(one_by_one)) and found.p[0] == 0.01


@pytest.mark.slow
def test_intervals_cover_and_the_whole_probe_calls_nothing_in_nothing():
    covered, called, n = 0, {"movement": 0, "entropy_movement_within": 0, "slope": 0}, 100
    for seed in range(n):
        capture = world(lambda x, s, k, rng: 0.7 * x + rng.normal(0, 2, len(x)), per_k=30, seed=seed, needs=SMALL.needs)
        low, high = measured(capture, n_bootstrap=300)["slope"].interval
        covered += low <= 0.7 <= high
        idle = world(lambda x, s, k, rng: rng.normal(0, 2, len(x)), per_k=12, seed=seed, needs=SMALL.needs)
        found = replace(SMALL, n_bootstrap=20, seed=seed).analyse(idle, {})
        for name in called:
            called[name] += found[name].p <= 0.05
    assert covered >= 88, covered
    assert max(called.values()) <= 12, called


def test_prompts_without_a_posterior_are_refused():
    capture = synthetic_capture((Need("v"), Need("pattern_entropy")), Shape(n_prompts=20))
    capture = replace(capture, arrays={**capture.arrays, OUTCOME: {"rows": np.zeros((20, 0))}})
    with pytest.raises(PromptError, match="these prompts carry none"):
        SMALL.analyse(capture, {})


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"n_permutations": 3}, "chance alone"), ({"n_bootstrap": 3}, "chance alone"), ({"layer": 3}, "layers 0 to 2")],
)
def test_bad_parameters_are_refused(changes, words):
    with pytest.raises(UsageError, match=words):
        replace(SMALL, **changes).analyse(world(bayes, needs=SMALL.needs), {})


def test_probabilities_of_zero_and_too_few_prompts_are_refused():
    capture = world(bayes, needs=SMALL.needs)
    broken = np.full(capture[OUTCOME].shape, -np.inf)
    with pytest.raises(InterpError, match="zero or no numbers"):
        SMALL.analyse(replace(capture, arrays={**capture.arrays, OUTCOME: {"rows": broken}}), {})
    with pytest.raises(PromptError, match="make no halves"):
        SMALL.analyse(synthetic_capture(SMALL.needs, Shape(n_prompts=3)), {})


def test_few_prompts_are_underpowered():
    found = SMALL.analyse(world(bayes, per_k=3, needs=SMALL.needs), {})
    assert all(scalar.underpowered for scalar in found.scalars.values())


def test_on_a_language_model(stories):
    record = interp.run(str(stories), probes=[SMALL], prompts="sula", n_pool=420, out=None, quiet=True)
    found = record.findings["sula"]
    assert len(set(found.tables["by_condition"]["condition"])) == 7
    assert 0 < found["outcome_mass"].value < 0.1 and found["slope"].value < 0.5  # a 260K model of stories
    assert found["slope"].n == 60 and found["movement"].underpowered
    assert found["attention_movement"].value > 0.8 and "movement_same_length" in found.scalars
    assert {figure.name for figure in SMALL.figures(found)} >= {"trajectory_pc1", "entropy", "calibration", "log_odds"}


def test_worked_steps_on_a_language_model(stories):
    record = interp.run(str(stories), probes=[SMALL], prompts="steps", n_pool=240, out=None, quiet=True)
    found = record.findings["sula"]
    table = found.to_frame("along_evidence")
    assert set(table["condition"]) == {"worked", "filler", "shuffled"} and set(table["evidence"]) == {0, 1, 2, 4}
    assert found.tables["along_evidence"].units["evidence"] == "steps"
    exact = table.groupby("condition")["bayes_entropy"].agg(["min", "max"])
    assert np.allclose(exact["min"], exact["max"])  # steps bring no evidence
    none = table.query("evidence == 0")["kl"]
    assert np.ptp(none) < 1e-4  # without steps the three kinds are one text


def test_on_the_shipped_tunnel_the_trajectory_is_the_posterior():
    found = interp.run(probes=[SMALL], n_pool=60, out=None, quiet=True).findings["sula"]
    assert found["skill"].value > 0.98 and found["kl"].value < 0.01 and found["kl"].p == 0.01
    assert found["outcome_mass"].value > 0.999 and found["entropy_correlation"].value > 0.999
    assert "nothing to weigh" in found["slope"].null_reason  # the posterior is even over what is left
    assert found["slope"].n_unit == "sequence"
    along = found.to_frame("along_evidence")
    assert along["bayes_entropy"].iloc[0] == pytest.approx(np.log2(10)) and len(along) == 12


def test_the_weight_of_one_example_is_what_the_slope_counts_in():
    assert evidence_of_one(0.9) == pytest.approx(3.17, abs=0.001)
    capture = world(lambda x, s, k, rng: 0.5 * x)
    k_1 = capture.rows["n_1"] - capture.rows["n_2"]
    q = capture[OUTCOME]
    assert np.polyfit(k_1, q[:, 0] - q[:, 1], 1)[0] == pytest.approx(0.5 * np.log2(9), abs=1e-4)
    assert measured(capture)["slope"].value == pytest.approx(0.5)
