"""Conformance: does a task mean what it says? Judged from its samples alone, so it serves tasks of any kind.

Sequences of a task small enough that every prefix comes many times are grouped by the tokens up to and including a
scored position. Within a group the targets are draws from the true predictive distribution, whatever the task claims;
they are compared with the claimed posterior by a χ² test. That catches a wrong posterior, a label that belongs to
another position, and an answer that can be read off the prefix, all in the same way.
"""

import numpy as np
from scipy import stats

from interp.errors import InterpError
from interp.information import entropy_bits
from interp.tunnel import Sequences, Task

MIN_P = 1e-6
"""A sound task fails once in a million tries."""

_MIN_EXPECTED = 5.0


def check_task(task: Task, rng: np.random.Generator, n: int = 20_000) -> None:
    """Raise `InterpError` where the sequences of the task contradict its own description or posterior.

    Choose sizes with far fewer than `n` different sequences; prefixes that come too rarely for a χ² test are left out.
    """
    sequences = task.sample(rng, n)
    for found in (_contradiction(task, sequences), _wrong_posterior(sequences)):
        if found is not None:
            raise InterpError(asked=f"the task {task.name!r}", found=found, fix="Fix its `sample`.")


def _contradiction(task: Task, sequences: Sequences) -> str | None:
    """What does not need statistics."""
    p = sequences.posterior
    if sequences.tokens.shape[1] != task.n_positions:
        return f"sequences of {sequences.tokens.shape[1]} tokens where {task.n_positions} are announced"
    if sequences.tokens.min() < 0 or max(sequences.tokens.max(), sequences.slice_ids.max()) >= task.vocab_size:
        return f"tokens outside the vocabulary of {task.vocab_size}"
    if p.min() < 0 or np.abs(p.sum(axis=-1) - 1.0).max() > 1e-12:
        return "a posterior that is not a distribution"
    if np.abs(sequences.columns["bayes_entropy_bits"] - entropy_bits(p)).max() > 1e-9:
        return "bayes_entropy_bits is not the entropy of the posterior"
    if not np.isin(sequences.targets, sequences.slice_ids).all():
        return "targets outside the slice"
    missing = set(sequences.columns) - set(task.units)
    return f"columns without a unit: {sorted(missing)}" if missing else None


def _wrong_posterior(sequences: Sequences) -> str | None:
    """The first scored position whose targets are not draws from the posterior, if there is one."""
    is_drawn = sequences.targets[..., None] == sequences.slice_ids
    for index, position in enumerate(sequences.scored):
        prefixes = sequences.tokens[:, : position + 1]
        _, first, group = np.unique(prefixes, axis=0, return_index=True, return_inverse=True)
        claimed = sequences.posterior[:, index]
        if np.abs(claimed - claimed[first][group]).max() > 1e-9:
            return f"at position {position} the posterior depends on something that the tokens before do not show"
        observed, expected = (
            np.stack([np.bincount(group, column) for column in of.T], axis=1) for of in (is_drawn[:, index], claimed)
        )
        if (observed[expected == 0] > 0).any():
            return f"at position {position} the answer is one that the posterior rules out"
        enough = (np.where(expected > 0, expected, np.inf) >= _MIN_EXPECTED).all(axis=1)
        possible = expected[enough] > 0
        square = np.square(observed[enough] - expected[enough])[possible] / expected[enough][possible]
        freedom = int(possible.sum() - enough.sum())
        if freedom and stats.chi2.sf(square.sum(), freedom) < MIN_P:
            return (
                f"at position {position} the answers do not follow the posterior (χ² {square.sum():.0f} on {freedom})"
            )
    return None
