"""How well one layer of one site predicts the entropies of held-out prompts, over all half splits.

In each half split the fitting rows are X = U S Vᵀ, once from their mean and once within the last token. Two axes read a
label y there: the first principal axis of X from its mean (chosen without y; only its slope is fitted) and ridge,
whose penalty generalised cross-validation chooses (Golub, Heath and Wahba 1979); where prompts come in clusters, the
errors among clusters left out of the fit choose it. Permuted labels are fitted in the same way. Rows enter unchanged:
the half split takes out means and nuisances.

Half splits of one sample scatter less than samples do: a unit that makes one half easier to fit leaves the other
without it. How much each unit adds to the mean over half splits, fitted on or held out, is known to first order from
the same fits, and is the least width of the interval of R² (an infinitesimal jackknife).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from interp.statistics.correlation import unit_ranks
from interp.statistics.ratio import ratio
from interp.statistics.resampling import members_of
from interp.statistics.ridge import ALONE, PENALTIES, RowAxes, left_out_error

from ..measures.halves import HalfForm, HalfSplit
from ..measures.layers import ScaledRows
from .quantities import KEPT, WITHIN_TOKEN

AXES = ("ridge", "pc1")


@dataclass(frozen=True)
class Labels:
    """The labels of one treatment, before anything is taken out: true ones, then permuted ones.

    `true` has the targets in the order of `targets` and then control tasks; `permuted` has as many columns for each
    target in turn, in single precision. `units` numbers, from 0, what each row belongs to.
    """

    targets: tuple[str, ...]
    units: Int[np.ndarray, " row"]
    true: Float[np.ndarray, "row label"]
    permuted: Float[np.ndarray, "row permutation"]

    def of_target(self, target: str) -> np.ndarray:
        """The columns of a target among all labels: the true one, then the permuted ones."""
        i, n_true, n = self.targets.index(target), self.true.shape[1], self.permuted.shape[1] // len(self.targets)
        return np.r_[i, n_true + i * n : n_true + (i + 1) * n]

    @property
    def controls(self) -> slice:
        return slice(len(self.targets), self.true.shape[1])


@dataclass(frozen=True)
class Part:
    """Some labels in one half split under one treatment, at fitting and at held-out rows."""

    fitted: Float[np.ndarray, "fitted label"]
    held_out: Float[np.ndarray, "held_out label"]

    @cached_property
    def squares(self) -> tuple[Float[np.ndarray, " label"], Float[np.ndarray, " label"]]:
        """Sums of squares at fitting and at held-out rows."""
        return np.square(self.fitted).sum(axis=0), np.square(self.held_out).sum(axis=0)

    @cached_property
    def held_out_ranks(self) -> Float[np.ndarray, "label held_out"]:
        return unit_ranks(self.held_out.T)


@dataclass(frozen=True)
class Split:
    """One half split under one treatment, and its labels: the true ones, then the permuted ones.

    `members` are the fitting rows of each cluster, where prompts come in clusters.
    """

    half_split: HalfSplit
    labels: Labels
    parts: tuple[Part, ...]
    members: list[Int[np.ndarray, "_cluster _member"]]

    @classmethod
    def of(cls, half_split: HalfSplit, labels: Labels, clusters: Int[np.ndarray, " row"] | None = None) -> "Split":
        if not half_split.is_usable:
            return cls(half_split, labels, tuple(Part(x[:0], x[:0]) for x in (labels.true, labels.permuted)), [])
        true = Part(*half_split.apply(labels.true))
        for left in (true.fitted, true.held_out):
            # a label that the nuisances determine leaves rounding
            left[:, np.linalg.norm(left, axis=0) <= 1e-10 * np.linalg.norm(labels.true, axis=0)] = 0.0
        members = [] if clusters is None else members_of(clusters[half_split.fitting])
        return cls(half_split, labels, (true, Part(*half_split.apply(labels.permuted))), members)


@dataclass(frozen=True)
class Read:
    """Every label of one treatment as one axis reads it: R² and correlation on held-out rows, one row a half split.

    `fit` is the R² that cross-validation expects on the fitting rows, to choose a layer without held-out rows. `added`
    is what each unit adds to log(1 − R²) of a target. All are NaN where a half split has too few rows, or a treatment
    leaves nothing of the rows (`is_void`).
    """

    r2: Float[np.ndarray, "split label"]
    correlation: Float[np.ndarray, "split label"]
    fit: Float[np.ndarray, "split label"]
    added: Float[np.ndarray, "split unit target"]
    is_void: bool


@dataclass(frozen=True)
class PlaceRead:
    """The scores of one place by treatment and axis, and the axes to save; none where nothing varies.

    The axes are those of the first half split, with only the mean taken out, for the first target: `directions` in
    scaled coordinates, of length one. Of ridge also the predictions at held-out rows, |cos| with the first principal
    axis, and the `penalty`, relative to the mean of the squared singular values.
    """

    read: Mapping[tuple[str, str], Read]
    directions: Mapping[str, Float[np.ndarray, " feature"]]
    predicted: Float[np.ndarray, " held_out"]
    cosine: float
    penalty: float


Scores = tuple[Float[np.ndarray, "score label"], Float[np.ndarray, "unit target"]]
"""R², correlation and expected R² of every label; and what each unit adds to those of the targets."""


def read_place(rows: ScaledRows, splits: Mapping[str, Sequence[Split]]) -> PlaceRead:
    """Both axes under every treatment, in all half splits."""
    found: dict[tuple[str, str], list[Scores]] = {(t, axis): [] for t in splits for axis in AXES}
    void, first = dict.fromkeys(found, False), None
    for h, split in enumerate(splits[KEPT]):
        whole = HalfForm.of(rows, split.half_split)
        first = whole if h == 0 else first
        forms = {(KEPT, "ridge"): whole, (KEPT, "pc1"): whole}
        if WITHIN_TOKEN in splits:
            half_split, along = splits[WITHIN_TOKEN][h].half_split, rows.points[:, :0] if whole is None else whole.first
            forms[WITHIN_TOKEN, "ridge"] = HalfForm.of(rows, half_split)
            forms[WITHIN_TOKEN, "pc1"] = HalfForm.of(ScaledRows(along, None), half_split)
        for (treatment, axis), form in forms.items():
            mine = splits[treatment][h]
            found[treatment, axis].append(_scores(form, mine, axis))
            void[treatment, axis] |= form is None and mine.half_split.is_usable
    read = {}
    for key, by_half_split in found.items():
        scores, added = zip(*by_half_split, strict=True)
        read[key] = Read(*np.stack(scores, axis=1), added=np.stack(added), is_void=void[key])
    split = splits[KEPT][0]
    if first is None:
        return PlaceRead(read, {}, np.full(len(split.half_split.held_out), np.nan), np.nan, np.nan)
    kept = {axis: _coefficients(first, axis, split.parts[0], split) for axis in AXES}
    directions = {axis: first.direction(of[:, 0], rows, split.half_split) for axis, (of, _, _) in kept.items()}
    ridge, penalty = kept["ridge"][0][:, 0], float(kept["ridge"][2][0])
    cosine = float(ratio(np.abs(ridge[0]), np.linalg.norm(ridge)))
    predicted = first.held_out[:, : len(ridge)] @ ridge
    return PlaceRead(read, directions, predicted, cosine, penalty)


def _scores(form: HalfForm | None, split: Split, axis: str) -> Scores:
    """R², correlation and expected R² of one half split, and what each unit adds."""
    added = np.zeros((split.labels.units.max() + 1, len(split.labels.targets)))
    if form is None:
        return np.full((3, sum(part.fitted.shape[1] for part in split.parts)), np.nan), np.full_like(added, np.nan)
    fits = [_coefficients(form, axis, part, split) for part in split.parts]
    true, half_split, n = split.parts[0], split.half_split, added.shape[1]
    coefficients, _, penalty = fits[0]
    of_rows = _added(form, half_split, true.fitted[:, :n], true.held_out[:, :n], axis, coefficients[:, :n], penalty[:n])
    for rows, mine in zip((half_split.fitting, half_split.held_out), of_rows, strict=True):
        np.add.at(added, split.labels.units[rows], mine)
    scores = [_score(form, part, axis, *fit[:2]) for part, fit in zip(split.parts, fits, strict=True)]
    return np.hstack(scores), added


def _score(
    form: HalfForm, part: Part, axis: str, coefficients: np.ndarray, fit: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """R² and correlation of the predictions at held-out rows; along the first axis of ranks: only order counts."""
    predicted = form.held_out[:, : len(coefficients)].astype(coefficients.dtype) @ coefficients
    products, squares = (np.einsum("rl,rl->l", predicted, x, dtype=np.float64) for x in (part.held_out, predicted))
    total, n = part.squares[1].astype(np.float64), len(predicted)
    r2 = 1 - ratio(total - 2 * products + squares, total)
    mean, label_mean = predicted.mean(axis=0, dtype=np.float64), part.held_out.mean(axis=0)
    spread = (squares - n * np.square(mean)).clip(0) * (total - n * np.square(label_mean)).clip(0)
    correlation = ratio(products - n * mean * label_mean, np.sqrt(spread))
    if axis == "pc1":
        rho = np.sign(coefficients[0]) * (part.held_out_ranks @ unit_ranks(form.held_out[:, :1].T)[0])
        correlation = np.where(np.isnan(correlation), np.nan, rho)
    return r2, correlation, fit


def _added(
    form: HalfForm, half_split: HalfSplit, fitted: np.ndarray, held_out: np.ndarray, axis: str,
    coefficients: np.ndarray, penalty: np.ndarray,
) -> tuple[Float[np.ndarray, "fitted target"], Float[np.ndarray, "held_out target"]]:  # fmt: skip
    """What each fitting and each held-out row adds to log(1 − R²) of the targets, to first order.

    A held-out row adds its own squares. A fitting row changes the predictions, by its left-out residual and its
    coordinates along the axes, and the mean of both halves.
    """
    n = len(coefficients)
    left, singular, others = form.axes.left[:, :n], form.axes.singular[:n, None], form.held_out[:, :n]
    squared = np.square(singular)
    kept = np.ones_like(coefficients) if axis == "pc1" else squared / (squared + penalty * squared.mean())
    wrong = held_out - others @ coefficients
    error, total = np.square(wrong).sum(axis=0), np.square(held_out).sum(axis=0)
    free = 1 - np.square(half_split.taken_out).sum(axis=1, keepdims=True) - np.square(left) @ kept
    residual = fitted - left @ (kept * (left.T @ fitted))
    left_out = np.divide(residual, free, out=np.zeros_like(residual), where=free > ALONE)
    toward, of_mean = left @ (kept / singular * (others.T @ wrong)), 0.0
    if half_split.groups is None:
        toward += wrong.sum(axis=0) / len(left)
        of_mean = ratio(held_out.sum(axis=0), total) * fitted / len(left)
    moved = 2 * (of_mean - ratio(toward * left_out, error))
    return moved, ratio(np.square(wrong), error) - ratio(np.square(held_out), total)


def _coefficients(form: HalfForm, axis: str, part: Part, split: Split) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coefficients on the first few axes, the R² that is expected of them, and the penalties.

    Of the first axis alone the slope, by which no layer is chosen; of ridge those at the penalty of least
    cross-validation error of every label.
    """
    axes = RowAxes(form.axes.left.astype(part.fitted.dtype), form.axes.singular)
    if axis == "pc1":
        loads = axes.left[:, :1].T @ part.fitted
        nothing = np.full(loads.shape[1], np.nan)
        return loads / axes.singular[0], nothing, nothing
    squared, loads = np.square(axes.singular), axes.left.T @ part.fitted
    shrink = squared / (squared + PENALTIES[:, None] * squared.mean())  # [penalty, axis]
    error, of_none = (_left_out if split.members else _generalised)(axes, loads, shrink, part, split)
    best = error.argmin(axis=0)
    fit = 1 - ratio(error[best, np.arange(len(best))], of_none)
    penalty = PENALTIES[best]
    shrunk = axes.singular[:, None] / (squared[:, None] + penalty * squared.mean())
    return (shrunk * loads).astype(loads.dtype), fit, penalty


