"""The measures against closed forms, hand calculation, and predictors whose faults are known."""

import numpy as np
import pytest
from interp.wind_tunnels.evaluation.checkpoint import check_limits, evaluate_longer, evaluate_sides
from interp.wind_tunnels.evaluation.evaluation import (
    Evaluation,
    by_predictor,
    evaluate,
    extrapolate,
    figure_scalars,
    longer,
    resampled,
    score,
)
from interp.wind_tunnels.networks.weights import load_weights, open_tunnel
from interp.wind_tunnels.tasks.bijection import Bijection
from interp.wind_tunnels.tasks.coin import Coin
from interp.wind_tunnels.tasks.hmm import HMM
from interp.wind_tunnels.tasks.selection import Selection
from interp.wind_tunnels.training import sampling
from scipy import stats

from interp.errors import UnknownName, UsageError
from interp.information import kl_bits
from interp.table import LABEL, Table
from interp.tunnel import Sequences

WITHOUT = Bijection(V=20, L=19, replacement=False)
WITH = Bijection(V=6, L=9)


def log_of(q_in_slice: np.ndarray, sequences: Sequences, vocab_size: int) -> np.ndarray:
    """Log-probabilities over the vocabulary: `q_in_slice` on the slice, nothing on the rest."""
    q = np.zeros((*q_in_slice.shape[:2], vocab_size))
    q[..., sequences.slice_ids] = q_in_slice
    with np.errstate(divide="ignore"):
        return np.log(q)


def judged(q_in_slice: np.ndarray, sequences: Sequences, vocab_size: int) -> Evaluation:
    return evaluate(log_of(q_in_slice, sequences, vocab_size), sequences, np.random.default_rng(0))


def values(evaluation: Evaluation) -> dict[str, float]:
    return {name: figure.value for name, figure in evaluation.figures.items()}


def test_exact_and_uniform_predictors_have_the_known_errors():
    sequences = WITH.sample(np.random.default_rng(0), 300)
    found = values(judged(sequences.posterior, sequences, WITH.vocab_size))
    best = {**dict.fromkeys(found, 0.0), "accuracy_where_certain": 1.0, "skill": 1.0}
    assert {name: round(value, 12) + 0.0 for name, value in found.items()} == best
    sequences = WITHOUT.sample(np.random.default_rng(0), 50)
    found = judged(np.full_like(sequences.posterior, 1 / 20), sequences, WITHOUT.vocab_size)
    expected = np.mean([np.log2(20) - np.log2(20 - k) for k in range(19)])
    assert expected == pytest.approx(1.1073, abs=5e-5)
    for name in ("mae_per_sequence_bits", "mae_mean_first_bits", "kl_bits", "kl_slice_bits"):
        assert found.figures[name].value == pytest.approx(expected, abs=1e-12)
    assert by_predictor(found.baselines)["uniform"]["mae_per_sequence_bits"] == pytest.approx(expected, abs=1e-12)


def test_constants_and_position_alone_miss_the_entropy_as_is_known():
    sequences = WITHOUT.sample(np.random.default_rng(0), 4000)
    found = by_predictor(judged(sequences.posterior, sequences, WITHOUT.vocab_size).baselines)
    assert found["constant"]["mae_per_sequence_bits"] == pytest.approx(0.74, abs=0.005)
    assert found["position"]["mae_per_sequence_bits"] == pytest.approx(0.0, abs=1e-12)
    assert found["position"]["kl_bits"] == pytest.approx(1.1073, abs=0.02)  # the answer is not known from the position
    sequences = WITH.sample(np.random.default_rng(0), 2000)
    found = by_predictor(judged(sequences.posterior, sequences, WITH.vocab_size).baselines)
    assert found["position"]["mae_per_sequence_bits"] > 0.3


def hand_made() -> tuple[Sequences, np.ndarray]:
    """Two sequences, one scored position, three answers of which the last is impossible, one token outside."""
    sequences = Sequences(
        tokens=np.array([[3], [3]]),
        scored=np.array([0]),
        targets=np.array([[0], [1]]),
        posterior=np.array([[[0.5, 0.5, 0.0]], [[0.5, 0.5, 0.0]]]),
        slice_ids=np.array([0, 1, 2]),
        columns={name: np.ones((2, 1)) for name in ("position", "evidence", "bayes_entropy_bits")},
        domain=np.array(["a", "a"]),
    )
    return sequences, np.array([[[0.4, 0.2, 0.2, 0.2]], [[0.5, 0.5, 0.0, 0.0]]])


