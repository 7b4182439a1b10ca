"""Do activations cluster by the most likely state? Silhouettes in the space of the leading principal axes.

For a row with the mean distance a to the rows of its own state and b to those of the nearest other state, the
silhouette is (b − a)/max(a, b) (Rousseeuw 1987). Rows where several states are equally likely are left out. Null:
states permuted between whole sequences.

Source: Paper I (arXiv 2512.22471), the clusters of a state-space model by most likely hidden state.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial.distance import cdist

from interp.statistics.jackknife import equal_groups
from interp.statistics.resampling import shuffles
from interp.statistics.spectra import eigenvalues, principal_axes, scaled

from ..measures.cloud import Cloud, whole_groups

N_AXES = 10
MAX_ROWS = 1000
"""Rows of whole sequences, chosen at random, beyond which distances are not taken."""

MIN_ROWS = 20


@dataclass(frozen=True)
class Clusters:
    """Rows and their labellings by state (−1 is none): true and permuted `states`, and `without` groups of units.

    Each group has `n_deleted` of the `n_units` that have a state. `reason` says why there is nothing to measure.
    """

    rows: Int[np.ndarray, " kept"]
    states: Int[np.ndarray, "state_and_exchanges kept"]
    without: Int[np.ndarray, "group kept"]
    n_units: int
    n_deleted: int
    reason: str


def make_clusters(
    pool: Cloud, most_likely: Int[np.ndarray, " row"], n_permutations: int, rng: np.random.Generator
) -> Clusters:
    """The states of whole clusters, up to `MAX_ROWS` rows."""
    units = pool.units
    rows = whole_groups(units, MAX_ROWS, rng)
    units, states = units[rows], most_likely[rows]
    orders = shuffles(units, n_permutations, rng)
    labelled = states >= 0
    reason = ""
    if len(np.unique(states[labelled])) < 2:
        reason = "fewer than two states are ever the most likely one alone"
    elif labelled.sum() < MIN_ROWS:
        reason = f"a single state is most likely at {labelled.sum()} rows alone, fewer than {MIN_ROWS}"
    holding = np.unique(units[labelled])
    n_deleted, groups = equal_groups(len(holding) if len(holding) > 2 else 0)
    without = np.empty((len(groups), len(rows)), states.dtype)
    for left, group in zip(without, groups, strict=True):
        left[:] = np.where(np.isin(units, holding[group]), -1, states)
    return Clusters(rows, np.vstack([states, states[orders]]), without, len(holding), n_deleted, reason)


def gather(points: np.ndarray, clusters: Clusters) -> Float[np.ndarray, " labelling"]:
    """Mean silhouette of one layer for every labelling; NaN where nothing varies."""
    labellings = np.vstack([clusters.states, clusters.without])
    kept = scaled(points[clusters.rows], "centred")
    if clusters.reason or not kept.any():
        return np.full(len(labellings), np.nan)
    scores = principal_axes(kept, min(N_AXES, *kept.shape)).scores
    known = labellings >= 0
    return (silhouettes(cdist(scores, scores), labellings) * known).sum(axis=1) / known.sum(axis=1)


def silhouettes(
    distance: Float[np.ndarray, "row row"], states: Int[np.ndarray, "labelling row"]
) -> Float[np.ndarray, "labelling row"]:
    """The silhouette of every row under every labelling; 0 where a row is alone in its state, or has none."""
    n_states = int(states.max()) + 1
    member = (states[:, :, None] == np.arange(n_states)).astype(np.float64)
    count = member.sum(axis=1)
    flat = np.moveaxis(member, 1, 0).reshape(len(distance), -1)
    total = np.moveaxis((distance @ flat).reshape(len(distance), len(states), n_states), 0, 1)
    own = (total * member).sum(axis=2)
    n_own = (count[:, None] * member).sum(axis=2)
    a = np.divide(own, n_own - 1, out=np.zeros_like(own), where=n_own > 1)
    empty = (count == 0)[:, None] | (member > 0)
    other = np.where(empty, np.inf, total / np.maximum(count, 1)[:, None])
    b = other.min(axis=2)
    defined = (n_own > 1) & np.isfinite(b) & (np.maximum(a, b) > 0)
    return np.divide(b - a, np.maximum(a, b), out=np.zeros_like(a), where=defined)


def dimensions_for(points: np.ndarray) -> tuple[int, int]:
    """How many principal axes hold 90 % and 95 % of the variance; 0 where nothing varies."""
    spectrum = eigenvalues(scaled(points, "centred"))
    if spectrum.sum() <= 0:
        return 0, 0
    share = np.cumsum(spectrum) / spectrum.sum()
    first, second = 1 + np.searchsorted(share, np.array([0.90, 0.95]) - 1e-12)
    return int(first), int(second)
