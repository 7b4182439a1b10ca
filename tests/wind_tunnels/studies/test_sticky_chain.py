"""The sticky chain: its exact entropy, the head, the arms, and what is made of their curves."""

import numpy as np
import pytest
import torch
from interp.wind_tunnels.studies.sticky_chain.arms import (
    WEIGHTS,
    LearningCurve,
    arms_of,
    best_values,
    draw_start,
    head_logits,
    kept_steps,
    losses,
    train_all,
    train_arm,
)
from interp.wind_tunnels.studies.sticky_chain.findings import findings_of, published_speedup, steps_to
from interp.wind_tunnels.studies.sticky_chain.process import StickyChain
from interp.wind_tunnels.studies.sticky_chain.study import StickyChainStudy
from scipy import stats
from scipy.linalg import circulant

from interp.running.study import run_study
from tests.progress import nothing

LN2 = float(np.log(2))


def small_start(n_positions: int, seeds: tuple[int, ...] = (0, 1)):
    return draw_start(StickyChain(), seeds, n_positions)


def test_both_chains_stay_as_named_with_the_entropy_that_is_known():
    row = StickyChain().transition[0]
    assert row == pytest.approx([0.350, 0.166, 0.083, 0.055, 0.042, 0.055, 0.083, 0.166], abs=5e-4)
    assert StickyChain().next_entropy_bits * LN2 == pytest.approx(1.829, abs=5e-4)
    assert StickyChain().next_entropy_bits == pytest.approx(2.639, abs=5e-4)
    chain = StickyChain(normalised="exact")
    assert np.diag(chain.transition) == pytest.approx(np.full(8, 0.3))
    assert chain.next_entropy_bits * LN2 == pytest.approx(1.883, abs=5e-4)
    assert chain.next_entropy_bits == pytest.approx(2.717, abs=5e-4)


@pytest.mark.parametrize("n_symbols", [2, 3, 8])
@pytest.mark.parametrize("normalised", ["published", "exact"])
def test_transitions_follow_their_definition_and_the_chain_is_uniform(n_symbols, normalised):
    chain = StickyChain(n_symbols, 0.3, normalised)
    matrix = chain.transition
    steps = np.arange(1, n_symbols)
    row = np.r_[0.3 if normalised == "published" else 0.0, 1 / np.minimum(steps, n_symbols - steps)]
    assert matrix == pytest.approx(circulant(0.7 * row / row.sum()) + 0.3 * np.eye(n_symbols))
    assert matrix.sum(axis=0) == pytest.approx(np.ones(n_symbols))
    entropy = -(np.full((n_symbols, 1), 1 / n_symbols) * matrix * np.log2(matrix)).sum()
    assert chain.next_entropy_bits == pytest.approx(entropy)


def test_samples_follow_the_chain_and_lie_about_their_means():
    chain = StickyChain()
    inputs, symbols = chain.sample(np.random.default_rng(0), 40_000)
    before = symbols[0, :-1]
    counts = np.zeros((8, 8))
    np.add.at(counts, (before, symbols[0, 1:]), 1)
    assert counts / counts.sum(axis=1, keepdims=True) == pytest.approx(chain.transition, abs=0.03)
    noise = inputs[0] - chain.means[before]
    assert abs(noise.mean()) < 0.01 and noise.std() == pytest.approx(1, abs=0.01)
    assert chain.surprise_bits(symbols)[0] == pytest.approx(chain.next_entropy_bits, abs=0.05)
    other, _ = chain.sample(np.random.default_rng(1), 10)
    assert np.array_equal(chain.means, StickyChain().means) and other.shape == (1, 10, 20)


def random_heads(n_pos: int, spread: float):
    gen = torch.Generator().manual_seed(0)
    shapes = ((20, 10), (20, 10), (20, 15), (15, 8))
    x = torch.randn(3, n_pos, 20, dtype=torch.float64, generator=gen)
    y = torch.randint(8, (3, n_pos), generator=gen)
    w = {
        name: spread * torch.randn(3, *shape, dtype=torch.float64, generator=gen)
        for name, shape in zip(WEIGHTS, shapes, strict=True)
    }
    return x, y, w


def logits_by_definition(x, w):
    scores = (x @ w["w_q"]) @ (x @ w["w_k"]).mT / 10**0.5
    later = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
    return scores.masked_fill(later, -torch.inf).softmax(dim=-1) @ (x @ w["w_v"]) @ w["w_o"]


def test_predictions_are_those_of_the_definition_even_where_scores_are_large():
    x, y, w = random_heads(100, 2.0)
    assert ((x @ w["w_q"]) @ (x @ w["w_k"]).mT).max() / 10**0.5 > 89  # beyond exp in float32
    found = losses(head_logits(x.float(), {name: weight.float() for name, weight in w.items()}), y)
    assert torch.allclose(found.double(), losses(logits_by_definition(x, w), y), rtol=1e-3)