def test_scores_equal_hand_calculation():
    sequences, q = hand_made()
    with np.errstate(divide="ignore"):
        found = {name: each[0, 0] for name, each in score(np.log(q), sequences).items()}
    inside = np.array([0.5, 0.25, 0.25])
    on_support = np.array([2 / 3, 1 / 3])
    assert found["entropy_error_bits"] == pytest.approx(-(inside * np.log2(inside)).sum() - 1)
    assert found["kl_bits"] == pytest.approx(0.5 * np.log2(0.5 / 0.4) + 0.5 * np.log2(0.5 / 0.2))
    assert found["kl_slice_bits"] == pytest.approx(0.5 * np.log2(0.5 / 0.5) + 0.5 * np.log2(0.5 / 0.25))
    assert found["reverse_kl_bits"] == pytest.approx((on_support * np.log2(on_support / 0.5)).sum())
    assert found["nll_gap_bits"] == pytest.approx(-np.log2(0.4) - 1)
    assert found["tvd"] == pytest.approx(0.5 * (0.1 + 0.3 + 0.2 + 0.2))
    assert found["leaked_mass"] == pytest.approx(0.4)
    assert found["outside_mass"] == pytest.approx(0.2)


def test_baselines_are_named_by_slice_and_read_windows_where_there_are_any():
    figures = {"mae_per_sequence_bits": [1.0, 2.0, 3.0, 4.0], "kl_bits": [5.0, 6.0, 7.0, 8.0]}
    words = {"slice": ["all", "all", "first", "first"], "predictor": ["uniform", "marginal"] * 2}
    columns = {name: np.array(column) for name, column in (words | figures).items()}
    table = Table(columns, {**dict.fromkeys(words, LABEL), **dict.fromkeys(figures, "bits")}, "Made.")
    found = by_predictor(table)
    assert list(found) == ["uniform", "marginal", "first.uniform", "first.marginal"]
    assert found["first.uniform"] == {"mae_per_sequence_bits": 3.0, "kl_bits": 7.0}
    sequences = FILTER.sample(np.random.default_rng(0), 200)
    errors = by_predictor(judged(sequences.posterior, sequences, FILTER.vocab_size).baselines)
    for w, answer in sequences.windows.items():
        assert errors[f"window-{w}"]["kl_bits"] == pytest.approx(kl_bits(sequences.posterior, answer).mean())
    others = WITH.sample(np.random.default_rng(0), 50)
    found = judged(others.posterior, others, WITH.vocab_size)
    assert not {"kl_bits_beyond_window", "kl_to_window_2"} & set(found.figures) and found.baselines.n_rows == 3


def test_errors_of_opposite_sign_cancel_only_when_averaged_first():
    sequences = Bijection(V=8, L=2, replacement=False).sample(np.random.default_rng(0), 400)
    first_half = np.arange(400) < 200
    q = np.full_like(sequences.posterior, 1 / 8)  # 3 bits
    q[first_half] = np.eye(8)[0]  # 0 bits, where 3 and log2(7) are due
    found = values(judged(0.999 * q + 0.001 / 8, sequences, 16))
    assert found["mae_per_sequence_bits"] >= found["mae_mean_first_bits"]
    per_position = np.array([[3.0, np.log2(7)]])
    entropy = np.where(first_half, 0.0, 3.0)[:, None]
    assert found["mae_per_sequence_bits"] == pytest.approx(np.abs(entropy - per_position).mean(), abs=0.02)
    assert found["mae_mean_first_bits"] == pytest.approx(np.abs((entropy - per_position).mean(axis=0)).mean(), abs=0.02)
    assert found["mae_per_sequence_bits"] > found["mae_mean_first_bits"] + 0.05


def test_errors_are_found_at_their_position_and_estimated_from_labels():
    sequences = WITHOUT.sample(np.random.default_rng(0), 40)
    q = sequences.posterior.copy()
    q[:, 7] = 1 / 20
    found = judged(q, sequences, WITHOUT.vocab_size)
    assert found.figures["worst_position_kl_bits"].value == pytest.approx(np.log2(20 / 13))
    assert found.by_position["kl_bits"].argmax() == 7
    assert found.by_position["position"][7] == 14
    sequences = WITH.sample(np.random.default_rng(0), 2_000)
    weights = np.random.default_rng(1).dirichlet(np.ones(6), size=sequences.targets.shape)
    found = judged(0.5 * sequences.posterior + 0.5 * weights, sequences, WITH.vocab_size).figures
    assert found["kl_bits"].value > 0.2
    assert found["nll_gap_bits"].low < found["kl_bits"].value < found["nll_gap_bits"].high


