"""The hidden Markov tasks, in-context and with fixed parameters: enumeration, symmetries, what their past is worth."""

import dataclasses
import itertools
from itertools import product

import numpy as np
import pytest
from interp.wind_tunnels.tasks.filtering import filter_states, stationary
from interp.wind_tunnels.tasks.hmm import HMM
from interp.wind_tunnels.tasks.hmm_fixed import FixedHMM

from interp.information import entropy_bits, kl_bits

SMALLEST = [
    HMM(S=2, O=2, K=6, floor=0.1, grid=0.1, predict="both"),
    HMM(S=3, O=2, K=5, predict="both"),
    HMM(S=2, O=4, K=5, predict="both"),
    HMM(S=3, O=3, K=4, floor=0.0, grid=0.2, predict="both"),
    HMM(S=3, O=3, K=4, floor=0.1, grid=0.1, stay=0.5, predict="both"),
    HMM(S=3, O=2, K=4, floor=0.1, grid=0.1, header="rows", predict="both"),
    HMM(S=2, O=4, K=4, floor=0.0, grid=0.2, stay=0.3, header="rows", predict="both"),
    FixedHMM(S=2, O=3, K=6),
    FixedHMM(S=4, O=2, K=4, stay=0.0, parameters_seed=3),
]


def read_header(task: HMM | FixedHMM, tokens: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The matrices a reader of the tokens knows: by the layout of the papers, or row by row from all rows there are."""
    if isinstance(task, FixedHMM):
        return task.transition, task.emission
    if task.header == "rows":
        return read_rows(task, tokens)
    n_levels = round((1 - task.floor) / task.grid) + 1
    n_trans, n_emit = task.S * task.S, task.S * task.O
    assert (
        tokens[0] == n_levels and tokens[1 + n_trans] == n_levels + 1 and tokens[2 + n_trans + n_emit] == n_levels + 2
    )
    values = np.array([task.floor + task.grid * token for token in tokens[: 2 + n_trans + n_emit]])
    return values[1 : 1 + n_trans].reshape(task.S, task.S), values[2 + n_trans :].reshape(task.S, task.O)


def read_rows(task: HMM, tokens: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Ids count through the rows of one place after another; those of a place are in lexicographic order."""
    levels = range(round(task.floor / task.grid), round(1 / task.grid) + 1)
    shown = [row for width in (task.S, task.O) for row in [list(itertools.product(levels, repeat=width))] * task.S]
    rows = [(at, r) for at, all_of in enumerate(shown) for r in all_of if sum(r) == round(1 / task.grid)]
    marks = [tokens[0], tokens[task.S + 1], tokens[2 * task.S + 2]]
    assert marks == [len(rows), len(rows) + 1, len(rows) + 2]
    read = [rows[token] for token in tokens[1 : 2 * task.S + 2] if token < len(rows)]
    assert [at for at, _ in read] == list(range(2 * task.S))
    transition, emission = ([task.grid * np.array(r) for _, r in part] for part in (read[: task.S], read[task.S :]))
    return np.array(transition), np.array(emission)


@pytest.mark.parametrize("task", SMALLEST, ids=str)
def test_posteriors_and_windows_equal_enumeration_from_the_tokens_alone(task):
    """The reader of a window begins with the stationary distribution; that of all symbols is the exact posterior."""
    sequences = task.sample(np.random.default_rng(0), 6)
    states, symbols = sequences.only("state"), sequences.only("symbol")
    assert set(sequences.windows) == (set() if task.floor == 0 else {1, 2, 3})
    readers = {task.K: (states.posterior, symbols.posterior)}
    readers |= {w: (states.windows[w], symbols.windows[w]) for w in sequences.windows}
    first = task.n_positions - 2 * task.K
    for row, tokens in enumerate(sequences.tokens.tolist()):
        process = read_header(task, tokens)
        np.testing.assert_allclose(np.concatenate(process, axis=1).sum(axis=1), 2.0, atol=1e-12)
        start, settled = np.full(task.S, 1 / task.S), np.linalg.matrix_power(process[0], 1000)[0]
        shown = [token - symbols.slice_ids[0] for token in tokens[first + 1 :: 2]]
        for (window, (behind, to_come)), step in itertools.product(readers.items(), range(task.K)):
            for found, end in ((behind, step + 1), (to_come, step)):
                begin = max(0, end - window)
                expected = by_all_paths(settled if begin else start, *process, shown[begin:end])
                np.testing.assert_allclose(found[row, step], expected[0 if found is behind else 1], atol=1e-12)


def test_headers_tell_of_the_same_chains_and_windows_go_with_them():
    sequences = SMALLEST[0].sample(np.random.default_rng(0), 6)
    for window, answers in sequences.windows.items():
        np.testing.assert_array_equal(sequences.take(slice(2, 4)).windows[window], answers[2:4])
        np.testing.assert_array_equal(sequences.last.windows[window], answers[:, -1:])
    task = HMM(S=3, O=3, K=4, floor=0.0, grid=0.2)
    assert task.sample(np.random.default_rng(0), 50).windows == {}
    entries = HMM(S=3, O=3, K=5, floor=0.1, grid=0.1)
    rows = dataclasses.replace(entries, header="rows")
    one, other = (task.sample(np.random.default_rng(0), 20) for task in (entries, rows))
    np.testing.assert_array_equal(one.posterior, other.posterior)
    assert (rows.vocab_size, rows.n_positions) == (6 * 36 + 4 + 3 + 3, 3 + 6 + 10)
    assert not any(id_ in other.tokens for id_ in other.slice_ids)


def test_where_states_stay_the_past_tells_more():
    lost = [
        kl_bits(found.posterior, found.windows[2]).mean()
        for stay in (0.0, 0.5)
        for found in [HMM(S=3, O=3, K=10, floor=0.1, grid=0.1, stay=stay).sample(np.random.default_rng(0), 500)]
    ]
    assert lost[1] > 2 * lost[0]


def test_papers_layout_has_105_ids_and_a_header_of_53_tokens():
    task = HMM()
    sequences = task.sample(np.random.default_rng(0), 20)
    assert (task.vocab_size, task.n_positions) == (110, 53 + 40)
    assert (sequences.tokens[:, [0, 26, 52]] == [96, 97, 98]).all()
    assert (sequences.tokens[:, 53::2] == 99).all()
    assert set(sequences.tokens[:, 54::2].ravel().tolist()) == set(range(100, 105))
    assert sequences.tokens[:, :52].max() < 98
    assert sequences.scored.tolist() == [53 + 2 * t + 1 for t in range(20)]
    assert sequences.slice_ids.tolist() == [105, 106, 107, 108, 109]
    assert sequences.slices == ()
    assert (sequences.columns["evidence"] == np.arange(1, 21)).all()
    assert (sequences.columns["position"] == sequences.scored).all()


def test_both_questions_are_two_slices_of_one_vocabulary():
    task = HMM(S=3, O=4, K=5, predict="both")
    sequences = task.sample(np.random.default_rng(0), 6)
    assert sequences.slices == ("state", "symbol")
    first = task.n_positions - 2 * task.K
    assert sequences.scored.tolist() == list(range(first, task.n_positions))
    assert sequences.scored_slice.tolist() == ["symbol", "state"] * 5
    outside = sequences.scored_slice[:, None] != sequences.outcome_slice
    assert (sequences.posterior[:, outside] == 0).all()
    np.testing.assert_allclose(sequences.posterior.sum(axis=-1), 1.0, atol=1e-14)
    states, symbols = sequences.only("state"), sequences.only("symbol")
    assert (symbols.columns["evidence"] == np.arange(5)).all() and (states.columns["evidence"] == np.arange(1, 6)).all()
    assert (symbols.targets == sequences.tokens[:, first + 1 :: 2]).all()
    assert states.slice_ids.min() > sequences.tokens.max()
    np.testing.assert_array_equal(states.belief, states.posterior)


def test_belief_at_a_marker_is_the_state_to_come():
    task = HMM(S=3, O=3, K=6, predict="symbol")
    chains = task._draw(np.random.default_rng(0), 8)
    sequences = task.encode(*chains)
    grid = task.probability_grid
    transition, emission = map(grid.probabilities, chains[:2])
    np.testing.assert_allclose(sequences.belief @ emission, sequences.posterior, atol=1e-14)
    np.testing.assert_allclose(sequences.belief[:, 0], 1 / 3, atol=1e-15)
    after = dataclasses.replace(task, predict="state").encode(*chains).belief
    moved = after[:, :-1] @ transition
    np.testing.assert_allclose(sequences.belief[:, 1:], moved, atol=1e-14)
    np.testing.assert_allclose(sequences.columns["belief_entropy_bits"], entropy_bits(sequences.belief), atol=1e-12)


@pytest.mark.parametrize(("n_states", "n_symbols"), [(5, 5), (2, 4), (3, 2), (4, 6)])
def test_orbits_hold_every_state_and_symbol_equally_often(n_states, n_symbols):
    n_copies = n_states * n_symbols
    assert len(HMM(S=2, O=2, K=3).sample_orbits(np.random.default_rng(0), 7, 100)) == 7
    task = HMM(S=n_states, O=n_symbols, K=3, predict="both")
    sequences = task.sample_orbits(np.random.default_rng(0), 3 * n_copies, n_copies)
    assert len(np.unique(sequences.tokens, axis=0)) == 3 * n_copies
    for name, size, times in (("state", n_states, n_symbols), ("symbol", n_symbols, n_states)):
        part = sequences.only(name)
        answers = np.sort((part.targets - part.slice_ids[0]).reshape(3, n_copies, -1), axis=1)
        assert (answers == np.repeat(np.arange(size), times)[None, :, None]).all()
        entropy = part.columns["bayes_entropy_bits"].reshape(3, n_copies, -1)
        np.testing.assert_allclose(entropy, np.broadcast_to(entropy[:, :1], entropy.shape), atol=1e-12)


def test_the_uniform_lacks_what_the_papers_report_and_the_last_symbol_what_the_default_process_is_chosen_for():
    sequences = HMM(K=20).sample(np.random.default_rng(0), 4000)
    missed = np.log2(5) - sequences.columns["bayes_entropy_bits"]
    assert missed.mean() == pytest.approx(0.417, abs=0.01)

    def lacks(task):
        sequences = task.sample(np.random.default_rng(0), 2000).only("state")
        return kl_bits(sequences.posterior, sequences.windows[1])[:, 1:].mean()

    gaps = [lacks(FixedHMM(parameters_seed=seed)) for seed in range(12)]
    assert np.argmax(gaps) == FixedHMM().parameters_seed and max(gaps) == pytest.approx(0.155, abs=0.015)
    assert lacks(FixedHMM(stay=0.0, parameters_seed=0)) == pytest.approx(0.020, abs=0.004)


def test_impossible_symbols_are_refused_and_what_is_stationary_stays():
    emission = np.array([[[1.0, 0.0], [1.0, 0.0]]])
    with pytest.raises(ValueError, match="at step 1 a symbol comes that the parameters give no probability"):
        filter_states(np.array([0.5, 0.5]), np.full((1, 2, 2), 0.5), emission, np.array([[0, 1]]))
    circle = np.roll(np.eye(3), 1, axis=1)[None]
    np.testing.assert_allclose(stationary(circle), np.full((1, 3), 1 / 3), atol=1e-15)
    transition = np.random.default_rng(3).dirichlet(np.ones(4), size=(5, 4))
    settled = stationary(transition)
    np.testing.assert_allclose((settled[:, None] @ transition)[:, 0], settled, atol=1e-14)
    np.testing.assert_allclose(settled.sum(axis=1), 1.0, atol=1e-14)


def by_all_paths(initial, transition, emission, symbols) -> tuple[np.ndarray, np.ndarray]:
    """p(s_t | o_1 .. o_t) and p(o_{t+1} | o_1 .. o_t) for the last t of a short list of symbols; none gives p(o_1)."""
    n_states, n_symbols = emission.shape
    state, following = np.zeros(n_states), np.zeros(n_symbols)
    for path in product(range(n_states), repeat=len(symbols) + 1):
        weight = initial[path[0]]
        for step, symbol in enumerate(symbols):
            weight = weight * emission[path[step], symbol] * transition[path[step], path[step + 1]]
        if symbols:
            state[path[len(symbols) - 1]] += weight
        following += weight * emission[path[-1]]
    total = following.sum()
    return state / total, following / total
