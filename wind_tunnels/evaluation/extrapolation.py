"""Extrapolation in length: a network on sequences longer than it was trained on.

A mean over all positions hides where a network breaks: the error may be a hundred times larger one position beyond the
trained length and flat afterwards. So the curve over positions is kept, and of it: the means up to and beyond the
trained length, the jump from the last trained position to the first one beyond, and the error beyond as a share of the
error of the uniform answer there (1 is no skill left).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from interp.errors import UsageError
from interp.records.tunnel_card import Figure
from interp.tunnel import Sequences, Task

from .baselines import baseline_kl
from .evaluation import Evaluation, evaluate, figure_of, primary_slice, ratio, resampled, score


@dataclass(frozen=True)
class Extrapolation:
    """An evaluation on longer sequences; `figures` compare what lies up to and beyond `n_trained` tokens."""

    evaluation: Evaluation
    figures: Mapping[str, Figure]
    n_trained: int


def longer(task: Task, n_observations: int) -> Task:
    """The task over more observations than a network was trained on; refused where it is no longer at all."""
    lengthened = task.lengthened(n_observations)
    asked = f"extrapolation of {task.name} to {n_observations} observations"
    if lengthened.n_positions <= task.n_positions:
        raise UsageError(
            asked=asked,
            found=f"its sequences have {lengthened.n_positions} tokens, and the network was trained on "
            f"{task.n_positions}: they are not longer",
            fix="Name a larger length.",
        )
    if lengthened.vocab_size != task.vocab_size:
        raise UsageError(
            asked=asked,
            found=f"it takes {lengthened.vocab_size} token ids, and the network knows {task.vocab_size}",
            fix="Train a network on a task with more symbols, or name a smaller length.",
        )
    return lengthened


def extrapolate(
    log_probs: Float[np.ndarray, "sequence scored vocab"],
    sequences: Sequences,
    n_trained: int,
    rng: np.random.Generator,
) -> Extrapolation:
    """Hold predictions on lengthened sequences against the posterior; `n_trained` is the trained length in tokens.

    With named slices the comparison is that of the primary one; the evaluation has the curves of all.
    """
    evaluation = evaluate(log_probs, sequences, rng)
    weights = resampled(len(sequences), rng)
    log_probs, sequences = primary_slice(log_probs, sequences)
    scored = score(log_probs, sequences)
    is_beyond = sequences.scored >= n_trained
    if is_beyond.all() or not is_beyond.any():
        raise ValueError(f"scored positions {sequences.scored} all lie on one side of the trained length {n_trained}")
    uniform = weights @ baseline_kl(sequences)["uniform"]
    figures: dict[str, Figure] = {}
    for name, key in (("kl_bits", "kl_bits"), ("mae_per_sequence_bits", "absolute_entropy_error_bits")):
        figures |= _compared(name, weights @ scored[key], is_beyond)
    blind = uniform[:, is_beyond].mean(axis=1)
    beyond = (weights @ scored["kl_bits"])[:, is_beyond].mean(axis=1)
    figures["kl_bits_beyond_to_uniform"] = figure_of(ratio(beyond, blind), "1")
    return Extrapolation(evaluation, figures, n_trained)


def _compared(
    name: str, curve: Float[np.ndarray, "resample scored"], is_beyond: Bool[np.ndarray, " scored"]
) -> dict[str, Figure]:
    """One error within and beyond the trained length; scored positions rise."""
    first = int(np.argmax(is_beyond))
    return {
        f"{name}_within": figure_of(curve[:, ~is_beyond].mean(axis=1), "bits"),
        f"{name}_beyond": figure_of(curve[:, is_beyond].mean(axis=1), "bits"),
        f"{name}_jump": figure_of(ratio(curve[:, first], curve[:, first - 1]), "1"),
    }
