"""Questions deeper than a network: readers whose every answer is known, beliefs dealt out anew, and the whole study."""

import numpy as np
import pytest
from interp.wind_tunnels.studies.chain_of_thought import (
    ChainOfThought,
    calibration_error,
    depth_figures,
    permuted_beliefs,
    way_probability,
    written,
)
from interp.wind_tunnels.tasks.bijection import exact_posterior
from interp.wind_tunnels.tasks.permutation import IteratedPermutation, answer_posterior, ways

import interp
from interp.errors import UsageError
from interp.information import kl_bits
from tests.progress import nothing

WITH = IteratedPermutation(V=7, n_shown=5, depth=4)
WITHOUT = IteratedPermutation(V=7, n_shown=5, depth=4, scratchpad=False)


def ideal(task):
    """The exact posterior at a step, from what is written up to there."""

    def read(tokens, k):
        first = 2 * task.n_shown + 1
        shown, start = task.shown_in(tokens), tokens[:, first] - task.V
        if not task.scratchpad:
            return answer_posterior(shown, start, task.depth)[:, k]
        chain = np.concatenate([tokens[:, first : first + k + 1] - task.V, start[:, None]], axis=1)
        return exact_posterior(chain[:, :-1], chain[:, 1:], task.V, shown=shown)[0][:, k]

    return read


@pytest.mark.parametrize("task", [WITH, WITHOUT], ids=["scratchpad", "none"])
def test_the_ideal_observer_is_right_where_the_way_is_shown_and_exact_everywhere(task):
    figures = depth_figures(task, task.sample(np.random.default_rng(0), 1500), ideal(task))
    np.testing.assert_allclose(figures["right"], 1.0)
    np.testing.assert_allclose(figures["greedy"], 1.0)
    np.testing.assert_allclose(figures["kl_bits"], 0.0, atol=1e-12)
    np.testing.assert_allclose(figures["tracking"], 1.0)
    assert (figures["calibration_error"] < 0.06).all() and figures["calibration_exchanged"][-1] > 0.2
    assert (figures["start_kl_bits"] > 0.5).all() and (figures["bayes_bits"][1:] > 0.1).all()


def test_one_step_is_its_own_kl_and_with_a_scratchpad_they_multiply():
    drawn = WITHOUT.sample(np.random.default_rng(0), 1500)
    figures = depth_figures(WITHOUT, drawn, lambda tokens, k: drawn.windows[0][:, k])
    np.testing.assert_allclose(figures["kl_bits"], figures["start_kl_bits"])
    assert (figures["right"] <= figures["chance"] + 1e-12).all()
    assert (figures["tracking"] <= 0).all(), "one entropy a step follows no question"
    drawn = WITH.sample(np.random.default_rng(0), 1500)
    blurred = lambda tokens, k: 0.9 * ideal(WITH)(tokens, k) + 0.1 / 7  # noqa: E731
    figures = depth_figures(WITH, drawn, blurred)
    np.testing.assert_allclose(figures["right"], (0.9 + 0.1 / 7) ** np.arange(1, 5))
    np.testing.assert_allclose(figures["greedy"], 1.0)
    said = np.stack([blurred(drawn.tokens, k) for k in range(4)], axis=1)
    np.testing.assert_allclose(figures["kl_bits"], kl_bits(drawn.posterior, said).mean(axis=0).cumsum())


def test_calibration_and_written_symbols_are_those_of_each_step():
    confidence = np.array([[0.95], [0.91], [0.35], [0.31]])
    is_right = np.array([[1], [0], [1], [0]])
    assert calibration_error(confidence, is_right)[0] == pytest.approx((0.86 + 0.34) / 4)
    rng = np.random.default_rng(0)
    drawn = rng.random((40_000, 2))
    told = calibration_error(drawn, np.stack([rng.random(40_000) < drawn[:, 0], np.zeros(40_000)], axis=1))
    assert told[0] < 0.01 and told[1] == pytest.approx(drawn[:, 1].mean())
    drawn = WITH.sample(np.random.default_rng(1), 50)
    shifted = lambda tokens, k: np.eye(7)[(tokens[:, 11 + k] - 7 + 1) % 7]  # noqa: E731
    start = drawn.tokens[:, 11] - 7
    expected = (start[:, None] + np.arange(1, 5)) % 7
    symbols, confidence = written(shifted, WITH, drawn.tokens)
    np.testing.assert_array_equal(symbols, expected)
    np.testing.assert_array_equal(confidence, 1.0)


