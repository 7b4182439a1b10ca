"""The tables of the belief probe: place by place, component by component, and the decoded beliefs beside the exact."""

from collections.abc import Mapping, Sequence

import numpy as np

from interp.capture import Capture
from interp.statistics.estimates import Estimates
from interp.table import Table

from ..measures.cloud import Cloud, whole_groups
from ..measures.layers import Layer, layer_columns
from ..measures.maps import snippets
from .clusters import dimensions_for
from .estimates import Scores
from .quantities import QUANTITIES
from .readout import N_CONTROLS, Reading, Setting, Shares
from .target import ExactBelief, nearest_on_simplex

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
