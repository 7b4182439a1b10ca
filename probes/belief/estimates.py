"""How well the belief is decoded at every place (a site and a layer): estimates with intervals and nulls.

Linear predictions of distributions are moved to the simplex (`target`). Total variation is ½ Σ|p − q|. For KL(p ‖ q), q
is mixed with 1 % of the mean belief of the sequences fitted on, so that it is never 0. A component of a set is decoded
as in the set above one half.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from interp.capture import Capture
from interp.information import cross_entropy_bits, entropy_bits, kl_bits, restricted, total_variation
from interp.statistics.estimates import Estimates
from interp.statistics.intervals import PLAIN, t_half_width, t_quantile
from interp.statistics.jackknife import standard_error
from interp.statistics.ratio import ratio
from interp.table import Table

from ..measures.cloud import Cloud, whole_groups
from ..measures.layers import Layer, layer_columns
from ..measures.maps import snippets
from ..measures.nuisances import Design
from .clusters import Clusters, dimensions_for, gather, make_clusters
from .quantities import QUANTITIES, ROWS, SET
from .readout import N_CONTROLS, N_SUBSPACES, Reading, Setting, Shares
from .target import ExactBelief, nearest_on_simplex

MIXED_IN = 0.01
MAX_DRAWN = 1000

BY_LAYER = (
    "The linear readout of {belief} at every site and layer (in `resid`, depth), cross-validated over whole "
    "sequences: R² from the mean and beyond position with 95 % intervals, refits on permuted {beliefs} and p over all "
    "layers and sites; selectivity against control tasks; R² of random subspaces of as many dimensions; distance of "
    "what is decoded from the exact one beside that of position alone (_position) and of permuted {beliefs} (_null); "
    "silhouette by most likely state; axes that hold 90 % and 95 % of the variance. One place is primary and named "
    "beforehand; the others are exploratory. `penalty` is relative to the mean squared singular value."
)
COMPONENTS = (
    "The components of {belief}, decoded where the answer says: held-out R², its interval and null, p over components."
)
DECODED = (
    "Exact and decoded {beliefs} where the answer says, held-out: in the triangle of three states, else on the first "
    "principal axes of the exact ones. Linear predictions of distributions are put on the simplex."
)


def still(belief: ExactBelief) -> str:
    """Why nothing can be decoded where nothing varies."""
    return f"{belief.slots['belief']} does not vary"


def estimates_by_place(
    places: Sequence[Layer], readings: Sequence[Reading], pool: Cloud, setting: Setting, rng: np.random.Generator
) -> dict[str, Estimates]:
    """The numbers that every kind of belief has, at every place."""
    clusters = make_clusters(pool, setting.belief.most_likely, len(setting.orders), rng)
    gathered = np.array([gather(place.points, clusters) for place in places])
    unread = still(setting.belief)
    is_left = setting.belief.rank > 0 and len(setting.position.names) > 0
    beyond = f"position predicts {setting.belief.slots['belief']} exactly" if is_left else unread
    return {
        "r2": share_estimates([r.kept for r in readings], setting, unread),
        "r2_beyond_position": share_estimates([r.beyond for r in readings], setting, beyond),
        "selectivity": selectivity_estimates(readings, setting),
        "random_subspace_r2": subspace_estimates(readings, setting, pool.resampled),
        "silhouette": silhouette_estimates(gathered, clusters, "n" if pool.clusters is None else "n_clusters"),
    }


def share_estimates(shares: Sequence[Shares], setting: Setting, why: str) -> Estimates:
    """R² at every place, p one-sided over all places."""
    errors, totals = (np.array([getattr(s, name)[:, 0].sum(axis=1) for s in shares]).T for name in ("errors", "totals"))
    permuted = np.array([share.permuted for share in shares]).T  # [exchange, place]
    return Estimates.shares(errors, totals, setting.weights, permuted=permuted).because(why)


def baseline_estimate(
    design: Design, by_position: Float[np.ndarray, "row component"], by_mean: Float[np.ndarray, "row component"],
    setting: Setting,
) -> Estimates:  # fmt: skip
    """R² of position, or position and token, alone: a baseline for every place."""
    words = {"positions": ", ".join(design.names)}
    if not design.names or not setting.belief.varies.any():
        why = still(setting.belief) if design.names else "neither position nor last token varies"
        return Estimates(np.array([np.nan]), why=why, words=words)
    left = (np.square(setting.belief.values - each).sum(axis=1) for each in (by_position, by_mean))
    errors, totals = (np.bincount(setting.code, each)[:, None] for each in left)
    return Estimates.shares(errors, totals, setting.weights, words=words)


def selectivity_estimates(readings: Sequence[Reading], setting: Setting) -> Estimates:
    """R² of the belief − mean R² of its control tasks. The null puts each control task in the belief's place."""
    kept = [reading.kept for reading in readings]
    task, controls = np.split(np.array([shares.r2[: 1 + N_CONTROLS] for shares in kept]), [1], axis=1)
    errors, totals = (np.array([getattr(shares, of).sum(axis=2) for shares in kept]) for of in ("errors", "totals"))
    left = ratio(setting.weights @ errors, setting.weights @ totals)  # [place, resample, task and controls]
    value, replicates = task[:, 0] - controls.mean(axis=1), left[..., 1:].mean(axis=-1) - left[..., 0]
    others = (controls.sum(axis=1, keepdims=True) - controls) / (controls.shape[1] - 1)
    why = np.where(np.isnan(task[:, 0]), still(setting.belief), "a control task is the same at every row")
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


