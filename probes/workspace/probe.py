"""Workspace: is what the model infers held in the directions that its prediction depends on?

At every depth, the J-space of the Jacobian lens (`space`) is compared with the same space with shuffled coordinates, in
order and sign. Uniformly random subspaces would be no control: some coordinates of a stream are much louder than
others. The whole stream is shown as an upper bound. The null of `axis_share` are directions that decode shuffled
entropies. The outcomes of an exact posterior are the hypotheses; text without one lacks the first two numbers.

Source: "The Workspace Survives Where the Circuit Dies" (the authors' note of July 2026), P1 and P3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.capture import Capture
from interp.findings import Findings
from interp.need import Need
from interp.probe import AnalysisCost, Probe, Readout, Sentences
from interp.statistics.estimates import Estimates
from interp.statistics.intervals import UNEXPLAINED, t_half_width
from interp.statistics.linear_readout import PENALTY, balanced_accuracy, held_out_r2, read_out
from interp.statistics.quantities import Quantities, Quantity
from interp.statistics.ratio import ratio
from interp.statistics.resampling import bootstrap_weights, shuffles
from interp.statistics.ridge import fit_ridge
from interp.system.threads import side_by_side

from ..measures.cloud import Cloud
from ..measures.field_checks import check_fields
from ..measures.finite import finite
from ..measures.halves import N_HALF_SPLITS, HalfForm, HalfSplit, half_splits_of
from ..measures.layers import ScaledRows
from ..measures.sample_sizes import FEW_HALVES, MIN_HALVES, with_least
from .figures import workspace_figures
from .space import Basis, Spectrum, shares

STREAM, GRAM, EMBEDDING = Need("resid"), Need("readout_gram"), Need("outcome_embedding")
KEYS, VALUES, OUTPUT = Need("W_K"), Need("W_V"), Need("W_O")
Frame = Literal["embedding", "keys", "values"]
FRAMES: Mapping[Frame, tuple[str, tuple[Need, ...]]] = {
    "embedding": ("embeddings", ()),
    "keys": ("what keys of the first layer read of the embeddings", (KEYS,)),
    "values": ("what heads of the first layer write of the embeddings", (VALUES, OUTPUT)),
}
"""The vectors of the hypotheses, in words, and the weights needed beside their embeddings."""

RANKS = (4, 8, 16, 32)
N_RESAMPLES = 500
_NULL = "J-spaces whose coordinates are shuffled"
_HALVES = ("corrected resampled t over {n_half_splits} half splits", "half splits do not differ")
_NO_OUTCOMES = "the prompts have no exact posterior, whose outcomes would be the hypotheses"
_NO_VARIANCE = "nothing varies in the residual stream"
_STILL = "the entropy does not vary"

QUANTITIES = Quantities(
    {
        "overlap": Quantity(
            "fraction", "share of the differences between {n} hypotheses ({frame}) that lies in the J-space of depth "
            "{depth} ({rank} of {width} directions)", _NULL, "t interval over hypotheses",
            "a single hypothesis, or none", p_over="depths", is_headline=True,
        ),
        "survivors_accuracy": Quantity(
            "fraction", "balanced accuracy with which the J-space of depth {depth} says which hypotheses survive",
            _NULL, *_HALVES, p_over="depths", is_headline=True,
        ),
        "uncertainty_r2": Quantity(
            "fraction", "held-out R² of the next-token entropy from the J-space of depth {depth}", _NULL, *_HALVES,
            p_over="depths", reference=1.0, is_headline=True,
        ),
        "axis_share": Quantity(
            "fraction", "share of the direction that decodes the entropy at depth {depth} that lies in the J-space",
            "directions that decode shuffled entropies", *_HALVES, p_over="depths", is_headline=True,
        ),
        "variance_share": Quantity(
            "fraction", "share of the residual stream's variance that lies in the J-space of depth {depth}", _NULL,
            "percentile bootstrap over {drawn}s", "rows do not differ", p_over="depths",
        ),
        "dimension": Quantity(
            "directions", "directions that hold 90 % of what moves the logits at depth {depth}, of {width}",
            "a description of the lens", no_interval="one lens: its own standard error says how well it is known",
            asks="nothing",
        ),
    },
    {"rank": "directions", "times_random": "1", "whole_r2": "fraction", "whole_accuracy": "fraction"},
)  # fmt: skip
BY_DEPTH = (
    "The J-space at every depth, of as many directions as hold 90 % of what moves the logits (or `rank`), with its "
    "coordinates shuffled as the null; whole_r2 and whole_accuracy: the same readouts from all of the "
    "residual stream."
)
BY_RANK = (
    "The hypotheses in J-spaces of other ranks; a random subspace holds rank / width of them on average, "
    "and times_random is the quotient."
)


@dataclass(frozen=True)
class Workspace(Probe):
    """What the J-space of every depth holds of the hypotheses, of which survive, and of the uncertainty.

    `depth`: the primary one, of the residual stream. `rank`: dimension of the J-space (none: as many directions as hold
    90 % of the Gram matrix). `n_null`: orders of the coordinates, and of the entropies. `frame`: whether `overlap` is
    that of the hypotheses' embeddings, or of what the first layer's `keys` read, or its `values` write, of these.
    """

    depth: int = -2
    rank: int | None = None
    n_null: int = 100
    frame: Frame = "embedding"
    seed: int = 0

    name: ClassVar[str] = "workspace"
    least_clusters: ClassVar[int] = MIN_HALVES
    quantities: ClassVar[Quantities] = QUANTITIES
    cost: ClassVar[AnalysisCost] = AnalysisCost(n_fits=11 * N_HALF_SPLITS)
    question: ClassVar[str] = "Is what the model infers held in the directions that its prediction depends on?"
    sentences: ClassVar[tuple[Sentences, ...]] = (
        Sentences(
            95, "Does {model} hold its hypotheses in the directions that its prediction depends on?", ("overlap",),
            "The J-space holds {value} of what tells the hypotheses apart.",
            "The J-space holds no more of what tells the hypotheses apart than with its coordinates shuffled.",
            "The J-space holds less of what tells the hypotheses apart than with its coordinates shuffled: {size}.",
        ),
        Sentences(
            96, "Does {model} hold its uncertainty in the directions that its prediction depends on?",
            ("uncertainty_r2",),
            "The J-space predicts {value} of the variance of the next-token entropy on other {unit}s.",
            "The J-space predicts the next-token entropy no better than with its coordinates shuffled.",
            limit="That it can be read there does not show that the model uses it.",
        ),
    )  # fmt: skip

    @property
    def needs(self) -> tuple[Need, ...]:
        return STREAM, GRAM, EMBEDDING, *FRAMES[self.frame][1]

    def refuse_fields(self, n_layers: int | None) -> None:
        check_fields(self, {"rank": 1, "n_null": 19}, n_layers, "depth", "resid")

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        self.refuse_fields(base.model.n_layers)
        pool, frame = Cloud.of(base, STREAM), _differences(base, self.frame)
        spectra = [Spectrum.of(gram) for gram in finite(base, GRAM)]
        setting = _Setting.of(pool, frame, _survivors(base), self.n_null, self.seed)
        width, primary = pool.points.shape[2], pool.layer_index(self.depth)
        ranks = [min(self.rank or spectrum.rank, width) for spectrum in spectra]
        spaces = [spectrum.space(rank) for spectrum, rank in zip(spectra, ranks, strict=True)]
        found = side_by_side(lambda at: _Depth.of(*at, setting), zip(pool.points, spaces, strict=True))
        drawn = side_by_side(lambda draw: setting.shuffled(draw, spaces), range(self.n_null))
        quantities = QUANTITIES.filled(
            depth=str(primary), rank=str(ranks[primary]), width=str(width), n=str(len(frame)),
            frame=FRAMES[self.frame][0], n_half_splits=str(N_HALF_SPLITS), **pool.slots,
        )  # fmt: skip
        numbers = setting.numbers(found, drawn)
        numbers["dimension"] = Estimates(np.array([s.rank for s in spectra], np.float64))
        whole = np.array([each.whole for each in found])  # [depth, r2 and accuracy]
        columns = {"depth": np.arange(len(found)), "rank": np.array(ranks), **numbers}
        columns |= {"whole_r2": whole[:, 0], "whole_accuracy": whole[:, 1]}
        tables = {"by_depth": quantities.table(columns, BY_DEPTH)}
        if len(frame):
            tables["by_rank"] = quantities.table(_by_rank(frame, spectra), BY_RANK)
        return quantities.findings(self.name, quantities.scalars(numbers, primary), tables)

    figures = staticmethod(workspace_figures)


def _differences(base: Capture, frame: Frame) -> Float[np.ndarray, "hypothesis feature"]:
    """Embeddings e of the hypotheses, or W_K W_Kᵀ e, or W_O W_V e, less their mean; empty for a single one."""
    found = finite(base, EMBEDDING).astype(np.float64)
    if frame == "keys":
        keys = finite(base, KEYS)[0]
        found = np.einsum("vd,hdk,hek->ve", found, keys, keys, optimize=True)
    elif frame == "values":
        values, output = finite(base, VALUES)[0], finite(base, OUTPUT)[0]
        values = np.repeat(values, len(output) // len(values), axis=0)
        found = np.einsum("vd,hdk,hke->ve", found, values, output, optimize=True)
    return found - found.mean(axis=0) if len(found) > 1 else found[:0]


def _survivors(base: Capture) -> Bool[np.ndarray, "row hypothesis"]:
    """Which hypotheses are possible: those of the belief where it says that, else the possible outcomes."""
    exact = base.posterior
    if base.belief is not None and np.isin(base.belief, (0.0, 1.0)).all():
        exact = base.belief
    return np.empty((base.rows.n_rows, 0), bool) if exact is None else exact > 0


@dataclass(frozen=True)
class _Setting:
    """What all depths share; the labels are the entropy and which hypotheses survive."""

    pool: Cloud
    frame: Float[np.ndarray, "hypothesis feature"]
    survives: Bool[np.ndarray, "row hypothesis"]
    labels: Float[np.ndarray, "row label"]
    half_splits: list[HalfSplit]
    entropies: Float[np.ndarray, "row one_and_shuffled"]
    unit: Int[np.ndarray, " row"]
    weights: Float[np.ndarray, "resample unit"]
    seed: int

    @classmethod
    def of(cls, pool: Cloud, frame: np.ndarray, survives: np.ndarray, n_null: int, seed: int) -> "_Setting":
        entropy = np.asarray(pool.sought, np.float64)
        orders = shuffles(pool.units, n_null, np.random.default_rng([seed, 1]))
        entropies = np.column_stack([entropy, entropy[orders].T])
        units, unit = np.unique(pool.units, return_inverse=True)
        weights = bootstrap_weights(units, None, N_RESAMPLES, np.random.default_rng([seed, 3]))
        labels = np.column_stack([entropy, survives])
        return cls(pool, frame, survives, labels, half_splits_of(pool, seed), entropies, unit, weights, seed)

    def shuffled(self, draw: int, spaces: Sequence[np.ndarray]) -> "list[_Held]":
        """What the bases `[feature, axis]` of all depths hold with shuffled coordinates of random sign."""
        rng, width = np.random.default_rng([self.seed, 2, draw]), self.pool.points.shape[2]
        order, sign = rng.permutation(width), rng.choice(np.array([-1.0, 1.0]), width)
        return [
            _Held.of(points - points.mean(axis=0), (sign[:, None] * space[order]).astype(np.float32), self)
            for points, space in zip(self.pool.points.astype(np.float32, copy=False), spaces, strict=True)
        ]

    def numbers(self, found: "list[_Depth]", drawn: "list[list[_Held]]") -> dict[str, Estimates]:
        """Every number at every depth, beside its null."""
        pool = self.pool
        about = with_least(pool.counted, pool.n_units, FEW_HALVES)

        def split(own: np.ndarray, null: np.ndarray, why: str, *scale: Any) -> Estimates:
            """Of `[depth, half split]` and `[draw, depth, half split]`."""
            mine = Estimates.halved(own.T, *scale, about=about).because(why)
            return mine.permuted(np.nan_to_num(null.mean(axis=2))) if np.isfinite(mine.value).any() else mine

        still = _STILL if np.ptp(self.entropies[:, 0]) == 0 else ""
        undecided = "no hypothesis both survives and is ruled out in all halves"
        decoded = np.array([each.own.decoded for each in found])  # [depth, half split, r2 and accuracy]
        by_chance = np.array([[each.decoded for each in draw] for draw in drawn])
        axis = np.array([each.axis for each in found])  # [depth, half split, own and of shuffled entropies]
        # one half split each: shuffled directions differ between half splits, so that their mean varies too little
        shuffled = np.arange(axis.shape[2] - 1)
        of_one_split = axis[:, shuffled % axis.shape[1], 1 + shuffled].T[..., None]
        inside, whole = (np.array(x) for x in zip(*[(each.own.of_unit, each.of_unit) for each in found], strict=True))
        total = whole.sum(axis=1)
        shares = ratio(inside.sum(axis=1), total)
        resampled = ratio(self.weights @ inside.T, self.weights @ whole.T)
        variance = Estimates.resampled(shares, resampled, about=about).because(_NO_VARIANCE)
        null = np.array([[each.of_unit.sum() for each in draw] for draw in drawn])
        return {
            "overlap": self._overlap(found, drawn),
            "survivors_accuracy": split(
                decoded[..., 1], by_chance[..., 1], undecided if self.survives.shape[1] else _NO_OUTCOMES
            ),
            "uncertainty_r2": split(
                decoded[..., 0], by_chance[..., 0], still or "the entropies of some half do not vary", UNEXPLAINED
            ),
            "axis_share": split(axis[..., 0], of_one_split, still or _NO_VARIANCE),
            "variance_share": variance.permuted(null / np.maximum(total, np.finfo(float).tiny)),
        }

    def _overlap(self, found: "list[_Depth]", drawn: "list[list[_Held]]") -> Estimates:
        if not len(self.frame):
            return Estimates.bare(np.full(len(found), np.nan), why=_NO_OUTCOMES)
        overlap = np.array([each.own.overlap for each in found])
        mean, half = overlap.mean(axis=1), t_half_width(overlap)
        about = {"n": len(self.frame), "n_unit": "hypothesis"}
        own = Estimates(mean, np.array([mean - half, mean + half]).clip(0, 1), about=about)
        return own.permuted(np.array([[each.overlap.mean() for each in draw] for draw in drawn]))


@dataclass(frozen=True)
class _Held:
    """What one subspace holds at one depth: of each hypothesis, of each unit's squared length, and decoding."""

    overlap: Float[np.ndarray, " hypothesis"]
    of_unit: Float[np.ndarray, " unit"]
    decoded: Float[np.ndarray, "split r2_and_accuracy"]

    @classmethod
    def of(cls, centred: Float[np.ndarray, "row feature"], space: Basis, setting: _Setting) -> "_Held":
        inside = centred @ space
        return cls(
            shares(setting.frame, space),
            np.bincount(setting.unit, np.square(inside).sum(axis=1)),
            np.array([_decoded(inside, half_split, setting) for half_split in setting.half_splits]),
        )


