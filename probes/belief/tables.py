"""The tables of the belief probe: place by place, component by component, and the decoded beliefs beside the exact."""

from collections.abc import Mapping, Sequence

import numpy as np

from interp.capture import Capture
from interp.findings import Scalar
from interp.table import LABEL, Table

from ..measures.cloud import Cloud
from ..measures.maps import snippets
from ..measures.places import PLACE_UNITS, Place, place_columns
from ..measures.profiles import scalar_columns
from .readout import Reading, Setting
from .target import ExactBelief, nearest_on_simplex

MAX_DRAWN = 1000
_ROOT_3 = 3**0.5

BY_LAYER = (
    "The linear readout of the exact belief at every site and layer (in `resid`, depth), cross-validated over whole "
    "sequences: R² from the mean and beyond position with 95 % intervals, refits on permuted beliefs and p over all "
    "layers and sites; selectivity against control tasks; R² of random subspaces of the belief's rank; the decoded "
    "belief's distance from the exact one beside that of position alone (_position) and of permuted beliefs (_null); "
    "silhouette by most likely state; axes that hold 90 % and 95 % of the variance. One place is primary and named "
    "beforehand; the others are exploratory. `penalty` is relative to the mean squared singular value."
)
COMPONENTS = (
    "The components of the belief at the primary place: held-out R² with its interval, null and p over components."
)
DECODED = (
    "Exact and decoded beliefs at the primary place, held-out: in the triangle of three states, else on the first "
    "principal axes of the exact beliefs. Linear predictions of distributions are put on the simplex."
)

_UNITS = {"control_r2": "fraction", "penalty": "1", "n_dims_90": "dimensions", "n_dims_95": "dimensions"}


def by_layer_table(
    places: Sequence[Place], scalars: Mapping[str, Sequence[Scalar]], readings: Sequence[Reading],
    by_position: Sequence[Mapping[str, float]], dimensions: Sequence[tuple[int, int]],
) -> Table:  # fmt: skip
    """One row for every place."""
    columns: dict[str, np.ndarray] = {
        **place_columns(places),
        "penalty": np.array([reading.penalty for reading in readings]),
        "control_r2": np.array([reading.control_r2.mean() for reading in readings]),
        "n_dims_90": np.array([first for first, _ in dimensions]),
        "n_dims_95": np.array([second for _, second in dimensions]),
    }
    units = PLACE_UNITS | _UNITS
    for name, of_places in scalars.items():
        columns |= _columns(name, of_places)
        units[name] = of_places[0].unit
    for name in by_position[0]:
        columns[f"{name}_position"] = np.array([of_place[name] for of_place in by_position])
        units[f"{name}_position"] = units[name]
    return Table(columns, units, BY_LAYER)


def components_table(belief: ExactBelief, scalars: Sequence[Scalar]) -> Table:
    """One row for every component."""
    means = [belief.values[:, i].mean() for i in range(len(scalars))]
    columns = {"component": np.arange(len(scalars)), "mean": np.array(means), **_columns("r2", scalars)}
    units = {"component": "component", "mean": "1", "r2": "fraction"}
    if belief.names:
        columns["value"], units["value"] = np.array(belief.names), LABEL
    return Table(columns, units, COMPONENTS)


def _columns(name: str, scalars: Sequence[Scalar]) -> dict[str, np.ndarray]:
    """As `scalar_columns`; a number that is a baseline has a value and no null at all."""
    found = scalar_columns(name, scalars, is_tested=name.startswith(("r2", "silhouette")))
    if any(scalar.null or np.isnan(scalar.value) for scalar in scalars):
        return found
    return {column: values for column, values in found.items() if not column.startswith(f"{name}_null")}


def decoded_table(
    pool: Cloud, setting: Setting, predicted: np.ndarray, capture: Capture, rng: np.random.Generator
) -> Table:
    """Whole sequences up to `MAX_DRAWN` rows: where the exact belief lies, and where the decoded one."""
    belief = setting.belief
    counts = np.bincount(setting.code)
    order = rng.permutation(len(counts))
    rows = np.flatnonzero(np.isin(setting.code, order[: max(1, int((np.cumsum(counts[order]) <= MAX_DRAWN).sum()))]))
    on_simplex = belief.kind == "distribution"
    shown = nearest_on_simplex(predicted) if on_simplex else predicted
    exact, found = _in_a_plane(belief, shown)
    columns: dict[str, np.ndarray] = {name: pool.rows[name][rows] for name in ("prompt", "position")}
    units = {name: pool.rows.units[name] for name in columns}
    columns |= {
        "state": belief.most_likely[rows],
        "exact_x": exact[rows, 0], "exact_y": exact[rows, 1],
        "decoded_x": found[rows, 0], "decoded_y": found[rows, 1],
    }  # fmt: skip
    units |= dict.fromkeys(("exact_x", "exact_y", "decoded_x", "decoded_y"), "1") | {"state": "index"}
    if capture.prompts.is_text:
        columns["text"], units["text"] = snippets(pool.rows.where(rows), capture), LABEL
    return Table(columns, units, DECODED)


def _in_a_plane(belief: ExactBelief, shown: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Barycentric coordinates of three probabilities; else the first two principal axes of the exact beliefs."""
    if belief.kind == "distribution" and belief.values.shape[1] == 3:
        corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, _ROOT_3 / 2]])
        return belief.values @ corners, shown @ corners
    centre = belief.values.mean(axis=0)
    _, _, axes = np.linalg.svd(belief.values - centre, full_matrices=False)
    axes = axes[:2] * np.sign(axes[:2, np.abs(axes[:2]).argmax(axis=1)].diagonal())[:, None]
    plane = np.zeros((2, len(centre)))
    plane[: min(2, max(1, belief.rank))] = axes[: min(2, max(1, belief.rank))]
    return (belief.values - centre) @ plane.T, (shown - centre) @ plane.T
