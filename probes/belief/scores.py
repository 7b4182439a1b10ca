"""A decoded belief against the exact one, row by row: distance and divergence, or answers told right.

Distributions: the linear prediction is put on the simplex (belief_target). Total variation is ½ Σ|p − q|. KL(p ‖ q) is
infinite where q is zero and p is not, which a projection easily gives; so for KL alone q is mixed with 1 % of the mean
belief of the sequences fitted on. Sets: a component is decoded as in the set above one half.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from interp.information import entropy_bits, kl_bits, restricted, total_variation

from .readout import Reading, Setting
from .target import ExactBelief, nearest_on_simplex

MIXED_IN = 0.01


@dataclass(frozen=True)
class Scores:
    """One score at every row, what position alone scores, and its mean for every exchange of the exact beliefs."""

    by_row: Float[np.ndarray, " row"]
    by_position: Float[np.ndarray, " row"]
    exchanged: Float[np.ndarray, " exchange"]


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
    if belief.kind == "set":
        return {"accuracy": _scores(setting, mine, position, _share_right)}
    if belief.kind == "category":
        return {"accuracy": _scores(setting, mine, position, _is_right)}
    mixed, position_mixed = ((1 - MIXED_IN) * q + MIXED_IN * reading.by_mean for q in (mine, position))
    kl = Scores(kl_bits(belief.values, mixed), kl_bits(belief.values, position_mixed), _exchanged_kl(setting, mixed))
    return {"tvd": _scores(setting, mine, position, total_variation), "kl_bits": kl}


def _scores(setting: Setting, mine: np.ndarray, position: np.ndarray, score) -> Scores:
    truth = setting.belief.values
    exchanged = np.array([score(truth[order], mine).mean() for order in setting.orders])
    return Scores(score(truth, mine), score(truth, position), exchanged)


def _share_right(truth: np.ndarray, answer: np.ndarray) -> np.ndarray:
    return (truth == answer).mean(axis=1)


def _is_right(truth: np.ndarray, answer: np.ndarray) -> np.ndarray:
    return (truth == answer).all(axis=1).astype(np.float64)


def _exchanged_kl(setting: Setting, q: np.ndarray) -> np.ndarray:
    """Mean KL of permuted beliefs, infinite as `kl_bits` is; their own entropies only change places."""
    p, impossible = setting.belief.values, q == 0
    log_q = np.log2(q, out=np.zeros_like(q), where=~impossible)
    means = np.array([np.sum(p[order] * log_q) / len(p) for order in setting.orders])
    is_excluded = np.array([bool((p[order][impossible] > 0).any()) for order in setting.orders])
    return np.where(is_excluded, np.inf, -entropy_bits(p).mean() - means)


def output_distance(
    log_q: Float[np.ndarray, "row outcome"], posterior: Float[np.ndarray, "row outcome"],
    orders: Int[np.ndarray, "exchange row"],
) -> Scores:  # fmt: skip
    """Total variation of the model's own prediction (log2), restricted to the outcomes, from the exact posterior."""
    q = np.exp2(restricted(log_q))
    by_row = total_variation(posterior, q)
    exchanged = np.array([total_variation(posterior[order], q).mean() for order in orders])
    return Scores(by_row, np.full(len(by_row), np.nan), exchanged)