def test_intervals_are_those_of_a_mean_over_sequences_in_all_and_by_position():
    sequences = WITH.sample(np.random.default_rng(0), 1000)
    rng = np.random.default_rng(1)
    q = sequences.posterior + rng.exponential(size=(1000, 1, 1))
    q /= q.sum(axis=-1, keepdims=True)
    found = judged(q, sequences, WITH.vocab_size)
    per_sequence = score(log_of(q, sequences, WITH.vocab_size), sequences)["kl_bits"].mean(axis=1)
    half = 1.96 * per_sequence.std() / np.sqrt(1000)
    figure = found.figures["kl_bits"]
    assert figure.value == pytest.approx(per_sequence.mean())
    assert (figure.high - figure.low) / 2 == pytest.approx(half, rel=0.1)
    assert figure.low < figure.value < figure.high
    table = found.by_position
    of_position = score(log_of(q, sequences, WITH.vocab_size), sequences)["kl_bits"]
    np.testing.assert_allclose(table["kl_bits"], of_position.mean(axis=0))
    half = 1.96 * of_position.std(axis=0) / np.sqrt(1000)
    np.testing.assert_allclose((table["kl_bits_high"] - table["kl_bits_low"]) / 2, half, rtol=0.15)
    expected = (np.log2(6) - sequences.columns["bayes_entropy_bits"]).mean(axis=0)
    np.testing.assert_allclose(table["uniform_kl_bits"], expected, atol=1e-12)


def test_skill_is_over_the_best_constant_and_what_means_nothing_left_out():
    sequences = WITH.sample(np.random.default_rng(0), 400)
    constant = np.broadcast_to(sequences.posterior.mean(axis=(0, 1)), sequences.posterior.shape)
    assert judged(constant, sequences, WITH.vocab_size).figures["skill"].value == pytest.approx(0.0, abs=1e-12)
    half = judged(0.5 * sequences.posterior + 0.5 * constant, sequences, WITH.vocab_size)
    floor = by_predictor(half.baselines)["constant"]["kl_bits"]
    skill = half.figures["skill"]
    assert skill.value == pytest.approx(1 - half.figures["kl_bits"].value / floor)
    assert skill.low < skill.value < skill.high
    sequences = Bijection(V=4, L=1, replacement=False).sample(np.random.default_rng(0), 100)
    found = judged(sequences.posterior, sequences, 8)
    assert not {"skill", "accuracy_where_certain"} & set(found.figures)
    assert [note.split(":")[0] for note in found.notes] == ["accuracy_where_certain", "skill"]


def test_accuracy_counts_certain_positions_and_has_an_interval():
    sequences = WITH.sample(np.random.default_rng(0), 500)
    is_certain = sequences.columns["bayes_entropy_bits"] == 0
    wrong_third = (np.arange(500) % 3 == 0)[:, None] & is_certain
    q = np.where(wrong_third[..., None], np.roll(sequences.posterior, 1, axis=-1), sequences.posterior)
    q[~is_certain] = 1 / 6
    found = judged(0.999 * q + 0.001 / 6, sequences, WITH.vocab_size).figures["accuracy_where_certain"]
    assert found.value == pytest.approx(1 - wrong_third.sum() / is_certain.sum())
    assert 0.6 < found.low < found.value < found.high < 0.75
    sequences = WITH.sample(np.random.default_rng(0), 300)
    n = (sequences.posterior.max(axis=-1) == 1).any(axis=1).sum()
    found = judged(sequences.posterior, sequences, WITH.vocab_size).figures["accuracy_where_certain"]
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low**n == pytest.approx(0.025)
    wrong = 0.99 * np.roll(sequences.posterior, 1, axis=-1) + 0.01 / 6
    never = judged(wrong, sequences, WITH.vocab_size)
    assert never.figures["accuracy_where_certain"].value == 0.0 < never.figures["accuracy_where_certain"].high


def two_questions(n: int) -> Sequences:
    """Positions that ask in turn for an outcome of two (slice `coin`) and one of three (slice `die`)."""
    rng = np.random.default_rng(0)
    coin, die = rng.dirichlet(np.ones(2), size=(n, 3)), rng.dirichlet(np.ones(3), size=(n, 3))
    posterior = np.zeros((n, 6, 5))
    posterior[:, 0::2, :2], posterior[:, 1::2, 2:] = coin, die
    return Sequences(
        tokens=np.zeros((n, 6), dtype=np.int64),
        scored=np.arange(6),
        targets=posterior.argmax(axis=-1) + 1,
        posterior=posterior,
        slice_ids=np.arange(1, 6),
        columns={name: np.ones((n, 6)) for name in ("position", "evidence", "bayes_entropy_bits")},
        domain=np.full(n, "a"),
        outcome_slice=np.array(["coin", "coin", "die", "die", "die"]),
        scored_slice=np.array(["coin", "die"] * 3),
    )