@dataclass(frozen=True)
class Scores:
    """One score at every row, that of position alone, and its mean for every permutation of the exact beliefs."""

    by_row: Float[np.ndarray, " row"]
    by_position: Float[np.ndarray, " row"]
    permuted: Float[np.ndarray, " permutation"]

    @classmethod
    def of(
        cls, score: Callable[[np.ndarray, np.ndarray], np.ndarray], truth: np.ndarray, mine: np.ndarray,
        position: np.ndarray, orders: Int[np.ndarray, "permutation row"],
    ) -> "Scores":  # fmt: skip
        permuted = np.array([score(truth[order], mine).mean() for order in orders])
        return cls(score(truth, mine), score(truth, position), permuted)


def decoded(belief: ExactBelief, predicted: Float[np.ndarray, "row component"]) -> Float[np.ndarray, "row component"]:
    """The decoded belief: on the simplex, a set, the likeliest name, or the linear prediction itself."""
    if belief.kind == "distribution":
        return nearest_on_simplex(predicted)
    if belief.kind == "category":
        return np.eye(predicted.shape[1])[predicted.argmax(axis=1)]
    return (predicted > 0.5).astype(np.float64) if belief.kind == "set" else predicted


def scores(setting: Setting, reading: Reading) -> Mapping[str, Scores]:
    """The scores that the kind of belief has: none for a vector."""
    belief, truth, orders = setting.belief, setting.belief.values, setting.orders
    mine, position = (decoded(belief, each) for each in (reading.predicted, reading.by_position))
    if belief.kind == "distribution":
        mixed, position_mixed = ((1 - MIXED_IN) * q + MIXED_IN * reading.by_mean for q in (mine, position))
        with np.errstate(divide="ignore"):
            log_q = np.log2(mixed)
        own = entropy_bits(truth)  # moves with the beliefs; clusters of unequal size repeat or leave out some
        permuted = np.array([(cross_entropy_bits(truth[order], log_q) - own[order]).mean() for order in orders])
        return {
            "tvd": Scores.of(total_variation, truth, mine, position, orders),
            "kl_bits": Scores(kl_bits(truth, mixed), kl_bits(truth, position_mixed), permuted),
        }
    over = {"set": np.mean, "category": np.all}.get(belief.kind)
    if over is None:
        return {}
    return {"accuracy": Scores.of(lambda p, q: over(p == q, axis=1).astype(np.float64), truth, mine, position, orders)}


