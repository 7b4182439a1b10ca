"""How well the axes predict, at every place (a site and a layer), compared with their nulls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from interp.capture import Capture
from interp.statistics.estimates import Estimates
from interp.statistics.intervals import FISHER, UNEXPLAINED, t_quantile
from interp.statistics.ratio import ratio
from interp.table import LABEL, Table

from ..measures.cloud import Cloud
from ..measures.halves import HalfSplit
from ..measures.layers import Layer, at_places, layer_columns
from ..measures.maps import snippets
from ..measures.nuisances import Design
from .quantities import QUANTITIES
from .readout import PlaceRead, Read
from .setting import Treatment

VOID = "these activations depend on the last token alone: nothing is left to read"
FEW_RECUR = "too few prompts share their last token with another one of their half"
FEW_TOGETHER = "too few prompts share their cluster with another one"

BY_LAYER = (
    "Axes fitted on one half of the prompts and tested on the other, at every site and layer (in `resid`, depth): "
    "held-out R² and correlation, means over half splits with 95 % intervals, what refits on permuted entropies "
    "give, and p over all layers and sites; `nuisances`: kept, or out with all that the last "
    "token determines. One place is primary and named beforehand; the others are exploratory."
)
BY_AXIS = (
    "The ridge axis at every site and layer: |cos| with PC1, and selectivity beside other random labellings. "
    "`penalty` is relative to the mean squared singular value."
)
HELD_OUT = "Held-out prompts: {target}, and what a readout fitted on the others predicts, where the answer says."


@dataclass(frozen=True)
class Evaluation:
    """How well one axis predicts one target under one treatment, at every place."""

    target: str
    treatment: Treatment
    places: Sequence[Layer]
    reads: Sequence[Read]

    @property
    def everywhere(self) -> dict[str, Any]:
        return at_places(self.places, self.treatment.about)

    @property
    def columns(self) -> Int[np.ndarray, " label"]:
        """The target among all labels that were read, then itself permuted."""
        return self.treatment.labels.of_target(self.target)

    @property
    def r2(self) -> Estimates:
        """Activations that depend on the token alone predict nothing beyond it: R² = 0."""
        found = self._over_half_splits("r2")
        is_nothing = np.isnan(found.value) & np.array([read.is_void for read in self.reads])
        if not self.treatment.is_beyond_token or not is_nothing.any():
            return found
        why = np.where(is_nothing, VOID, found.why).tolist()
        return replace(found, value=np.where(is_nothing, 0.0, found.value), why=why)

    @property
    def correlation(self) -> Estimates:
        return self._over_half_splits("correlation")

    def _over_half_splits(self, kind: str) -> Estimates:
        at = self.columns
        by_half_split = np.array([getattr(read, kind)[:, at] for read in self.reads])  # [place, half split, label]
        means = by_half_split.mean(axis=1)
        scale, about = UNEXPLAINED if kind == "r2" else FISHER, self.everywhere
        found = Estimates.halved(by_half_split[..., 0].T, scale, permuted=means[:, 1:].T, about=about)
        if kind == "r2":
            found = _widened(found, [read.added[..., at[0]].mean(axis=0) for read in self.reads])
        return found.because([self.why_undefined(i) for i in range(len(means))])

    def best_layer(self, n_layers: int) -> Estimates:
        """R² at the layer of largest expected R² in the fitting half, chosen in every half split and permutation."""
        at, best, layer = self.columns, self._best(n_layers), self.most_chosen(n_layers)
        r2 = np.array([read.r2[:, at] for read in self.reads[:n_layers]])  # [layer, half split, label]
        chosen = np.take_along_axis(r2, best[None], axis=0)[0]
        share = float(np.mean(best[:, 0] == layer))
        found = Estimates.halved(
            chosen[:, :1], UNEXPLAINED, permuted=chosen.mean(axis=0)[1:, None], about=self.treatment.about,
            words={"layer": str(layer), "share": f"{share:.0%}"},
        ).because(self.why_undefined(layer))  # fmt: skip
        added = [self.reads[layer].added[split, :, at[0]] for split, layer in enumerate(best[:, 0])]
        return _widened(found, [np.mean(added, axis=0)])

    def most_chosen(self, n_layers: int) -> int:
        """The layer that most half splits choose."""
        return int(np.bincount(self._best(n_layers)[:, 0]).argmax())

    def _best(self, n_layers: int) -> Int[np.ndarray, "split label"]:
        fits = np.array([read.fit[:, self.columns] for read in self.reads[:n_layers]])
        return np.nan_to_num(fits, nan=-np.inf).argmax(axis=0)

    def why_undefined(self, place: int) -> str:
        if self.treatment.reason:
            return self.treatment.reason
        within = self.treatment.is_beyond_token
        if self.reads[place].is_void:
            return VOID if within else "nothing varies in these activations"
        return "the entropy does not vary" + (", or the token and the nuisances predict it exactly" if within else "")


def _widened(found: Estimates, added: Sequence[Float[np.ndarray, " unit"]]) -> Estimates:
    """Intervals of R² at least as wide as those of a jackknife, from what each unit adds to log(1 − R²).

    Half splits share their prompts, so where there is an effect they scatter less than samples.
    """
    halves = [t_quantile(len(x)) * len(x) ** 0.5 * x.std(ddof=1) for x in added]
    pairs = zip(found.value.tolist(), halves, strict=True)
    low, high = np.array([UNEXPLAINED.about(*pair) or (np.nan, np.nan) for pair in pairs]).T
    assert found.interval is not None
    return replace(found, interval=np.stack([np.fmin(found.interval[0], low), np.fmax(found.interval[1], high)]))


def axis_columns(ridge: Evaluation, found: Sequence[PlaceRead]) -> dict[str, np.ndarray | Estimates]:
    """|cos| with PC1, selectivity and penalty of the ridge axis at every place."""
    why = [ridge.why_undefined(i) for i in range(len(found))]
    cosine = np.array([place.cosine for place in found])
    selective, control_r2 = selectivity(ridge)
    return {
        "cosine": Estimates.bare(cosine, about=ridge.everywhere | {"underpowered": True}).because(why),
        "selectivity": selective,
        "control_r2": control_r2,
        "penalty": np.array([place.penalty for place in found]),
    }


def selectivity(ridge: Evaluation) -> tuple[Estimates, Float[np.ndarray, " place"]]:
    """Task R² − mean control R² at every place, and the mean control R².

    The null puts each control task in the place of the entropy; its mean is 0 by definition.
    """
    target, others = ridge.columns[0], ridge.treatment.labels.controls
    task = np.array([read.r2[:, target] for read in ridge.reads]).T  # [half split, place]
    controls = np.array([read.r2[:, others] for read in ridge.reads])  # [place, half split, control]
    of_tasks = controls.mean(axis=1)
    others = (of_tasks.sum(axis=1, keepdims=True) - of_tasks) / (of_tasks.shape[1] - 1)
    one_type = "every judged token is of one type: there is no control task"
    why = [ridge.why_undefined(i) if np.isnan(mine).any() else one_type for i, mine in enumerate(task.T)]
    found = Estimates.halved(task - controls.mean(axis=2).T, about=ridge.everywhere).because(why)
    return found.drawn((of_tasks - others).T, known=0.0), of_tasks.mean(axis=1)


def predicted_by_nuisances(
    labels: Float[np.ndarray, "row label"], design: Design, half_splits: Sequence[HalfSplit],
    about: Mapping[str, Any],
) -> Estimates:  # fmt: skip
    """Held-out R² of the first label by the nuisances alone; the other labels are permuted ones."""
    r2, why = np.empty((len(half_splits), labels.shape[1])), ""
    for of_half, half_split in zip(r2, half_splits, strict=True):
        (_, whole) = half_split.apply(labels)
        (_, left) = HalfSplit.of(half_split.fitting, half_split.held_out, design.values).apply(labels)
        of_half[:] = 1 - ratio(np.square(left).sum(axis=0), np.square(whole).sum(axis=0))
    if not design.names:
        why = "no nuisance varies"
    elif np.ptp(labels[:, 0]) == 0:
        why = "the entropy does not vary"
    elif np.isnan(r2).any():
        why = "the entropies of some half do not vary"
    if why:
        r2[:] = np.nan
    words = {"nuisances": ", ".join(design.names) or "no nuisance that varies"}
    permuted = r2.mean(axis=0)[1:, None]
    return Estimates.halved(r2[:, :1], UNEXPLAINED, permuted=permuted, why=why, about=about, words=words)


def by_layer_table(places: Sequence[Layer], evaluations: Mapping[tuple[str, str, str], Evaluation]) -> Table:
    """One row for every axis, target, treatment of nuisances and place."""
    where, n = layer_columns(places), len(places)
    parts = [
        {
            "site": where["site"], "layer": where["layer"], "axis": np.full(n, axis), "target": np.full(n, target),
            "nuisances": np.full(n, nuisances), "n_distinct_rows": where["n_distinct_rows"], "r2": evaluation.r2,
            "correlation": evaluation.correlation,
        }
        for (nuisances, axis, target), evaluation in evaluations.items()
    ]  # fmt: skip
    return QUANTITIES.stacked(parts, BY_LAYER)


def held_out_table(
    pool: Cloud, half_split: HalfSplit, predicted: Float[np.ndarray, " held_out"], capture: Capture
) -> Table:
    """What is sought and its prediction at the held-out rows of a half split; of text also the end of it."""
    rows, target = pool.rows.where(half_split.held_out), pool.target
    names = ("prompt", "position", target.name, *(("domain",) if "domain" in rows else ()))
    columns = {name: rows[name] for name in names}
    columns[target.predicted] = predicted + float(pool.sought[half_split.fitting].mean())
    units = {name: rows.units[name] for name in names} | {target.predicted: rows.units[target.name]}
    if capture.prompts.is_text:
        columns["text"], units["text"] = snippets(rows, capture), LABEL
    return Table(columns, units, target.say(HELD_OUT))