def test_the_m_step_minimises_its_bound_and_the_bound_is_one():
    x, y, w = random_heads(80, 0.3)
    scores = (x @ w["w_q"]) @ (x @ w["w_k"]).mT / 10**0.5
    mixed = scores.masked_fill(torch.ones(80, 80).triu(1).bool(), -torch.inf).softmax(dim=-1) @ x
    error = (logits_by_definition(x, w).softmax(dim=-1) - torch.nn.functional.one_hot(y, 8)) / 80
    step = best_values(x, y, w, ridge=1e-9) - w["w_v"]
    bound = 0.5 * (torch.eye(8, dtype=torch.float64) - 1 / 8)

    def above(change):
        moved = mixed @ change @ w["w_o"]
        return (moved * error).sum(dim=(1, 2)) + 0.5 * (moved @ bound * moved).sum(dim=-1).mean(dim=-1)

    best, before = above(step), losses(head_logits(x, w), y)
    assert (best < 0).all()
    gen = torch.Generator().manual_seed(1)
    for size in (0.01, 0.1, 1.0):
        other = step + size * torch.randn(step.shape, dtype=torch.float64, generator=gen)
        assert (above(other) > best).all()
        after = losses(head_logits(x, w | {"w_v": w["w_v"] + other}), y)
        assert (after <= before + above(other) + 1e-12).all()


def test_arms_are_the_published_two_and_every_control():
    arms = {arm.name: arm for arm in arms_of(0.01, 10.0, (0.3,), (0.001,))}
    assert list(arms) == ["sgd", "w_v", "w_o", "w_qk", "w_vo", "all", "sgd_0.3", "adam_0.001", "m_step"]
    assert arms["w_v"].rates == {"w_q": 0.01, "w_k": 0.01, "w_v": 0.1, "w_o": 0.01}
    assert arms["w_qk"].rates == {"w_q": 0.1, "w_k": 0.1, "w_v": 0.01, "w_o": 0.01}
    assert set(arms["all"].rates.values()) == {0.1} and arms["adam_0.001"].rule == "adam"


def test_descent_and_adam_are_those_of_torch():
    start = small_start(40)
    for name, optimiser in (("all", torch.optim.SGD), ("adam_0.1", torch.optim.Adam)):
        arm = next(a for a in arms_of(0.01, 10.0, (), (0.1,)) if a.name == name)
        leaves = {key: w.clone().requires_grad_() for key, w in start.weights.items()}
        steps = optimiser(list(leaves.values()), lr=0.1)
        losses = []
        for _ in range(6):
            steps.zero_grad()
            logits = logits_by_definition(start.inputs, leaves)
            each = torch.nn.functional.cross_entropy(logits.mT, start.targets, reduction="none").mean(dim=1)
            losses.append(each.detach().numpy())
            each.sum().backward()
            steps.step()
        assert train_arm(arm, start, 5, nothing).loss_nats == pytest.approx(np.array(losses), rel=1e-4)


def test_seeds_are_independent_of_one_another_and_of_the_number_of_threads():
    arms = arms_of(0.01, 10.0, (), ())[:2]
    both = train_all(arms, small_start(70, (5, 6)), 4, nothing)
    alone = train_all(arms, small_start(70, (6,)), 4, nothing)
    assert both["w_v"].loss_nats[:, 1] == pytest.approx(alone["w_v"].loss_nats[:, 0], rel=1e-5)
    before = torch.get_num_threads()
    torch.set_num_threads(1 if before > 1 else 2)
    try:
        again = train_all(arms, small_start(70, (5, 6)), 4, nothing)
        assert torch.get_num_threads() == (1 if before > 1 else 2)
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(again["w_v"].loss_nats, both["w_v"].loss_nats)


def test_trainings_that_diverge_are_nan_and_speed_ups_are_ratios_of_steps():
    arm = arms_of(1e30, 10.0, (), ())[0]
    curve = train_arm(arm, small_start(40), 8, nothing)
    assert np.isfinite(curve.loss_nats[0]).all() and np.isnan(curve.loss_nats[-1]).all()
    assert np.isnan(curve.fresh_loss_nats[-1]).all()
    loss = np.array([[3.0, 3.0, 3.0], [2.0, 2.5, 3.0], [1.0, 2.0, 3.0], [1.5, 1.0, np.nan]])
    assert steps_to(loss, np.array([2.0, 2.0, 2.0])) == pytest.approx([1, 2, np.nan], nan_ok=True)
    steps = np.array([400.0, 500.0, 390.0])
    found = published_speedup(steps, 1000)
    assert found.value == pytest.approx(1000 / 430) and found.low < found.value < found.high
    half = 4.302653 * steps.std(ddof=1) / 3**0.5 / 430  # t(2)'s 97.5 % quantile
    assert np.log(found.high / found.value) == pytest.approx(half, rel=1e-6)
    assert np.isnan(published_speedup(np.array([400.0]), 1000).low)


def planted(steps_of: dict[str, list[int]], n_steps: int = 100):
    """Curves that fall linearly to plain descent's end, 1 nat below the start, after so many steps."""
    curves = {}
    for name, seeds in steps_of.items():
        loss = np.stack([3 - np.arange(n_steps + 1) / steps for steps in seeds], axis=1)
        curves[name] = LearningCurve(loss, loss, np.full_like(loss, 0.5), loss[kept_steps(n_steps)])
    return curves


