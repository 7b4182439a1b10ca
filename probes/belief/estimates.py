"""How well the belief is read, at every place (a site and a layer) at once: intervals, nulls, or why there is none."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from interp.statistics.estimates import Estimates
from interp.statistics.intervals import PLAIN, t_half_width, t_quantile
from interp.statistics.jackknife import standard_error
from interp.statistics.ratio import ratio

from ..measures.nuisances import Design
from .clusters import Clusters
from .quantities import ROWS, SET
from .readout import N_SUBSPACES, Reading, Setting, Shares
from .scores import Scores
from .target import ExactBelief


def still(belief: ExactBelief) -> str:
    """Why nothing can be read where nothing varies."""
    return f"{belief.slots['belief']} does not vary"


def share_estimates(shares: Sequence[Shares], setting: Setting, why: str) -> Estimates:
    """R² at every place, p one-sided over all places."""
    errors, totals = (np.array([getattr(s, name).sum(axis=1) for s in shares]).T for name in ("errors", "totals"))
    r2 = np.array([share.r2 for share in shares]).T  # [belief and exchanges, place]
    return Estimates.shares(errors, totals, setting.weights, permuted=r2[1:]).because(why)


def baseline_estimate(
    design: Design, by_position: Float[np.ndarray, "row component"], by_mean: Float[np.ndarray, "row component"],
    setting: Setting,
) -> Estimates:  # fmt: skip
    """R² of what position, or position and token, alone have told: a baseline that every place shares."""
    words = {"positions": ", ".join(design.names)}
    if not design.names or not setting.belief.varies.any():
        why = still(setting.belief) if design.names else "neither position nor last token varies"
        return Estimates(np.array([np.nan]), why=why, words=words)
    left = (np.square(setting.belief.values - each).sum(axis=1) for each in (by_position, by_mean))
    errors, totals = (np.bincount(setting.code, each)[:, None] for each in left)
    return Estimates.shares(errors, totals, setting.weights, words=words)


def selectivity_estimates(readings: Sequence[Reading], setting: Setting) -> Estimates:
    """R² of the belief − mean R² of its control tasks. The null puts each control task in the belief's place."""
    task, controls = np.array([r.kept.r2[0] for r in readings]), np.array([r.control_r2 for r in readings])
    errors = np.array([np.column_stack([r.kept.errors.sum(axis=1), r.control_errors]) for r in readings])
    totals = np.array([np.column_stack([r.kept.totals.sum(axis=1), r.control_totals]) for r in readings])
    left = ratio(setting.weights @ errors, setting.weights @ totals)  # [place, resample, task and controls]
    value, replicates = task - controls.mean(axis=1), left[..., 1:].mean(axis=-1) - left[..., 0]
    others = (controls.sum(axis=1, keepdims=True) - controls) / (controls.shape[1] - 1)
    why = np.where(np.isnan(task), still(setting.belief), "a control task is the same at every row")
    return Estimates.resampled(value, replicates.T, PLAIN).because(why.tolist()).drawn((controls - others).T)


def subspace_estimates(readings: Sequence[Reading], setting: Setting, unit: str) -> Estimates:
    """Mean R² from random subspaces, with the interval of that mean over draws."""
    rank = setting.belief.rank
    why = still(setting.belief) if rank == 0 else (
        f"{rank} random directions would be all of the activations, or more than the {unit}s can fit"
    )  # fmt: skip
    draws = [reading.subspace_r2 for reading in readings]
    value = np.array([of.mean() if len(of) else np.nan for of in draws])
    half = np.array([float(t_half_width(of)) if len(of) else np.nan for of in draws])
    half[half == 0] = np.nan
    words = {"rank": str(rank), "n_subspaces": str(N_SUBSPACES)}
    return Estimates(value, np.stack([value - half, value + half]), words=words).because(why)


def score_estimates(scores: Sequence[Scores], setting: Setting) -> Estimates:
    """Means over rows with bootstrap intervals; null: exact beliefs permuted, predictions kept."""
    counts = np.bincount(setting.code)
    is_known = np.array([np.isfinite(s.by_row.mean()) and np.isfinite(s.permuted).all() for s in scores])
    by_row = np.where(is_known, np.array([s.by_row for s in scores]).T, np.nan)
    permuted = np.where(is_known, np.array([s.permuted for s in scores]).T, np.nan)
    sums = np.array([np.bincount(setting.code, of_place) for of_place in by_row.T]).T
    replicates = (setting.weights @ sums) / (setting.weights @ counts)[:, None]
    why = "undefined: a state occurs that the sequences fitted on never held, and that was decoded as impossible"
    words = {
        "position": [f"{s.by_position.mean():.3g}" for s in scores], "right": ROWS if setting.belief.names else SET,
    }  # fmt: skip
    value = by_row.mean(axis=0)
    found = Estimates.resampled(value, replicates, PLAIN, words=words).because(why)
    return found.permuted(permuted, asks="nothing")


def silhouette_estimates(gathered: Float[np.ndarray, "place labelling"], clusters: Clusters, counts: str) -> Estimates:
    """Mean silhouette at every place, p one-sided over all places; the field `counts` says how many are left out."""
    values, without = np.split(gathered.T, [len(clusters.states)])
    half = np.full(len(gathered), np.nan)
    if len(without):
        error = standard_error(without, clusters.n_units, clusters.n_deleted)
        half = np.where(np.ptp(without, axis=0) > 0, t_quantile(len(without)) * error, np.nan)
    found = Estimates(
        values[0], np.stack([values[0] - half, values[0] + half]), about={counts: clusters.n_units},
        words={"n_groups": str(len(without))},
    ).because(clusters.reason or "nothing varies in these activations")  # fmt: skip
    return found.permuted(np.nan_to_num(values[1:], nan=0.0))