def test_named_slices_are_measured_alone_and_the_primary_one_has_plain_names():
    sequences = two_questions(300)
    q = sequences.posterior.copy()
    q[:, 1::2, 2:] = 1 / 3  # dice are not looked at
    full = np.zeros((300, 6, 7))
    full[..., 1:6] = 0.9 * q
    full[..., 6] = 0.1
    with np.errstate(divide="ignore"):
        found = evaluate(np.log(full), sequences, np.random.default_rng(0))
    p = sequences.posterior[:, 1::2, 2:]
    die = (p * np.log2(p * 3)).sum(axis=-1).mean() - np.log2(0.9)
    assert found.figures["kl_bits"].value == pytest.approx(-np.log2(0.9))
    assert found.figures["die.kl_bits"].value == pytest.approx(die)
    assert found.figures["mae_per_sequence_bits"].value == pytest.approx(0.0, abs=1e-12)
    assert found.figures["die.mae_per_sequence_bits"].value > 0.1
    assert found.by_position["slice"].tolist() == ["coin"] * 3 + ["die"] * 3
    assert found.by_position["position"].tolist() == [0, 2, 4, 1, 3, 5]
    assert found.baselines["slice"].tolist() == ["coin"] * 3 + ["die"] * 3
    assert "coin: accuracy_where_certain: no posterior here is a point mass" in found.notes
    alone = sequences.only("die")
    with np.errstate(divide="ignore"):
        separately = evaluate(np.log(full[:, 1::2]), alone, np.random.default_rng(0))
    assert separately.figures["tvd"].value == pytest.approx(found.figures["die.tvd"].value)


FILTER = HMM(S=2, O=2, K=8, floor=0.1, grid=0.1)


def uniform(sequences: Sequences, vocab_size: int) -> np.ndarray:
    return np.full((*sequences.targets.shape, vocab_size), -np.log(vocab_size))


@pytest.mark.parametrize("horizon", [1, 10])
def test_within_and_beyond_a_horizon_only_what_is_asked_there_has_figures(horizon):
    """Positions ask in turn for a value and for a class: one of them alone is a question of one kind."""
    task = Selection(V=6, L=6)
    sequences = task.sample(np.random.default_rng(0), 50)
    found = evaluate_sides(uniform(sequences, task.vocab_size), sequences, np.random.default_rng(0), horizon)
    assert np.isfinite([figure.value for figure in found.figures.values()]).all()
    alone = "within_horizon." if horizon == 1 else "beyond_horizon."
    others = "beyond_horizon." if horizon == 1 else "within_horizon."
    assert f"{alone}kl_bits" in found.figures and f"{alone}class.kl_bits" not in found.figures
    assert {f"{others}kl_bits", f"{others}class.kl_bits"} <= {*found.figures}


def test_a_limit_is_on_a_figure_of_the_sides_of_the_horizon():
    check_limits(FILTER, {"beyond_horizon.kl_bits": 1.0, "seen_share": 1.0}, 3)
    with pytest.raises(UnknownName, match="accuracy_where_certain"):
        check_limits(Coin(), {"accuracy_where_certain": 1.0}, None)


def test_few_sequences_have_intervals_as_wide_as_those_of_a_t_test():
    """Of 12, a bootstrap that draws 12 has intervals of 1.96 √(11 / 12) standard errors; t wants 2.2."""
    drawn = sampling.generator(3, 0).standard_normal((200, 12))
    weights = resampled(12, np.random.default_rng(0))
    np.testing.assert_array_equal(weights[0], np.full(12, 1 / 12))
    widths = [np.ptp(np.quantile(weights[1:] @ row, (0.025, 0.975))) / row.std(ddof=1) * 12**0.5 for row in drawn]
    assert np.mean(widths) / 2 == pytest.approx(stats.t.ppf(0.975, 11), rel=0.03)


