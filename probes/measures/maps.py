"""Coordinates on the first principal axes for maps, and the text of each row."""

from collections.abc import Sequence

import numpy as np

from interp.capture import Capture
from interp.statistics.spectra import Axes, Scaling, constant_columns, principal_axes, scaled
from interp.system.threads import side_by_side
from interp.table import LABEL, Table

from .cloud import Cloud
from .target import EXACT_ENTROPY, NEXT_ENTROPY

N_AXES = 3
MAX_POINTS = 1000
_SNIPPET = 60
_TOKENS = 8


def cloud_axes(cloud: Cloud, scaling: Scaling, n_axes: int) -> list[Axes]:
    """The leading axes of every layer."""
    return side_by_side(lambda points: principal_axes(scaled(points, scaling), n_axes), cloud.points)


def points_table(cloud: Cloud, axes: Sequence[Axes], texts: np.ndarray) -> Table:
    """One row for every layer and row of the cloud."""
    n_layers, n_rows = len(axes), cloud.rows.n_rows
    scores = np.concatenate([a.scores[:, :N_AXES] for a in axes]).T
    columns = {"layer": np.repeat(np.arange(n_layers), n_rows), **{f"pc{i + 1}": x for i, x in enumerate(scores)}}
    names = dict.fromkeys(("prompt", "position", NEXT_ENTROPY, EXACT_ENTROPY, cloud.target.name, "domain"))
    described = {name: cloud.rows[name] for name in names if name in cloud.rows} | {"text": texts}
    columns |= {name: np.tile(column, n_layers) for name, column in described.items()}
    caption = "Coordinates of the rows on the first principal axes, layer by layer; the sign of an axis is arbitrary."
    units = {"layer": "layer", **{name: cloud.rows.units.get(name, LABEL) for name in described}}
    return Table(columns, dict.fromkeys(columns, "activation") | units, caption)


def snippets(rows: Table, capture: Capture) -> np.ndarray:
    """The end of each row's text, or the last tokens up to its position."""
    return np.array([_snippet(capture, int(p), int(t)) for p, t in zip(rows["prompt"], rows["position"], strict=True)])


def _snippet(capture: Capture, prompt: int, position: int) -> str:
    asked = capture.prompts.prompts[prompt]
    if asked.text is not None:
        return asked.text if len(asked.text) <= _SNIPPET else f"…{asked.text[-_SNIPPET:]}"
    ids = (asked.token_ids or ())[: position + 1]
    shown = " ".join(str(token) for token in ids[-_TOKENS:])
    return shown if len(ids) <= _TOKENS else f"… {shown}"


def null_points_table(points: np.ndarray, scaling: Scaling, seed: int) -> Table:
    """A Gaussian cloud matched to one layer, on its own first two axes."""
    loud = np.std(points, axis=0, dtype=np.float64) if scaling == "centred" else ~constant_columns(points)
    cloud = np.random.default_rng(seed).standard_normal(points.shape) * loud
    columns = {f"pc{i + 1}": x for i, x in enumerate(principal_axes(scaled(cloud, scaling), 2).scores.T)}
    caption = "The same coordinates of one Gaussian cloud of the same size at the primary layer, for comparison by eye."
    return Table(columns, dict.fromkeys(columns, "activation"), caption)
