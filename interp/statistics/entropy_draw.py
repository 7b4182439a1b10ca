"""The draw: a subsample with evenly spread entropies, chosen after one capture over the pool.

Source: Paper III (arXiv 2512.23752), section 4.2: candidates are sorted by the model's own next-token entropy, cut
into fifths, and equally many are taken from each.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from interp.errors import PromptError
from interp.statistics.resampling import n_before

N_STRATA = 5


@dataclass(frozen=True)
class Draw:
    """Which rows of a pool were drawn, and the fifth of the entropies of each row of the pool.

    `index` is sorted; `stratum` runs from 0 (most certain) to 4 for every row of the pool, and is 0 where the pool is
    taken whole, as its fifths are then as random as its rows. `note` names any difference from what was requested.
    """

    index: Int[np.ndarray, " drawn"]
    stratum: Int[np.ndarray, " row"]
    note: str = ""


def entropy_quintiles(
    entropy_bits: Float[np.ndarray, " row"], per_stratum: int, rng: np.random.Generator,
    clusters: Int[np.ndarray, " row"] | None = None,
) -> Draw:  # fmt: skip
    """Draw `per_stratum` rows from every fifth of the entropies, of each from as many `clusters` as there are.

    The fifths are equal in number; rows of the same entropy are put in random order first. A pool with too few rows in
    some fifth is taken whole, with a note.
    """
    if per_stratum < 1:
        raise PromptError(
            asked=f"{per_stratum} prompts from each fifth of the entropies",
            found="that draws nothing",
            fix="Draw one or more from each; 15 is usual.",
        )
    if not np.isfinite(entropy_bits).all():
        raise PromptError(
            asked="a draw by next-token entropy",
            found=f"{int((~np.isfinite(entropy_bits)).sum())} of {len(entropy_bits)} entropies are not finite",
            fix="Check the model's logits: load it in float32, or inspect its weights.",
        )
    n = len(entropy_bits)
    order = np.lexsort((rng.random(n), entropy_bits))
    stratum = np.empty(n, dtype=np.int64)
    stratum[order] = np.arange(n) * N_STRATA // n
    members = [np.flatnonzero(stratum == s) for s in range(N_STRATA)]
    if min(len(m) for m in members) < per_stratum:
        note = f"the pool has {n} prompts, fewer than {N_STRATA} × {per_stratum}: all of them are taken"
        return Draw(np.arange(n), np.zeros_like(stratum), note)
    clusters = np.arange(n) if clusters is None else clusters
    chosen = np.sort(np.concatenate([_chosen(m, clusters[m], per_stratum, rng) for m in members]))
    return Draw(chosen, stratum * (len(chosen) < n))


def _chosen(
    rows: Int[np.ndarray, " row"], clusters: Int[np.ndarray, " row"], n: int, rng: np.random.Generator
) -> Int[np.ndarray, " chosen"]:
    """`n` of the rows at random: one of every cluster before a second of any."""
    if len(np.unique(clusters)) == len(rows):
        return rng.choice(rows, n, replace=False)
    order = rng.permutation(len(rows))
    return rows[order[np.argsort(n_before(clusters[order]), kind="stable")[:n]]]