def test_ways_are_followed_and_counted_as_far_as_they_are_known():
    shown = np.array([[1, 2, -1, 3], [1, 0, -1, 2]])
    assert ways(shown, np.array([0, 0]), 3).tolist() == [[1, 2, -1], [1, 0, 1]]
    assert ways(shown, np.array([3, 3]), 3).tolist() == [[3, 3, 3], [2, -1, -1]]
    said = np.full((3, 2, 2), 0.5)
    said[0] = [[0.9, 0.1], [0.2, 0.8]]
    way = np.array([[0, 1], [1, -1], [-1, -1]])
    assert way_probability(said, way) == pytest.approx((0.9 * 0.8 + 0.5) / 2)


def test_exchanging_keeps_token_and_posteriors():
    one = WITH.sample(np.random.default_rng(4), 80).at(np.array([2]))
    assert one.scored.tolist() == [13] and one.columns["n_steps_asked"].tolist() == [[3]] * 80
    other = permuted_beliefs(one, np.random.default_rng(0))
    assert (other.tokens == one.tokens).all() and (other.posterior != one.posterior).any()
    for token in np.unique(one.tokens[:, 13]):
        rows = one.tokens[:, 13] == token
        np.testing.assert_array_equal(np.sort(other.posterior[rows], axis=0), np.sort(one.posterior[rows], axis=0))


SMALL = ("V=5", "n_shown=4", "depth=3", "n_steps=2", "batch=8", "d_model=16", "n_heads=2")


@pytest.mark.slow
def test_untrained_networks_know_nothing_of_it(tmp_path):
    study = ChainOfThought(settings=SMALL, seeds=(1,), n_layers=1, n_layers_deep=2, n_eval=300, n_pool=60, swap_step=2)
    found = study.measure(tmp_path, nothing)
    assert set(found.headline) <= set(found.scalars)
    assert found["right_with"].value < 0.5 and found["belief_r2"].value < 0.3 and found["followed"].value < 0.5
    by_depth = found.tables["by_depth"]
    assert by_depth.n_rows == 3 * 3 and found.tables["by_step"].n_rows == 2 * 3
    assert found.tables["swaps"].n_rows == 2 and found["right_with"].underpowered  # one network
    mine = by_depth.where((by_depth["arm"] == "without") & (by_depth["steps"] > 1))
    assert found["right_without"].value == pytest.approx(mine["right"].mean())


@pytest.mark.slow
def test_the_shipped_network_writes_on_from_the_state_it_is_given_and_holds_the_belief(tmp_path):
    model, study = interp.load("tunnel:permutation-gpt-neox"), ChainOfThought(n_pool=120)
    swapped = study._swapped(model, model.task)
    assert swapped["swapped"][1] > 0.95 and swapped["random"].max() < 0.1
    assert swapped["swapped"][2] < 0.3  # behind the last layer it is the other's answer that is put there
    belief = study._beliefs(model, IteratedPermutation(depth=1))
    assert belief["r2"][0] > 0.7 and abs(belief["exchanged"][0]) < 0.1


def test_a_study_without_a_question_deeper_than_its_network_is_refused(tmp_path):
    with pytest.raises(UsageError, match="Choose a depth beyond both"):
        ChainOfThought(settings=("depth=3",), n_layers=3).measure(tmp_path, nothing)
    with pytest.raises(UsageError, match="none shows a way of 4 steps"):
        depth_figures(WITH, WITH.sample(np.random.default_rng(0), 3), ideal(WITH))
    with pytest.raises(UsageError, match="each once"):
        ChainOfThought(seeds=(1, 1))