@dataclass(frozen=True)
class _Depth:
    """What the J-space holds at one depth, also of the directions of entropies, and what there is in all."""

    own: _Held
    axis: Float[np.ndarray, "split own_and_null"]
    of_unit: Float[np.ndarray, " unit"]
    whole: tuple[float, float]

    @classmethod
    def of(cls, points: Float[np.ndarray, "row feature"], space: Basis, setting: _Setting) -> "_Depth":
        centred = points.astype(np.float64)
        centred -= centred.mean(axis=0)
        rows = ScaledRows.of(centred)
        axes = [_axis(rows, space, half_split, setting) for half_split in setting.half_splits]
        whole = [
            _decoded(centred, h, setting, penalty) for h, (_, penalty) in zip(setting.half_splits, axes, strict=True)
        ]
        return cls(
            _Held.of(centred, space, setting),
            np.array([share for share, _ in axes]),
            np.bincount(setting.unit, np.square(centred).sum(axis=1)),
            tuple(np.mean(whole, axis=0).tolist()),
        )


def _decoded(
    points: Float[np.ndarray, "row feature"], half_split: HalfSplit, setting: _Setting, penalty: float = PENALTY
) -> tuple[float, float]:
    """R² of the entropy and accuracy of what survives, on the half that the readout was not fitted on."""
    entropy, parts = setting.entropies[:, 0], (half_split.fitting, half_split.held_out)
    predicted = read_out(points, setting.labels, parts[0], penalty)
    return held_out_r2(predicted[:, 0], entropy, *parts), balanced_accuracy(predicted[:, 1:], setting.survives, *parts)