def _generalised(
    axes: RowAxes, loads: np.ndarray, shrink: np.ndarray, part: Part, split: Split
) -> tuple[Float[np.ndarray, "penalty label"], Float[np.ndarray, " label"]]:
    """Generalised cross-validation error, Σe² / (n − edf)², of every penalty, and of no fit at all."""
    n_free, squares = split.half_split.n_free, part.squares[0]
    n_outside = max(0, n_free - len(axes.singular))
    inside = np.square(loads)
    # axes that span all that is free leave nothing outside but rounding, which small penalties would be chosen by
    outside = (squares - inside.sum(axis=0)).clip(0) * (n_outside > 0)
    left_over = outside + np.square(1 - shrink).astype(loads.dtype) @ inside
    return left_over / np.square(n_outside + (1 - shrink).sum(axis=1, keepdims=True)), squares / n_free**2


def _left_out(
    axes: RowAxes, loads: np.ndarray, shrink: np.ndarray, part: Part, split: Split
) -> tuple[Float[np.ndarray, "penalty label"], Float[np.ndarray, " label"]]:
    """Squared errors among clusters left out in turn, of every penalty, and of no fit at all."""
    outside = part.fitted - axes.left @ loads
    if split.half_split.n_free <= len(axes.singular):
        outside[:] = 0
    *error, of_none = (
        left_out_error(axes.left, loads, outside, kept, split.half_split.taken_out, split.members)
        for kept in (*shrink, np.zeros(shrink.shape[1]))
    )
    return np.array(error), of_none
