"""A decoded belief against the exact one, row by row: distance and divergence, or answers told right.

Distributions: the linear prediction is put on the simplex (belief_target). Total variation is ½ Σ|p − q|. KL(p ‖ q) is
infinite where q is zero and p is not, which a projection easily gives; so for KL alone q is mixed with 1 % of the mean
belief of the sequences fitted on. Sets: a component is decoded as in the set above one half.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from interp.information import cross_entropy_bits, entropy_bits, kl_bits, restricted, total_variation

from .readout import Reading, Setting
from .target import ExactBelief, nearest_on_simplex

MIXED_IN = 0.01


@dataclass(frozen=True)
class Scores:
    """One score at every row, what position alone scores, and its mean for every exchange of the exact beliefs."""

    by_row: Float[np.ndarray, " row"]
    by_position: Float[np.ndarray, " row"]
    permuted: Float[np.ndarray, " permutation"]


def decoded(belief: ExactBelief, predicted: Float[np.ndarray, "row component"]) -> Float[np.ndarray, "row component"]:
    """The belief that a linear prediction stands for: on the simplex, a set, the likeliest name, or itself."""
    if belief.kind == "distribution":
        return nearest_on_simplex(predicted)
    if belief.kind == "category":
        return np.eye(predicted.shape[1])[predicted.argmax(axis=1)]
    return (predicted > 0.5).astype(np.float64) if belief.kind == "set" else predicted


def scores(setting: Setting, reading: Reading) -> Mapping[str, Scores]:
    """The scores that the kind of belief has: none for a vector."""
    belief = setting.belief
    if belief.kind == "vector":
        return {}
    mine, position = decoded(belief, reading.predicted), decoded(belief, reading.by_position)
    if belief.kind in ("set", "category"):
        over = np.mean if belief.kind == "set" else np.all

        def is_right(truth: np.ndarray, answer: np.ndarray) -> np.ndarray:
            return over(truth == answer, axis=1).astype(np.float64)

        return {"accuracy": _scores(belief.values, mine, position, is_right, setting.orders)}
    mixed, position_mixed = ((1 - MIXED_IN) * q + MIXED_IN * reading.by_mean for q in (mine, position))
    with np.errstate(divide="ignore"):
        log_q = np.log2(mixed)
    # the own entropies of permuted beliefs only change places
    crossed = np.array([cross_entropy_bits(belief.values[order], log_q).mean() for order in setting.orders])
    permuted = crossed - entropy_bits(belief.values).mean()
    return {
        "tvd": _scores(belief.values, mine, position, total_variation, setting.orders),
        "kl_bits": Scores(kl_bits(belief.values, mixed), kl_bits(belief.values, position_mixed), permuted),
    }


def _scores(truth: np.ndarray, mine: np.ndarray, position: np.ndarray, score, orders: np.ndarray) -> Scores:
    permuted = np.array([score(truth[order], mine).mean() for order in orders])
    return Scores(score(truth, mine), score(truth, position), permuted)


def output_distance(
    log_q: Float[np.ndarray, "row outcome"], posterior: Float[np.ndarray, "row outcome"],
    orders: Int[np.ndarray, "permutation row"],
) -> Scores:  # fmt: skip
    """Total variation of the model's own prediction (log2), restricted to the outcomes, from the exact posterior."""
    q = np.exp2(restricted(log_q))
    return _scores(posterior, q, np.full_like(q, np.nan), total_variation, orders)
