"""Every task follows its own posterior, and what is wrong with one is caught and named."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from interp.wind_tunnels.tasks.bijection import Bijection
from interp.wind_tunnels.tasks.coin import Coin
from interp.wind_tunnels.tasks.conformance import check_task
from interp.wind_tunnels.tasks.filtering import Filtered, filter_states
from interp.wind_tunnels.tasks.hmm import HMM
from interp.wind_tunnels.tasks.hmm_fixed import FixedHMM
from interp.wind_tunnels.tasks.mess3 import Mess3
from interp.wind_tunnels.tasks.mixture import Mixture
from interp.wind_tunnels.tasks.permutation import IteratedPermutation
from interp.wind_tunnels.tasks.recall import Recall
from interp.wind_tunnels.tasks.recurrence import Recurrence
from interp.wind_tunnels.tasks.regression import Regression
from interp.wind_tunnels.tasks.selection import Selection

from interp.errors import InterpError, UsageError
from interp.information import entropy_bits
from interp.prompting.tunnel_sequences import sampled_prompts
from interp.tunnel import Sequences, Task, make_task
from tests.quick import quick

NOISY = Recall(n_pairs=2, n_keys=3, n_values=3, n_queries=2, noise=0.3, score="all")
SMALL_REGRESSION = Regression(L=3, n_x=2, n_y=3, n_w=3)
COIN = Coin(n_tosses=4)
ELIMINATION = {"task": "bijection", "V": 3, "L": 3, "replacement": False}
TOSSES = {"task": "coin", "n_tosses": 3, "concentration": (1.0, 2.0)}
MIXED = Mixture([ELIMINATION, TOSSES])
PAIRS = Bijection(V=3, L=4)
HIDDEN = HMM(S=2, O=2, K=2, floor=0.25, grid=0.25)
FIXED = FixedHMM(S=2, O=2, K=4, predict="state")

SOUND = [
    Bijection(V=2, L=2, replacement=False),
    Bijection(V=3, L=3, replacement=False),
    Bijection(V=3, L=4, replacement=True),
    Bijection(V=4, L=3, replacement=True, key_pool=2),
    Bijection(V=3, L=3, replacement=True, layout="paired"),
    Bijection(V=4, L=3, replacement=False, layout="paired"),
    HIDDEN,
    HMM(S=2, O=2, K=2, floor=0.25, grid=0.25, predict="symbol"),
    HMM(S=2, O=2, K=2, floor=0.0, grid=0.5, predict="both"),
    HMM(S=2, O=3, K=1, floor=0.25, grid=0.25, predict="both"),
    HMM(S=2, O=2, K=2, floor=0.25, grid=0.25, header="rows", predict="both"),
    HMM(S=2, O=2, K=2, floor=0.25, grid=0.25, stay=0.5),
    FixedHMM(S=2, O=2, K=5),
    FixedHMM(S=3, O=2, K=4, predict="state", stay=0.0),
    Mess3(K=5),
    Mess3(K=3, x=0.5, a=1.0),
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
    Recurrence(p=3, length=6),
    Recurrence(p=5, length=5, symbols="fresh"),
    Recurrence(p=5, length=5, prefixes="trained"),
    Selection(V=6, L=3),
    Selection("rotations", "bijections", V=4, L=3),
]
FEW = [*{type(task): task for task in SOUND}.values()]  # one of each kind
FOUR = Mixture([{"task": "hmm", "K": 2}] * 4)  # of three sequences, one component has none
DESCRIBED = [*SOUND, *(type(task)() for task in FEW), Mixture("same"), FOUR]


@pytest.mark.parametrize("task", quick(FEW, SOUND), ids=str)
def test_task_conforms(task):
    check_task(task, np.random.default_rng(0))


@pytest.mark.parametrize(
    "task",
    quick([HIDDEN, SMALL_REGRESSION, MIXED], [task for task in SOUND if not isinstance(task, FixedHMM)]),
    ids=str,
)
def test_orbits_conform(task):
    """Copies depend on one another, so one of every four is judged: each alone is an ordinary draw."""

    @dataclass(frozen=True)
    class OneOfEach(type(task)):
        def sample(self, rng: np.random.Generator, n: int) -> Sequences:
            return self.sample_orbits(rng, 4 * n, 4).take(slice(3, None, 4))

    check_task(OneOfEach(**task.describe()), np.random.default_rng(1))


@pytest.mark.parametrize(
    "task",
    [
        Bijection(V=6, L=4, replacement=False),
        Coin(n_tosses=6, concentration=(0.5,) * 3),
        IteratedPermutation(V=6, n_shown=4, depth=4),
        IteratedPermutation(V=6, n_shown=4, depth=4, scratchpad=False),
        Mess3(),
        Recall(n_pairs=3, n_keys=6, n_values=5, n_queries=2, noise=0.2),
        Recurrence(p=5, length=8),
        Regression(L=6),
        Selection(V=6, L=6),
    ],
    ids=str,
)
def test_copies_of_a_sequence_differ_and_are_as_certain_with_every_answer_equally_often(task):
    m = task.most_copies
    assert len(task.sample_orbits(np.random.default_rng(0), 7, 100)) == 7
    drawn = task.sample_orbits(np.random.default_rng(0), 3 * m, 2 * m)
    assert len(np.unique(drawn.tokens, axis=0)) == 3 * m
    entropy = drawn.columns["bayes_entropy_bits"].reshape(3, m, -1)
    np.testing.assert_allclose(entropy, np.broadcast_to(entropy[:, :1], entropy.shape), atol=1e-12)
    if not isinstance(task, Regression | Selection):  # which are mirrored, or also asked for classes
        answers = np.sort(drawn.targets.reshape(3, m, -1), axis=1)
        assert (answers == np.repeat(drawn.slice_ids, m // len(drawn.slice_ids))[None, :, None]).all()


@pytest.mark.parametrize("task", DESCRIBED, ids=str)
def test_task_is_its_description_and_draws_agree_in_columns_positions_and_curriculum(task):
    for described in (task.describe(), json.loads(json.dumps(task.describe()))):
        again = make_task(type(task), described)
        assert again == task and hash(again) == hash(task)
    first, second = task.sample(np.random.default_rng(0), 3), task.sample(np.random.default_rng(1), 4)
    assert set(first.columns) == set(task.units)
    np.testing.assert_array_equal(first.scored, second.scored)
    np.testing.assert_array_equal(first.slice_ids, second.slice_ids)
    assert len(first) == 3 and len(second) == 4
    assert (np.diff(first.scored) > 0).all() and first.scored[0] >= 0 and first.scored[-1] < first.tokens.shape[1]
    assert first.targets.shape == (3, len(first.scored)) and np.isin(first.targets, first.slice_ids).all()
    stages = task.curriculum()
    assert stages[-1] == task
    assert {stage.vocab_size for stage in stages} == {task.vocab_size}


@pytest.mark.parametrize("task", [NOISY, SMALL_REGRESSION, COIN, MIXED], ids=lambda task: task.name)
def test_task_makes_prompts_with_units_posterior_and_domain(task):
    prompts = sampled_prompts(task, n=6, seed=3)
    drawn = task.sample(np.random.default_rng(3), 6)
    assert [prompt.columns["domain"] for prompt in prompts.prompts] == drawn.domain.tolist()
    assert {name: prompts.units[name] for name in task.units} == dict(task.units)
    np.testing.assert_array_equal(prompts.posterior, drawn.posterior.reshape(-1, drawn.posterior.shape[2]))
    assert (prompts.belief is None) == (drawn.belief is None)


@pytest.mark.parametrize(
    ("task", "n", "longer"),
    [
        (Bijection(V=5, L=4), 9, Bijection(V=5, L=9)),
        (Coin(n_tosses=3), 7, Coin(n_tosses=7)),
        (HMM(K=5), 12, HMM(K=12)),
        (FixedHMM(), 50, FixedHMM(K=50)),
        (Mess3(), 40, Mess3(K=40)),
        (Regression(L=3), 6, Regression(L=6)),
        (IteratedPermutation(V=5, n_shown=3, depth=3), 9, IteratedPermutation(V=5, n_shown=3, depth=9)),
    ],
    ids=str,
)
def test_longer_tasks_keep_their_words(task, n, longer):
    assert task.lengthened(n) == longer and longer.vocab_size == task.vocab_size


def test_tasks_that_cannot_be_longer_say_so():
    class Plain(Task):
        name, vocab_size, n_positions = "plain", 2, 2

        def sample(self, rng, n):
            raise NotImplementedError

    for task, words in (
        (Plain(), "the task 'plain' over 9 observations: its length cannot be changed"),
        (Bijection(V=5, L=4, replacement=False), "L = 9 distinct keys out of 5"),
        (IteratedPermutation(V=5, n_shown=3, scratchpad=False), "over 9 observations: its length cannot be changed"),
    ):
        with pytest.raises(UsageError, match=words):
            task.lengthened(9)


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


def trusts_its_cue(sequences: Sequences) -> Sequences:
    """As if the channel were noiseless wherever a cue is a stored key."""
    certain = (sequences.posterior == sequences.posterior.max(axis=-1, keepdims=True)).astype(float)
    stored = sequences.columns["is_query"] & sequences.columns["is_stored"]
    return with_posterior(sequences, np.where(stored[..., None], certain, sequences.posterior))


def adds_up_to_more(sequences: Sequences) -> Sequences:
    return with_posterior(sequences, 1.001 * sequences.posterior)


def counts_in_the_wrong_units(sequences: Sequences) -> Sequences:
    columns = {**sequences.columns, "bayes_entropy_bits": sequences.columns["bayes_entropy_bits"] * np.log(2)}
    return dataclasses.replace(sequences, columns=columns)


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


def broken(task: Task, defect: Callable[[Sequences], Sequences]) -> Task:
    @dataclass(frozen=True)
    class Broken(type(task)):
        def sample(self, rng: np.random.Generator, n: int) -> Sequences:
            return defect(super().sample(rng, n))

    return Broken(**task.describe())


UNFOLLOWED = "the answers do not follow the posterior"
UNSHOWN = "depends on something that the tokens before do not show"
MESS3 = Mess3(K=4)

DEFECTS = [
    (PAIRS, shifted_label, "at position 1 the answer"),
    (PAIRS, label_of_the_next, "the answer"),
    (PAIRS, knows_nothing, f"at position 2 {UNFOLLOWED}"),
    (PAIRS, peeks_at_the_answer, UNSHOWN),
    (PAIRS, adds_up_to_more, "a posterior that is not a distribution"),
    (PAIRS, counts_in_the_wrong_units, "bayes_entropy_bits is not the entropy of the posterior"),
    *((task, knows_nothing, UNFOLLOWED) for task in (HIDDEN, FIXED)),
    (MESS3, label_of_the_next, UNFOLLOWED),
    *((task, defect, "") for task in (NOISY, SMALL_REGRESSION, MIXED) for defect in (
        label_of_the_next, forgets_the_last_evidence, peeks_at_the_answer,
    )),
    (COIN, forgets_the_last_evidence, f"at position 2 {UNFOLLOWED}"),
    (NOISY, trusts_its_cue, "the answer is one that the posterior rules out"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "defect", "words"), DEFECTS, ids=lambda x: getattr(x, "__name__", str(x)))
def test_defect_is_caught_and_named(task, defect, words):
    with pytest.raises(InterpError, match=f"the task '{task.name}'") as refusal:
        check_task(broken(task, defect), np.random.default_rng(0))
    assert words in str(refusal.value)


def transposed_transition(initial, transition, emission, symbols) -> Filtered:
    backwards = transition.swapaxes(1, 2)
    return filter_states(initial, backwards / backwards.sum(axis=2, keepdims=True), emission, symbols)


def test_wrong_recursion_is_caught(monkeypatch):
    monkeypatch.setattr("interp.wind_tunnels.tasks.hmm.filter_states", transposed_transition)
    task = FixedHMM(S=3, O=2, K=4, parameters_seed=1, predict="state")
    with pytest.raises(InterpError, match="the answers do not follow the posterior"):
        check_task(task, np.random.default_rng(0), n=100_000)
