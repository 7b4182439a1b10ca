"""What all places share: rows, half splits, labels, what is counted, and what the tokens before them were."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Shaped

from interp.capture import Capture
from interp.need import Need

from ..measures.cloud import Cloud
from ..measures.finite import finite
from ..measures.halves import HalfSplit
from ..measures.layers import Counted
from ..measures.nuisances import Design
from .readout import Labels, Split

SURPRISAL = Need("next_loss", at="before_last")


@dataclass(frozen=True)
class Setting:
    """What all places share: rows, half splits, nuisances, and for each treatment the labels and what is counted."""

    pool: Cloud
    half_splits: Sequence[HalfSplit]
    surprisal: Mapping[str, Float[np.ndarray, " row"]]
    nuisances: Design
    labels: Mapping[str, Labels]
    splits: Mapping[str, Sequence[Split]]
    counted: Mapping[str, Counted]


def surprisal_of(base: Capture) -> dict[str, Float[np.ndarray, " row"]]:
    """How little expected the last token of each text was, in bits; a text of one token has the mean.

    Empty where no row of the capture is the last token of a text, as in a wind tunnel: its symbols are drawn.
    """
    if not _are_texts(base):
        return {}
    known = finite(base, SURPRISAL).astype(np.float64)
    return {"surprisal of the last token": _of_rows(base, known, known.mean())}


def previous_of(base: Capture) -> dict[str, np.ndarray]:
    """The token before the last one of each text, and the one before that where it is known; empty of sequences."""
    before, names = base.rows_at(SURPRISAL.at), {"previous": "token", "second": "token_before"}
    known = {name: before[column] for name, column in names.items() if column in before}
    return {name: _of_rows(base, column, -1) for name, column in known.items()} if _are_texts(base) else {}


def _are_texts(base: Capture) -> bool:
    is_single = len(np.unique(base.rows["prompt"])) == base.rows.n_rows
    return base.rows_at(SURPRISAL.at).n_rows > 0 and is_single


def _of_rows(base: Capture, known: np.ndarray, otherwise: int | float) -> Shaped[np.ndarray, " row"]:
    """What is known before the last token of some prompts, at the row of every prompt."""
    of_prompt = np.full(1 + int(base.rows["prompt"].max()), otherwise)
    of_prompt[base.rows_at(SURPRISAL.at)["prompt"]] = known
    return of_prompt[base.rows["prompt"]]


def labels_of(
    targets: Mapping[str, np.ndarray], controls: np.ndarray, permuted: Mapping[str, np.ndarray],
    orders: Int[np.ndarray, "permutation row"], units: Shaped[np.ndarray, " row"],
) -> Labels:  # fmt: skip
    return Labels(
        tuple(targets),
        np.unique(units, return_inverse=True)[1],
        np.column_stack([*targets.values(), controls]),
        np.column_stack([permuted[name][orders].T for name in targets]).astype(np.float32),
    )


def left_by(nuisances: np.ndarray, tokens: np.ndarray, targets: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What token and nuisances leave of labels over all rows: what is exchanged. 0 where a token does not recur."""
    everything, found = np.arange(len(tokens)), {}
    whole = HalfSplit.of(everything, everything, nuisances, tokens)
    for name, values in targets.items():
        found[name] = np.zeros(len(values))
        if whole.is_usable:
            found[name][whole.fitting] = whole.apply(values[:, None])[0][:, 0]
    return found


def counted_in(pool: Cloud, half_splits: Sequence[HalfSplit]) -> dict[str, int | None]:
    """How many prompts take part, and of how many clusters: the mean over half splits."""
    taking_part = [np.r_[h.fitting, h.held_out] for h in half_splits]
    n, n_clusters = (
        round(np.mean([len(np.unique(names[rows])) for rows in taking_part]))
        for names in (pool.rows["prompt"], pool.units)
    )
    return {"n": n, "n_clusters": None if pool.counted["n_clusters"] is None else n_clusters}
