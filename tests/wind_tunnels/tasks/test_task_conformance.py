"""Every task follows its own posterior, and a task that does not is caught."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from interp.wind_tunnels.tasks.bijection import Bijection
from interp.wind_tunnels.tasks.conformance import check_task

from interp.errors import InterpError
from interp.information import entropy_bits
from interp.tunnel import Sequences, make_task

SOUND = [
    Bijection(V=2, L=2, replacement=False),
    Bijection(V=3, L=3, replacement=False),
    Bijection(V=3, L=4, replacement=True),
    Bijection(V=4, L=3, replacement=True, key_pool=2),
    Bijection(V=3, L=3, replacement=True, layout="paired"),
    Bijection(V=4, L=3, replacement=False, layout="paired"),
]


@pytest.mark.parametrize("task", SOUND, ids=str)
def test_task_conforms(task):
    check_task(task, np.random.default_rng(0))


@pytest.mark.parametrize("task", SOUND, ids=str)
def test_task_is_its_description(task):
    assert make_task(type(task), task.describe()) == task


def with_posterior(sequences: Sequences, posterior: np.ndarray) -> Sequences:
    columns = {**sequences.columns, "bayes_entropy_bits": entropy_bits(posterior)}
    return dataclasses.replace(sequences, posterior=posterior, columns=columns)


def shifted_label(sequences: Sequences) -> Sequences:
    """The label of a pair on the token that shows it: copying would be enough."""
    kept = sequences.take(slice(None))
    columns = {name: column[:, :-1] for name, column in kept.columns.items()}
    return dataclasses.replace(
        kept,
        scored=kept.scored[:-1] + 1,
        targets=kept.targets[:, :-1],
        posterior=kept.posterior[:, :-1],
        columns=columns,
        belief=None,
    )


def label_of_the_next_pair(sequences: Sequences) -> Sequences:
    return dataclasses.replace(sequences, targets=np.roll(sequences.targets, -1, axis=1))


def leaked_answer(sequences: Sequences) -> Sequences:
    """The key itself gives its value away."""
    tokens = sequences.tokens.copy()
    tokens[:, sequences.scored] = sequences.targets - sequences.slice_ids[0]
    return dataclasses.replace(sequences, tokens=tokens)


def knows_nothing(sequences: Sequences) -> Sequences:
    """Calibrated on average, but blind to the pairs before."""
    return with_posterior(sequences, np.full_like(sequences.posterior, 1 / len(sequences.slice_ids)))


def forgets_to_eliminate(sequences: Sequences) -> Sequences:
    blind = np.full_like(sequences.posterior, 1 / len(sequences.slice_ids))
    return with_posterior(sequences, np.where(sequences.columns["is_repeat"][..., None], sequences.posterior, blind))


def peeks_at_the_answer(sequences: Sequences) -> Sequences:
    return with_posterior(sequences, (sequences.targets[..., None] == sequences.slice_ids).astype(float))


def misstates_the_entropy(sequences: Sequences) -> Sequences:
    columns = {**sequences.columns, "bayes_entropy_bits": sequences.columns["bayes_entropy_bits"] * np.log(2)}
    return dataclasses.replace(sequences, columns=columns)


@dataclass(frozen=True)
class Broken(Bijection):
    """A bijection task with something wrong in it."""

    V: int = 3
    L: int = 4
    defect: Callable = dataclasses.field(default=lambda sequences: sequences)

    def sample(self, rng: np.random.Generator, n: int) -> Sequences:
        return self.defect(super().sample(rng, n))


@pytest.mark.parametrize(
    ("defect", "words"),
    [
        (shifted_label, "at position 1 the answer"),
        (label_of_the_next_pair, "the answer"),
        (leaked_answer, "the answers do not follow the posterior"),
        (knows_nothing, "at position 2 the answers do not follow the posterior"),
        (forgets_to_eliminate, "at position 2 the answers do not follow the posterior"),
        (peeks_at_the_answer, "depends on something that the tokens before do not show"),
        (misstates_the_entropy, "bayes_entropy_bits is not the entropy of the posterior"),
    ],
)
def test_defect_is_caught(defect, words):
    with pytest.raises(InterpError) as refusal:
        check_task(Broken(defect=defect), np.random.default_rng(0))
    assert words in str(refusal.value)


def test_task_without_a_defect_passes_the_same_way():
    check_task(Broken(), np.random.default_rng(0))
