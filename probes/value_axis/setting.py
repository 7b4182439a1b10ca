"""What all places share: labels, half splits, what is taken out of both, and the tokens before the last one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped

from interp.capture import Capture
from interp.need import Need

from ..measures.cloud import Cloud
from ..measures.finite import finite
from ..measures.halves import HalfSplit
from ..measures.sample_sizes import FEW_HALVES, with_least
from .readout import Labels, Split

SURPRISAL = Need("next_loss", at="before_last")


@dataclass(frozen=True)
class Treatment:
    """Labels and half splits without groups and nuisances, and what is counted, as fields of a scalar.

    `reason` says why no place can be read, if none can. `is_beyond_token`: groups are last tokens.
    """

    labels: Labels
    splits: Sequence[Split]
    about: Mapping[str, Any]
    reason: str = ""
    is_beyond_token: bool = False

    @classmethod
    def of(
        cls,
        pool: Cloud,
        half_splits: Sequence[HalfSplit],
        targets: Mapping[str, Float[np.ndarray, " row"]],
        orders: Int[np.ndarray, "permutation row"],
        *,
        groups: Shaped[np.ndarray, " row"] | None = None,
        nuisances: Float[np.ndarray, "row column"] | None = None,
        controls: Float[np.ndarray, "row control"] | None = None,
        few: str = "",
        least: int = FEW_HALVES,
        is_beyond_token: bool = False,
    ) -> "Treatment":
        """Permuted are the residuals of targets after groups and nuisances, 0 where a group has a single row.

        `few` is the reason where a half split has too few rows, `least` how many clusters (prompts) are enough.
        """
        everything, nothing = np.arange(pool.rows.n_rows), np.empty((pool.rows.n_rows, 0))
        nuisances, controls = (nothing if columns is None else columns for columns in (nuisances, controls))
        true = np.column_stack([*targets.values()])
        whole, left = HalfSplit.of(everything, everything, nuisances, groups), np.zeros_like(true)
        if whole.is_usable:
            left[whole.fitting] = whole.fitted(true)
        permuted = left[orders].transpose(1, 2, 0).reshape(len(left), -1).astype(np.float32)
        units = np.unique(pool.units, return_inverse=True)[1]
        labels = Labels(tuple(targets), units, np.hstack([true, controls]), permuted)
        halves = [HalfSplit.of(h.fitting, h.held_out, nuisances, groups) for h in half_splits]
        return cls(
            labels,
            [Split.of(half_split, labels, pool.clusters) for half_split in halves],
            _counted(pool, halves, least),
            "" if all(half_split.is_usable for half_split in halves) else few,
            is_beyond_token,
        )


def _counted(pool: Cloud, half_splits: Sequence[HalfSplit], least: int) -> dict[str, Any]:
    """The number of prompts and clusters that take part (means over half splits), and whether they are too few."""
    taking_part = [np.r_[h.fitting, h.held_out] for h in half_splits]
    n, n_clusters = (
        round(np.mean([len(np.unique(names[rows])) for rows in taking_part])) for names in (pool.prompts, pool.units)
    )
    about = pool.counted | {"n": n, "n_clusters": None if pool.clusters is None else n_clusters}
    return with_least(about, n_clusters, least, pool.n_units)


def surprisal_of(base: Capture) -> dict[str, Float[np.ndarray, " row"]]:
    """Surprisal of the last token of each text in bits, the mean for a text of one token; empty for wind tunnels."""
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
    """Values known before the last token of some prompts, at the row of every prompt."""
    of_prompt = np.full(1 + int(base.rows["prompt"].max()), otherwise)
    of_prompt[base.rows_at(SURPRISAL.at)["prompt"]] = known
    return of_prompt[base.rows["prompt"]]
