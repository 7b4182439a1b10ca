"""The hidden Markov tasks follow their own posteriors, and what is wrong with one is caught."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from interp.wind_tunnels.tasks.bijection import Bijection
from interp.wind_tunnels.tasks.conformance import check_task
from interp.wind_tunnels.tasks.filtering import Filtered, filter_states
from interp.wind_tunnels.tasks.hmm import HMM
from interp.wind_tunnels.tasks.hmm_fixed import FixedHMM
from interp.wind_tunnels.tasks.mess3 import Mess3

from interp.errors import InterpError, UsageError
from interp.information import entropy_bits
from interp.tunnel import Sequences, Task, make_task

SOUND = [
    HMM(S=2, O=2, K=2, floor=0.25, grid=0.25),
    HMM(S=2, O=2, K=2, floor=0.25, grid=0.25, predict="symbol"),
    HMM(S=2, O=2, K=2, floor=0.0, grid=0.5, predict="both"),
    HMM(S=2, O=3, K=1, floor=0.25, grid=0.25, predict="both"),
    HMM(S=2, O=2, K=2, floor=0.25, grid=0.25, header="rows", predict="both"),
    HMM(S=2, O=2, K=2, floor=0.25, grid=0.25, stay=0.5),
    FixedHMM(S=2, O=2, K=5),
    FixedHMM(S=3, O=2, K=4, predict="state", stay=0.0),
    Mess3(K=5),
    Mess3(K=3, x=0.5, a=1.0),
]


@pytest.mark.parametrize("task", SOUND, ids=str)
def test_task_conforms(task):
    check_task(task, np.random.default_rng(0))


@pytest.mark.parametrize("task", [task for task in SOUND if not isinstance(task, FixedHMM)], ids=str)
def test_orbits_conform(task):
    """Copies depend on one another, so one of each group is judged: each alone is an ordinary draw."""

    @dataclass(frozen=True)
    class OneOfEach(type(task)):
        def sample(self, rng: np.random.Generator, n: int) -> Sequences:
            return self.sample_orbits(rng, 4 * n, 4).take(slice(3, None, 4))

    check_task(OneOfEach(**task.describe()), np.random.default_rng(1))


@pytest.mark.parametrize("task", [*SOUND, HMM(), FixedHMM()], ids=str)
def test_task_is_its_description(task):
    assert make_task(type(task), task.describe()) == task


def test_every_column_has_a_unit():
    for task in (HMM(K=2, predict="both"), FixedHMM(K=2), Mess3(K=2)):
        assert set(task.sample(np.random.default_rng(0), 2).columns) == set(task.units)


def test_task_without_a_length_says_so():
    class Plain(Task):
        name, vocab_size, n_positions = "plain", 2, 2

        def sample(self, rng, n):
            raise NotImplementedError

    with pytest.raises(UsageError, match="the task 'plain' over 7 observations: its length cannot be changed"):
        Plain().lengthened(7)


def test_bijection_is_lengthened_as_far_as_its_keys_go():
    assert Bijection(V=5, L=4).lengthened(9) == Bijection(V=5, L=9)
    with pytest.raises(UsageError, match="L = 9 distinct keys out of 5"):
        Bijection(V=5, L=4, replacement=False).lengthened(9)


def with_posterior(sequences: Sequences, posterior: np.ndarray) -> Sequences:
    columns = {**sequences.columns, "bayes_entropy_bits": entropy_bits(posterior)}
    return dataclasses.replace(sequences, posterior=posterior, columns=columns)


def label_of_the_next_state(sequences: Sequences) -> Sequences:
    return dataclasses.replace(sequences, targets=np.roll(sequences.targets, -1, axis=1))


def asked_at_the_marker(sequences: Sequences) -> Sequences:
    """The posterior after a symbol, one token before the symbol is shown."""
    return dataclasses.replace(sequences, scored=sequences.scored - 1)


def leaked_answer(sequences: Sequences) -> Sequences:
    """The marker before a symbol says which state is behind it."""
    tokens = sequences.tokens.copy()
    tokens[:, sequences.scored - 1] = sequences.targets
    return dataclasses.replace(sequences, tokens=tokens)


def uniform(sequences: Sequences) -> Sequences:
    return with_posterior(sequences, np.full_like(sequences.posterior, 1 / len(sequences.slice_ids)))


def answers_the_first_question_again(sequences: Sequences) -> Sequences:
    return with_posterior(sequences, np.repeat(sequences.posterior[:, :1], sequences.posterior.shape[1], axis=1))


def states_of_another_name(sequences: Sequences) -> Sequences:
    return with_posterior(sequences, np.roll(sequences.posterior, 1, axis=-1))


@dataclass(frozen=True)
class BrokenHMM(HMM):
    S: int = 2
    O: int = 2  # noqa: E741
    K: int = 2
    floor: float = 0.25
    grid: float = 0.25
    defect: Callable = dataclasses.field(default=lambda sequences: sequences)

    def sample(self, rng: np.random.Generator, n: int) -> Sequences:
        return self.defect(super().sample(rng, n))


@dataclass(frozen=True)
class BrokenFixedHMM(FixedHMM):
    S: int = 2
    O: int = 2  # noqa: E741
    K: int = 4
    predict: str = "state"
    defect: Callable = dataclasses.field(default=lambda sequences: sequences)

    def sample(self, rng: np.random.Generator, n: int) -> Sequences:
        return self.defect(super().sample(rng, n))


@pytest.mark.parametrize("broken", [BrokenHMM, BrokenFixedHMM])
@pytest.mark.parametrize(
    ("defect", "words"),
    [
        (label_of_the_next_state, "the answers do not follow the posterior"),
        (asked_at_the_marker, "depends on something that the tokens before do not show"),
        (leaked_answer, "the answers do not follow the posterior"),
        (uniform, "the answers do not follow the posterior"),
        (answers_the_first_question_again, "the answers do not follow the posterior"),
        (states_of_another_name, "the answers do not follow the posterior"),
    ],
)
def test_defect_is_caught(broken, defect, words):
    with pytest.raises(InterpError) as refusal:
        check_task(broken(defect=defect), np.random.default_rng(0))
    assert words in str(refusal.value)


@pytest.mark.parametrize("broken", [BrokenHMM, BrokenFixedHMM])
def test_task_without_a_defect_passes_the_same_way(broken):
    check_task(broken(), np.random.default_rng(0))


def transition_from_the_start(initial, transition, emission, symbols) -> Filtered:
    return filter_states((initial @ transition)[0], transition, emission, symbols)


def transposed_transition(initial, transition, emission, symbols) -> Filtered:
    backwards = transition.swapaxes(1, 2)
    return filter_states(initial, backwards / backwards.sum(axis=2, keepdims=True), emission, symbols)


def no_transition(initial, transition, emission, symbols) -> Filtered:
    return filter_states(initial, np.full_like(transition, 1 / len(initial)), emission, symbols)


def last_symbol_ignored(initial, transition, emission, symbols) -> Filtered:
    right = filter_states(initial, transition, emission, symbols)
    return Filtered(right.before, right.before, right.symbol)


@pytest.mark.parametrize(
    "wrong_filter", [transition_from_the_start, transposed_transition, no_transition, last_symbol_ignored]
)
def test_wrong_recursion_is_caught(wrong_filter, monkeypatch):
    monkeypatch.setattr("interp.wind_tunnels.tasks.hmm_fixed.filter_states", wrong_filter)
    task = FixedHMM(S=3, O=2, K=4, parameters_seed=1, predict="state")
    with pytest.raises(InterpError, match="the answers do not follow the posterior"):
        check_task(task, np.random.default_rng(0), n=100_000)


def label_on_the_symbol_itself(sequences: Sequences) -> Sequences:
    """After START: the symbol read is the symbol asked for."""
    return dataclasses.replace(
        sequences,
        scored=sequences.scored[1:],
        targets=sequences.tokens[:, 1:],
        posterior=sequences.posterior[:, 1:],
        columns={name: column[:, 1:] for name, column in sequences.columns.items()},
        belief=None,
        windows={},
    )


def symbol_of_the_step_after(sequences: Sequences) -> Sequences:
    return dataclasses.replace(sequences, targets=np.roll(sequences.targets, -1, axis=1))


def belief_for_the_prediction(sequences: Sequences) -> Sequences:
    return with_posterior(sequences, sequences.belief)


def shows_the_answer(sequences: Sequences) -> Sequences:
    return dataclasses.replace(sequences, tokens=sequences.targets)


@dataclass(frozen=True)
class BrokenMess3(Mess3):
    K: int = 4
    defect: Callable = dataclasses.field(default=lambda sequences: sequences)

    def sample(self, rng: np.random.Generator, n: int) -> Sequences:
        return self.defect(super().sample(rng, n))


@pytest.mark.parametrize(
    ("defect", "words"),
    [
        (label_on_the_symbol_itself, "the answers do not follow the posterior"),
        (symbol_of_the_step_after, "the answers do not follow the posterior"),
        (belief_for_the_prediction, "the answers do not follow the posterior"),
        (uniform, "the answers do not follow the posterior"),
        (shows_the_answer, "the answers do not follow the posterior"),
    ],
)
def test_defect_of_mess3_is_caught(defect, words):
    with pytest.raises(InterpError) as refusal:
        check_task(BrokenMess3(defect=defect), np.random.default_rng(0))
    assert words in str(refusal.value)