def test_planted_speed_ups_are_found():
    arms = arms_of(0.01, 10.0, (0.003,), ())
    curves = planted({
        "sgd": [100, 100, 100], "w_v": [50, 40, 50], "w_o": [50, 50, 40], "w_qk": [20, 25, 20], "w_vo": [30, 30, 31],
        "all": [10, 10, 10], "sgd_0.003": [300, 300, 300], "m_step": [5, 4, 5],
    })  # fmt: skip
    start = draw_start(StickyChain(), (1, 2, 3), 20)
    found = findings_of("sticky_chain", arms, curves, start)
    assert found["speedup_w_v"].value == pytest.approx(100 / (140 / 3))
    assert found["paired_speedup_w_v"].value == pytest.approx((2 * 2.5 * 2) ** (1 / 3))
    assert found["speedup_w_v"].interval[0] < found["speedup_w_v"].value < found["speedup_w_v"].interval[1]
    test = stats.ttest_1samp(np.log([2, 2.5, 2]), 0.0)
    assert found["paired_speedup_w_v"].p == pytest.approx(test.pvalue)
    assert found["paired_speedup_w_v"].interval == pytest.approx(np.exp(test.confidence_interval(0.95)))
    assert found["w_v_over_w_qk"].value < 0.6 and found["w_v_over_w_qk"].interval[1] < 1
    assert found["w_v_over_w_o"].interval[0] < 1 < found["w_v_over_w_o"].interval[1]
    assert "effect of a larger learning rate" in found.notes[0]
    losses = {name: curve.fresh_loss_nats[-1].mean() / LN2 for name, curve in curves.items()}
    worst = ", ".join(name for name, loss in losses.items() if loss > 3.0)
    assert worst and any(f"noise: {worst}." in note for note in found.notes)
    assert found["speedup_all"].interval is None and "same number of steps" in found["speedup_all"].interval_reason
    assert np.isnan(found["speedup_sgd_0.003"].value) and "3 of 3 seeds" in found["speedup_sgd_0.003"].null_reason
    arms_table = found.tables["arms"]
    assert arms_table["loss_bits"] == pytest.approx(arms_table["loss_nats"] / LN2)
    assert arms_table.units["loss_bits"] == "bits" and arms_table.units["loss_nats"] == "nats"


def test_values_that_gain_most_are_said_to():
    curves = planted({
        "sgd": [100, 100, 100], "w_v": [10, 11, 10], "w_o": [50, 52, 50], "w_qk": [80, 75, 80], "w_vo": [9, 8, 9],
        "all": [7, 7, 8], "m_step": [5, 4, 5],
    })  # fmt: skip
    start = draw_start(StickyChain(), (1, 2, 3), 20)
    found = findings_of("sticky_chain", arms_of(0.01, 10.0, (), ()), curves, start)
    assert "larger on W_V than on any other matrix" in found.notes[0]


@pytest.fixture(scope="module")
def small_record(tmp_path_factory):
    study = StickyChainStudy(n_steps=120, n_positions=150, seeds=(42, 2024), rates=(0.1,), adam_rates=(0.01,))
    return run_study(study, out=tmp_path_factory.mktemp("runs"), quiet=True)


def test_a_small_study_finds_the_larger_rate_faster_and_draws_its_page(small_record):
    found = small_record.findings["sticky_chain"]
    paired = {arm: found[f"paired_speedup_{arm}"].value for arm in ("w_v", "w_o", "w_qk", "all", "m_step")}
    assert min(paired.values()) > 1
    assert paired["all"] > max(paired["w_v"], paired["w_o"], paired["w_qk"])
    assert found["paired_speedup_all"].value == found["paired_speedup_sgd_0.1"].value
    assert found["excess_loss_sgd"].value > found["excess_loss_w_v"].value > found["excess_loss_all"].value
    curves = found.tables["curves"]
    first = curves.where(curves["step"] == 0)["loss_nats"]
    assert first == pytest.approx(np.full(len(first), np.log(8)), abs=0.02)
    page = (small_record.path / "report.html").read_text()
    for words in ("The larger rate, on each matrix in turn", "Adam and a closed-form M-step", "Speed-up of every arm"):
        assert words in page
    assert "cannot draw these findings" not in page


def test_every_line_of_the_loss_curves_looks_its_own_and_none_flattens_the_others():
    asked = StickyChainStudy()
    arms = arms_of(asked.rate, asked.factor, asked.rates, asked.adam_rates)
    start = draw_start(StickyChain(), (1, 2, 3), 20)
    curves = planted({arm.name: [100, 90, 110] for arm in arms})
    found = findings_of("sticky_chain", arms, curves, start)
    for figure in asked.figures(found)[:2]:
        named = [trace for trace in figure.plot.data if trace.showlegend is not False]
        looks = [(trace.line.color, trace.line.dash) for trace in named]
        assert len(looks) == len(set(looks)) and {"plain descent's end", "the true chain"} < {t.name for t in named}
        assert figure.plot.layout.yaxis.range == pytest.approx((0, 2 * start.surprise_bits.mean()))