def _axis(
    rows: ScaledRows, space: Basis, half_split: HalfSplit, setting: _Setting
) -> tuple[Float[np.ndarray, " own_and_null"], float]:
    """How much of the ridge directions of entropy and shuffled entropies lies in a subspace, and the penalty chosen."""
    form, labels = HalfForm.of(rows, half_split), half_split.fitted(setting.entropies)
    if form is None or not np.square(labels[:, 0]).any():
        return np.full(labels.shape[1], np.nan), 1.0
    ridge = fit_ridge(form.axes, labels, setting.pool.units[half_split.fitting], half_split.taken_out)
    directions = half_split.fitted(rows.points).T @ form.row_weights(ridge.coefficients)
    return shares(directions.T, space), float(ridge.penalty[0])


def _by_rank(frame: Float[np.ndarray, "hypothesis feature"], spectra: list[Spectrum]) -> dict[str, Any]:
    width = frame.shape[1]
    ranks = [rank for rank in RANKS if rank < width]
    at = [(depth, rank, shares(frame, s.space(rank)).mean()) for depth, s in enumerate(spectra) for rank in ranks]
    depth, rank, overlap = (np.array(column) for column in zip(*at, strict=True))
    return {"depth": depth, "rank": rank, "overlap": overlap, "times_random": overlap * width / rank}
