"""Latent-label problems with worked steps: does more working bring the answer nearer to the posterior?

    stone: lum, river: lum, paper: tal, field: lum. Step 1: lum 1, tal 0. Step 2: lum 2, tal 0. window:

All evidence is in front. A worked step counts one more example, and brings nothing that was not there: the exact
posterior is the same after 0, 1, 2 and 4 steps, and what changes is how much of the counting the reader is spared.
Columns hold that posterior, and (`worked_entropy_bits`, `p_label_1_worked`) the one of a reader who knows only what
the steps have counted. The steps come in three kinds, token for token equally long:

    worked      the counts as they are
    filler      the neutral word and zeros in place of labels and counts
    shuffled    the counts of another problem, in the right words

Source: chain of thought as further rounds of elimination; the latent-label process is that of `interp.prompts.sula`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from interp.errors import PromptError, UnknownName
from interp.prompt import PromptSet

from .evidence import Problems, check_sizes, draw_problems, evidence_columns
from .sula import RELIABILITY, Words, Written, choose_words, joined, problem_columns, roles, taken

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

STEPS = (0, 1, 2, 4)
CONDITIONS = ("worked", "filler", "shuffled")

_UNITS = {"n_steps": "steps", "worked_entropy_bits": "bits", "p_label_1_worked": "probability"}


def steps(n_pool: int | None = None, seed: int = 0, *, tokenizer: "PreTrainedTokenizerBase") -> PromptSet:
    """200 problems of four examples with 0, 1, 2 and 4 steps of each kind: 2,400 prompts; `n_pool` as in `sula`."""
    return taken(steps_prompts(tokenizer, seed=seed), n_pool, seed)


def steps_prompts(
    tokenizer: "PreTrainedTokenizerBase",
    *,
    n: int = 200,
    k: int = 4,
    n_steps: Sequence[int] = STEPS,
    conditions: Sequence[str] = CONDITIONS,
    reliability: float = RELIABILITY,
    carriers: str | Sequence[str] = "neutral",
    labels: Sequence[tuple[str, str]] | None = None,
    neutral: str | None = None,
    seed: int = 0,
) -> PromptSet:
    """`n` problems of `k` examples, each with every number of steps of every kind; words as in `sula_prompts`."""
    check_sizes("steps", {"n_steps": n_steps, "k": (k,)}, n, reliability)
    for condition in conditions:
        if condition not in CONDITIONS:
            raise UnknownName("condition", condition, CONDITIONS)
    if max(n_steps) > k or k > 9:
        raise PromptError(
            asked=f"{max(n_steps)} steps on {k} examples",
            found="a step counts one example, and counts have one digit",
            fix="Take at most as many steps as examples, and at most 9 examples.",
        )
    if n < 2:
        raise PromptError(asked=f"{n} problem", found="shuffled steps are another problem's", fix="Take 2 or more.")
    rng = np.random.default_rng(seed)
    problems = draw_problems((k,), n, reliability, rng)
    words = choose_words(tokenizer, problems, carriers, labels, neutral, rng)
    order = rng.permutation(n)
    others = np.roll(order, 1)[np.argsort(order)]  # another problem for each
    parts = [
        _written(condition, problems, words, reliability, many, others)
        for condition in dict.fromkeys(conditions)
        for many in n_steps
    ]
    about = f"{n} problems of {k} examples with {', '.join(map(str, n_steps))} steps, {', '.join(conditions)}"
    return joined("steps", parts, tokenizer, about, words, reliability, seed, _UNITS)


def _written(
    condition: str, problems: Problems, words: Words, reliability: float, n_steps: int, others: np.ndarray
) -> Written:
    labels = roles(words.main, problems.swapped)
    latent = np.array([pair[i].word for pair, i in zip(labels, problems.latent.tolist(), strict=True)])
    counted = problems.shown[others] if condition == "shuffled" else problems.shown
    texts = []
    for i, pair in enumerate(labels):
        examples = ", ".join(
            f"{carrier}: {pair[label].word}"
            for carrier, label in zip(words.carriers[i].tolist(), problems.shown[i].tolist(), strict=True)
        )
        named = (words.neutral, words.neutral) if condition == "filler" else pair
        said = "".join(_step(j, named, counted[i, :j], condition == "filler") for j in range(1, n_steps + 1))
        texts.append(f"{examples}.{said} {words.queries[i]}:")
    worked = np.where(np.arange(problems.shown.shape[1]) < n_steps, problems.shown, -1)
    so_far = evidence_columns(worked, reliability)
    columns = problem_columns(condition, labels, latent, words.queries) | evidence_columns(problems.shown, reliability)
    columns |= {
        "n_steps": np.full(len(problems), n_steps),
        "worked_entropy_bits": so_far["bayes_entropy_bits"],
        "p_label_1_worked": so_far["p_label_1"],
    }
    return Written(texts, columns, labels)


def _step(number: int, named: Sequence, counted: np.ndarray, is_filler: bool) -> str:
    counts = (0, 0) if is_filler else (int((counted == 0).sum()), int((counted == 1).sum()))
    return f" Step {number}: {named[0].word} {counts[0]}, {named[1].word} {counts[1]}."