def output_distance(
    log_q: Float[np.ndarray, "row outcome"], posterior: Float[np.ndarray, "row outcome"],
    orders: Int[np.ndarray, "permutation row"],
) -> Scores:  # fmt: skip
    """Total variation of the model's own prediction (log2), restricted to the outcomes, from the exact posterior."""
    q = np.exp2(restricted(log_q))
    return Scores.of(total_variation, posterior, q, np.full_like(q, np.nan), orders)


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


def by_layer_table(
    places: Sequence[Layer], estimates: Mapping[str, Estimates], readings: Sequence[Reading],
    scores: Sequence[Mapping[str, Scores]], belief: ExactBelief,
) -> Table:  # fmt: skip
    """One row for every place."""
    dimensions = np.array([dimensions_for(place.points) for place in places])
    columns = {
        **layer_columns(places),
        "penalty": np.array([reading.penalty for reading in readings]),
        "control_r2": np.array([reading.kept.r2[1 : 1 + N_CONTROLS].mean() for reading in readings]),
        "n_dims_90": dimensions[:, 0], "n_dims_95": dimensions[:, 1], **estimates,
        **{f"{name}_position": np.array([of_place[name].by_position.mean() for of_place in scores])
           for name in scores[0]},
    }  # fmt: skip
    return QUANTITIES.table(columns, BY_LAYER.format_map(belief.slots))


def components_table(setting: Setting, share: Shares) -> Table:
    """One row for every component, p over them."""
    belief = setting.belief
    permuted = share.by_component[1 + N_CONTROLS :]
    r2 = Estimates.shares(share.errors[:, 0], share.totals[:, 0], setting.weights, permuted=permuted)
    columns = {"component": np.arange(setting.n_components), "mean": belief.values.mean(axis=0), "r2": r2}
    if belief.names:
        columns["value"] = np.array(belief.names)
    return QUANTITIES.table(columns, COMPONENTS.format_map(belief.slots))


def decoded_table(
    pool: Cloud, setting: Setting, predicted: np.ndarray, capture: Capture, rng: np.random.Generator
) -> Table:
    """Whole sequences up to `MAX_DRAWN` rows: where the exact belief lies, and where the decoded one."""
    belief = setting.belief
    rows = whole_groups(setting.code, MAX_DRAWN, rng)
    exact, found = _in_a_plane(belief, nearest_on_simplex(predicted) if belief.kind == "distribution" else predicted)
    columns = {
        **{name: pool.rows[name][rows] for name in ("prompt", "position")}, "state": belief.most_likely[rows],
        "exact_x": exact[rows, 0], "exact_y": exact[rows, 1],
        "decoded_x": found[rows, 0], "decoded_y": found[rows, 1],
    }  # fmt: skip
    if capture.prompts.is_text:
        columns["text"] = snippets(pool.rows.where(rows), capture)
    units = {name: pool.rows.units[name] for name in ("prompt", "position")}
    return QUANTITIES.table(columns, DECODED.format_map(belief.slots), **units)


def _in_a_plane(belief: ExactBelief, shown: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Barycentric coordinates of three probabilities; else the first two principal axes of the exact beliefs."""
    if belief.kind == "distribution" and belief.values.shape[1] == 3:
        corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 3**0.5 / 2]])
        return belief.values @ corners, shown @ corners
    centre = belief.values.mean(axis=0)
    _, _, axes = np.linalg.svd(belief.values - centre, full_matrices=False)
    axes = axes[:2] * np.sign(axes[:2, np.abs(axes[:2]).argmax(axis=1)].diagonal())[:, None]
    plane = np.zeros((2, len(centre)))
    plane[: min(2, max(1, belief.rank))] = axes[: min(2, max(1, belief.rank))]
    return (belief.values - centre) @ plane.T, (shown - centre) @ plane.T
