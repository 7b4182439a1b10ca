"""Recall, regression, coin, permutation and mixture follow their own posteriors; what is wrong with one is caught."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from interp.wind_tunnels.tasks.coin import Coin
from interp.wind_tunnels.tasks.conformance import check_task
from interp.wind_tunnels.tasks.mixture import Mixture
from interp.wind_tunnels.tasks.permutation import IteratedPermutation
from interp.wind_tunnels.tasks.recall import Recall
from interp.wind_tunnels.tasks.regression import Regression

from interp.errors import InterpError
from interp.information import entropy_bits
from interp.prompting.tunnel_sequences import sampled_prompts
from interp.tunnel import Sequences, Task, make_task

NOISY = Recall(n_pairs=2, n_keys=3, n_values=3, n_queries=2, noise=0.3, score="all")
SMALL_REGRESSION = Regression(L=3, n_x=2, n_y=3, n_w=3)
COIN = Coin(n_tosses=4)
ELIMINATION = {"task": "bijection", "V": 3, "L": 3, "replacement": False}
TOSSES = {"task": "coin", "n_tosses": 3, "concentration": (1.0, 2.0)}
MIXED = Mixture([ELIMINATION, TOSSES])

SOUND = [
    Recall(n_pairs=2, n_keys=3, n_values=3, n_queries=1, score="all"),
    NOISY,
    Recall(n_pairs=2, n_keys=3, n_values=2, n_queries=2, n_fillers=2, noise=0.2, layout="marked"),
    SMALL_REGRESSION,
    COIN,
    Coin(n_tosses=4, concentration=(0.5,) * 3, layout="plain"),
    IteratedPermutation(V=3, n_shown=1, depth=4),
    IteratedPermutation(V=3, n_shown=1, depth=4, scratchpad=False),
    MIXED,
    Mixture([ELIMINATION, ELIMINATION, ELIMINATION], "shared"),
]


@pytest.mark.parametrize("task", SOUND, ids=str)
def test_task_conforms(task):
    check_task(task, np.random.default_rng(0))


@pytest.mark.parametrize("task", SOUND, ids=str)
def test_orbits_conform(task):
    """Copies depend on one another, so one of every four is judged: each alone is an ordinary draw."""

    @dataclass(frozen=True)
    class OneOfEach(type(task)):
        def sample(self, rng: np.random.Generator, n: int) -> Sequences:
            return self.sample_orbits(rng, 4 * n, 4).take(slice(3, None, 4))

    check_task(OneOfEach(**task.describe()), np.random.default_rng(1))


@pytest.mark.parametrize("task", [*SOUND, Recall(), Regression(), Coin(), Mixture(), Mixture("same")], ids=str)
def test_task_is_its_description_and_survives_json(task):
    assert make_task(type(task), task.describe()) == task
    read = json.loads(json.dumps(task.describe()))
    assert make_task(type(task), read) == task
    assert hash(make_task(type(task), read)) == hash(task)


@pytest.mark.parametrize("task", SOUND, ids=str)
def test_every_column_has_a_unit_and_every_unit_a_column(task):
    assert set(task.sample(np.random.default_rng(0), 2).columns) == set(task.units)


@pytest.mark.parametrize("task", SOUND, ids=str)
def test_scored_positions_and_slice_are_the_same_in_every_draw(task):
    first, second = task.sample(np.random.default_rng(0), 3), task.sample(np.random.default_rng(1), 4)
    np.testing.assert_array_equal(first.scored, second.scored)
    np.testing.assert_array_equal(first.slice_ids, second.slice_ids)
    assert len(first) == 3 and len(second) == 4


@pytest.mark.parametrize("task", [NOISY, SMALL_REGRESSION, COIN, MIXED], ids=lambda task: task.name)
def test_task_makes_prompts_with_units_posterior_and_domain(task):
    prompts = sampled_prompts(task, n=6, seed=3)
    drawn = task.sample(np.random.default_rng(3), 6)
    assert [prompt.columns["domain"] for prompt in prompts.prompts] == drawn.domain.tolist()
    assert {name: prompts.units[name] for name in task.units} == dict(task.units)
    np.testing.assert_array_equal(prompts.posterior, drawn.posterior.reshape(-1, drawn.posterior.shape[2]))
    assert (prompts.belief is None) == (drawn.belief is None)


@pytest.mark.parametrize("task", SOUND, ids=str)
def test_curriculum_ends_in_the_task_itself_and_keeps_its_vocabulary(task):
    stages = task.curriculum()
    assert stages[-1] == task
    assert {stage.vocab_size for stage in stages} == {task.vocab_size}


@pytest.mark.parametrize("task", [SMALL_REGRESSION, COIN], ids=str)
def test_beliefs_are_distributions(task):
    belief = task.sample(np.random.default_rng(0), 50).belief
    assert belief.min() >= 0
    np.testing.assert_allclose(belief.sum(axis=-1), 1.0, atol=1e-12)


def with_posterior(sequences: Sequences, posterior: np.ndarray) -> Sequences:
    columns = {**sequences.columns, "bayes_entropy_bits": entropy_bits(posterior)}
    return dataclasses.replace(sequences, posterior=posterior, columns=columns)


def label_of_the_next(sequences: Sequences) -> Sequences:
    return dataclasses.replace(sequences, targets=np.roll(sequences.targets, -1, axis=1))


def knows_nothing(sequences: Sequences) -> Sequences:
    return with_posterior(sequences, np.full_like(sequences.posterior, 1 / len(sequences.slice_ids)))


def forgets_the_last_evidence(sequences: Sequences) -> Sequences:
    """What was known one scored position before."""
    return with_posterior(sequences, sequences.posterior[:, np.maximum(np.arange(len(sequences.scored)) - 1, 0)])


def peeks_at_the_answer(sequences: Sequences) -> Sequences:
    return with_posterior(sequences, (sequences.targets[..., None] == sequences.slice_ids).astype(float))


def leaked_answer(sequences: Sequences) -> Sequences:
    """The scored token itself tells the answer, as far as the vocabulary goes."""
    tokens = sequences.tokens.copy()
    own = np.unique(tokens[:, sequences.scored])
    answer = np.searchsorted(sequences.slice_ids, sequences.targets)
    tokens[:, sequences.scored] = np.where(answer < len(own), own[answer % len(own)], tokens[:, sequences.scored])
    return dataclasses.replace(sequences, tokens=tokens)


def slot_filled_before_it_is_asked(sequences: Sequences) -> Sequences:
    """The answer in the place of the token that stands before the scored one."""
    tokens = sequences.tokens.copy()
    tokens[:, sequences.scored[1:] - 1] = sequences.targets[:, 1:]
    return dataclasses.replace(sequences, tokens=tokens)


def trusts_its_cue(sequences: Sequences) -> Sequences:
    """As if the channel were noiseless wherever a cue is a stored key."""
    certain = (sequences.posterior == sequences.posterior.max(axis=-1, keepdims=True)).astype(float)
    stored = sequences.columns["is_query"] & sequences.columns["is_stored"]
    return with_posterior(sequences, np.where(stored[..., None], certain, sequences.posterior))


def names_a_domain_it_does_not_know(sequences: Sequences) -> Sequences:
    """The domain token hidden: the posterior then depends on what the tokens do not show."""
    tokens = sequences.tokens.copy()
    tokens[:, :2] = 0
    return dataclasses.replace(sequences, tokens=tokens)


def counts_in_the_wrong_units(sequences: Sequences) -> Sequences:
    columns = {**sequences.columns, "bayes_entropy_bits": sequences.columns["bayes_entropy_bits"] * np.log(2)}
    return dataclasses.replace(sequences, columns=columns)


def broken(task: Task, defect: Callable[[Sequences], Sequences]) -> Task:
    @dataclass(frozen=True)
    class Broken(type(task)):
        def sample(self, rng: np.random.Generator, n: int) -> Sequences:
            return defect(super().sample(rng, n))

    return Broken(**task.describe())


@pytest.mark.parametrize(
    "defect",
    [
        label_of_the_next,
        knows_nothing,
        forgets_the_last_evidence,
        peeks_at_the_answer,
        leaked_answer,
        counts_in_the_wrong_units,
    ],
)
@pytest.mark.parametrize("task", [NOISY, SMALL_REGRESSION, MIXED], ids=lambda task: task.name)
def test_defect_is_caught(task, defect):
    with pytest.raises(InterpError, match=f"the task '{task.name}'"):
        check_task(broken(task, defect), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("task", "defect", "words"),
    [
        (COIN, knows_nothing, "at position 2 the answers do not follow the posterior"),
        (COIN, forgets_the_last_evidence, "at position 2 the answers do not follow the posterior"),
        (COIN, peeks_at_the_answer, "depends on something that the tokens before do not show"),
        (COIN, slot_filled_before_it_is_asked, "at position 2"),
        (NOISY, trusts_its_cue, "the answer is one that the posterior rules out"),
        (NOISY, slot_filled_before_it_is_asked, "at position"),
        (MIXED, names_a_domain_it_does_not_know, "at position 1 the posterior depends on something"),
    ],
)
def test_defect_is_named(task, defect, words):
    with pytest.raises(InterpError) as refusal:
        check_task(broken(task, defect), np.random.default_rng(0))
    assert words in str(refusal.value)


def test_exchangeable_tosses_hide_a_shifted_label_which_the_tokens_then_show():
    """Tosses are exchangeable: the label of a later toss follows the same posterior, so statistics cannot see it."""
    sequences = COIN.sample(np.random.default_rng(0), 50)
    np.testing.assert_array_equal(sequences.targets[:, :-1], sequences.tokens[:, sequences.scored[:-1] + 1])


@pytest.mark.parametrize("task", [NOISY, SMALL_REGRESSION, COIN, MIXED], ids=lambda task: task.name)
def test_task_without_a_defect_passes_the_same_way(task):
    check_task(broken(task, lambda sequences: sequences), np.random.default_rng(0))
