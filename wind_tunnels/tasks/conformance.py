"""Conformance: tests from samples whether the targets of a task are draws from the posterior that it claims.

Sequences are grouped by their tokens up to a scored position, and targets are compared with the claimed posterior by a
χ² test. It detects a wrong posterior, a label of another position, and an answer visible in the prefix.
"""

import numpy as np
from scipy import stats

from interp.errors import InterpError
from interp.information import entropy_bits
from interp.tunnel import Sequences, Task

MIN_P = 1e-6
"""A correct task fails once in a million."""

_MIN_EXPECTED = 5.0


def check_task(task: Task, rng: np.random.Generator, n: int = 20_000) -> None:
    """Raise `InterpError` if sampled sequences contradict the description or posterior of the task.

    Choose sizes with far fewer than `n` different sequences; prefixes too rare for a χ² test are left out.
    """
    sequences = task.sample(rng, n)
    for found in (_contradiction(task, sequences), _wrong_posterior(sequences)):
        if found is not None:
            raise InterpError(asked=f"the task {task.name!r}", found=found, fix="Fix its `sample`.")


def _contradiction(task: Task, sequences: Sequences) -> str | None:
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
    """A message about the first scored position whose targets are not draws from the posterior."""
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