def test_more_sequences_than_memory_holds_are_refused_before_they_are_drawn(monkeypatch):
    tunnel = open_tunnel("tunnel:bijection-gpt-neox")
    network = load_weights(tunnel.folder)
    monkeypatch.setattr(sampling, "available_bytes", lambda device: 300 * 2**20)
    with pytest.raises(UsageError, match=r"500 sequences of 7,999 tokens .* GB of memory"):
        evaluate_longer(network, tunnel.task, 4000, n=500)
    assert evaluate_longer(network, tunnel.task, 200, n=20).n == 20


def test_the_best_window_reader_is_not_beyond_itself_and_the_exact_posterior_beats_it():
    sequences = FILTER.sample(np.random.default_rng(0), 500)
    errors = {w: kl_bits(sequences.posterior, answer).mean() for w, answer in sequences.windows.items()}
    best = min(errors, key=lambda w: errors[w])
    for answer, expected in (
        (sequences.windows[best], 0.0),
        (sequences.windows[1], errors[1] - errors[best]),
        (sequences.posterior, -errors[best]),
    ):
        found = judged(answer, sequences, FILTER.vocab_size)
        assert found.figures["kl_bits_beyond_window"].value == pytest.approx(expected, abs=1e-9)
        assert found.figures["kl_to_window_2"].value == pytest.approx((expected + errors[best]) / errors[2], abs=1e-9)
    assert found.figures["kl_bits_beyond_window"].high < 0
    scalar = figure_scalars(found)["kl_bits_beyond_window"]
    assert scalar.null.value == 0 and scalar.unit == "bits"


TASK = Bijection(V=6, L=5)
LONG = Bijection(V=6, L=9)


def mixed(posterior: np.ndarray, doubt: np.ndarray) -> np.ndarray:
    """The posterior with a share `doubt` of the uniform answer at every scored position."""
    return (1 - doubt)[:, None] * posterior + doubt[:, None] / TASK.V


def test_error_beyond_the_trained_length_is_found_there():
    assert longer(TASK, 9) == LONG
    sequences = LONG.sample(np.random.default_rng(0), 800)
    doubt = np.array([0.01] * 5 + [0.5, 0.2, 0.2, 0.2])  # the network breaks one position beyond, then recovers
    q = mixed(sequences.posterior, doubt)
    found = extrapolate(log_of(q, sequences, TASK.vocab_size), sequences, TASK.n_positions, np.random.default_rng(1))
    curve = kl_bits(sequences.posterior, q).mean(axis=0)
    value = {name: figure.value for name, figure in found.figures.items()}
    assert value["kl_bits_within"] == pytest.approx(curve[:5].mean())
    assert value["kl_bits_beyond"] == pytest.approx(curve[5:].mean())
    assert value["kl_bits_jump"] == pytest.approx(curve[5] / curve[4]) and value["kl_bits_jump"] > 20
    np.testing.assert_allclose(found.by_position["kl_bits"], curve)
    uniform = kl_bits(sequences.posterior, np.full_like(q, 1 / 6)).mean(axis=0)[5:].mean()
    assert value["kl_bits_beyond_to_uniform"] == pytest.approx(curve[5:].mean() / uniform)
    for name, figure in found.figures.items():
        assert figure.low <= figure.value <= figure.high, name
    assert found.figures["kl_bits_within"].high < found.figures["kl_bits_beyond"].low


def test_beyond_training_knowing_nothing_is_a_ratio_of_one():
    sequences = LONG.sample(np.random.default_rng(0), 400)
    q = mixed(sequences.posterior, np.array([0.01] * 5 + [1.0] * 4))
    found = extrapolate(
        log_of(q, sequences, TASK.vocab_size), sequences, TASK.n_positions, np.random.default_rng(1)
    ).figures
    assert found["kl_bits_beyond_to_uniform"].value == pytest.approx(1.0)
    sequences = LONG.sample(np.random.default_rng(0), 100)
    q = mixed(sequences.posterior, np.array([0.01] * 4 + [0.5] * 5))
    curve = kl_bits(sequences.posterior, q).mean(axis=0)
    found = extrapolate(
        log_of(q, sequences, TASK.vocab_size), sequences, 8, np.random.default_rng(1)
    ).figures  # position 8 is the ninth token
    assert found["kl_bits_within"].value == pytest.approx(curve[:4].mean())
    assert found["kl_bits_jump"].value == pytest.approx(curve[4] / curve[3])


@pytest.mark.parametrize("n", [5, 3])
def test_length_that_is_no_longer_is_refused(n):
    with pytest.raises(UsageError) as refusal:
        longer(TASK, n)
    assert f"extrapolation of bijection to {n} observations" in str(refusal.value)
