"""Right and wrong, side by side: the same quantity from two reads of one model on the same prompts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Num

from interp.capture import Capture
from interp.findings import Findings, Interval, Null, Scalar
from interp.hooks.attention import Listener
from interp.model import Model
from interp.need import Need
from interp.prompt import PromptSet
from interp.reading.forward import capture
from interp.statistics.cosines import Reference, cosine_measures, expected_abs_cosine, gaussian_sets, mean_cosines
from interp.statistics.intervals import band, null_from_draws, t_quantile
from interp.statistics.jackknife import deletions, spectral_intervals, standard_error
from interp.statistics.nulls import GaussianClouds, null_spectra
from interp.statistics.resampling import bootstrap_weights
from interp.statistics.spectra import Scaling, eigenvalues, scaled, spectral_statistics
from interp.statistics.units import clusters_of, counted, resampled_unit
from interp.system.progress import Report
from interp.table import LABEL, Table

N_BOOTSTRAP = 1000


@dataclass(frozen=True)
class Subject:
    """The model and the tokenised prompts that both reads are taken from."""

    model: Model
    prompts: PromptSet
    ids: Sequence[Int[np.ndarray, " _pos"]]
    seed: int = 0
    progress: Report | None = None

    def read(self, *needs: Need, listeners: Sequence[Listener] = ()) -> Capture:
        """One pass over the prompts."""
        said = {"listeners": listeners, "progress": self.progress, "seed": self.seed}
        return capture(self.model, self.prompts, self.ids, needs, **said)

    def rng(self, purpose: int) -> np.random.Generator:
        """A stream of its own for each purpose, so that no number depends on which others were computed."""
        return np.random.default_rng([self.seed, purpose])


@dataclass(frozen=True)
class Sample:
    """Which cluster of prompts each row belongs to, with one set of bootstrap resamples for all that is averaged.

    `counted` says of how many prompts and clusters, as fields of a scalar; `resampled` is the word for what is drawn.
    """

    units: Int[np.ndarray, " row"]
    counted: Mapping[str, Any]
    rng: np.random.Generator = field(repr=False)

    @classmethod
    def of(cls, base: Capture, rng: np.random.Generator) -> "Sample":
        clusters = clusters_of(base.rows)
        return cls(clusters, counted(base.rows["prompt"], clusters, base.prompts.unit), rng)

    @property
    def resampled(self) -> str:
        return resampled_unit(self.counted)

    @cached_property
    def weights(self) -> Int[np.ndarray, "resample row"]:
        """How often each row occurs when whole clusters are drawn with replacement."""
        return bootstrap_weights(self.units, None, N_BOOTSTRAP, self.rng)


@dataclass(frozen=True)
class Sides:
    """One quantity, read right and read wrong. `name` is for machines, `quantity` for people."""

    name: str
    quantity: str
    right: Scalar
    wrong: Scalar


def side_by_side(sides: Sequence[Sides], caption: str) -> Table:
    """A row a quantity; a null is NaN where there is none, for the reason that the scalar gives."""
    rows = [
        {
            "quantity": s.quantity, "right": s.right.value, "right_null": _null(s.right),
            "wrong": s.wrong.value, "wrong_null": _null(s.wrong), "unit": s.right.unit,
        }
        for s in sides
    ]  # fmt: skip
    numbers = dict.fromkeys(("right", "right_null", "wrong", "wrong_null"), "as named")
    return Table.from_rows(rows, {"quantity": LABEL, **numbers, "unit": LABEL}, caption)


def compared(bug: str, sides: Sequence[Sides], notes: tuple[str, ...], tables: Mapping[str, Table]) -> Findings:
    """The findings of one bug: scalars `<name>_right` and `<name>_wrong`, headed by the first quantity."""
    scalars = {f"{s.name}_{side}": getattr(s, side) for s in sides for side in ("right", "wrong")}
    caption = "The same quantities from the tensor that is meant and from the one the published code reads."
    return Findings(
        probe=f"reproduce-bug-{bug}",
        scalars=scalars,
        tables={"side_by_side": side_by_side(sides, caption), **tables},
        notes=notes,
        headline=tuple(scalars)[:2],
    )


def _null(scalar: Scalar) -> float:
    return scalar.null.value if scalar.null else float("nan")


N_NULL = 100

_SHARES = {
    "pc1_share": "Share of the variance between prompts along one direction.",
    "pc1_plus_pc2_share": "Share of the variance between prompts in one plane.",
}
_CLOUDS = {
    "centred": "independent Gaussian columns, each with its own variance, at this size",
    "zscored": "standard Gaussian cloud at this size",
}
_ALL_ALIKE = "every row is the same point: nothing varies"

Cosines = Float[np.ndarray, "layer row"]


def variance_shares(
    points: Num[np.ndarray, "row feature"], sample: Sample, scaling: Scaling, seed: int
) -> dict[str, Scalar]:
    """`pc1_share` and `pc1_plus_pc2_share` of a cloud, jackknifed over clusters, against Gaussian clouds."""
    statistics = spectral_statistics(eigenvalues(scaled(points, scaling)))
    if np.isnan(statistics).any():
        return {
            name: Scalar.undefined(_ALL_ALIKE, "fraction", meaning=m, **sample.counted) for name, m in _SHARES.items()
        }
    deleted = deletions(points, scaling, sample.units)
    intervals = spectral_intervals(statistics, deleted)
    n_rows, n_features = points.shape
    in_clusters = sample.units if sample.counted["n_clusters"] else None
    clouds = GaussianClouds(n_rows, n_features, N_NULL, seed, in_clusters)
    draws = spectral_statistics(null_spectra(points, scaling, clouds))
    return {
        name: Scalar.of(
            float(statistics[i]), "fraction", _interval(intervals[i], f"{deleted.method}, logit scale"),
            null_from_draws(_CLOUDS[scaling], draws[:, i]), meaning=meaning, **sample.counted,
        )
        for i, (name, meaning) in enumerate(_SHARES.items())
    }  # fmt: skip


def head_cosines(keys: Num[np.ndarray, "layer row head d_head"]) -> Cosines:
    """Mean |cos| over pairs of heads at every row; NaN for a single head."""
    return np.array([cosine_measures(layer)[:, 0] for layer in keys])


def mean_over_prompts(
    values: Float[np.ndarray, " row"], sample: Sample, null: Null | str, *, unit: str, meaning: str
) -> Scalar:
    """The mean over rows, bootstrapped over whole clusters; `null` is one, or the reason why there is none."""
    value = float(values.mean())
    if isinstance(null, Null) and np.isnan(value):
        null = "undefined, like the value"
    resampled = (sample.weights @ values) / sample.weights.sum(axis=1)
    interval = _interval(band(resampled), f"bootstrap over {sample.resampled}s")
    return Scalar.of(value, unit, interval, null, meaning=meaning, **sample.counted)


def head_key_sides(cosines: tuple[Cosines, Cosines], nulls: tuple[Null, Null], sample: Sample) -> Sides:
    """`head_cosines` of the right and of the wrong keys, averaged over layers."""
    meaning = "How parallel the keys are that the heads of a layer give to one token, on average over layers."
    right, wrong = (
        mean_over_prompts(of_heads.mean(axis=0), sample, null, unit="1", meaning=meaning)
        for of_heads, null in zip(cosines, nulls, strict=True)
    )
    return Sides("head_keys", "mean |cos| of head keys, all layers", right, wrong)


def set_cosines(
    layers: Sequence[Num[np.ndarray, "vector feature"]],
) -> tuple[Float[np.ndarray, " layer"], Float[np.ndarray, "vector layer"]]:
    """Mean |cos| over pairs of the vectors of each layer: of all of them, and without each in turn."""
    values, replicates = [], []
    for vectors in layers:
        # the triangular factor has the same inner products in as few coordinates as the vectors span
        inner = np.asarray(np.linalg.qr(np.asarray(vectors, dtype=np.float64).T, mode="r")).T
        size = np.linalg.norm(inner, axis=1).max(keepdims=True)
        without = np.stack([np.delete(inner, i, axis=0) for i in range(len(inner))])
        values.append(mean_cosines(inner, size)[0])
        replicates.append(mean_cosines(without, np.tile(size, (len(without), 1)))[:, 0])
    return np.array(values), np.array(replicates).T


def mean_over_layers(
    values: Float[np.ndarray, " layer"], without: Float[np.ndarray, "vector layer"], null: Null
) -> Scalar:
    """Cosines of sets of tokens, averaged over layers; the interval leaves out one token at a time."""
    value, replicates = float(values.mean()), without.mean(axis=1)
    half = float(standard_error(replicates, len(replicates), 1)) * t_quantile(len(replicates))
    interval = _interval(np.array([value - half, value + half]), "delete-one jackknife over tokens")
    meaning = "How parallel the vectors of different tokens are, on average over layers."
    return Scalar.of(value, "1", interval, null, n=len(replicates), n_unit="token", meaning=meaning)


def random_directions(
    n_vectors: int,
    n_features: int,
    rng: np.random.Generator,
    *,
    n_averaged: int = 1,
    n_tokens: int | None = None,
) -> Null:
    """Mean |cos| where directions are random: E|cos| of this dimension, exactly, with the band of such sets.

    The band is that of one set, or of a mean over `n_averaged` independent ones; what prompts or layers share
    is one set. With `n_tokens` the vectors are drawn with replacement from so many, and meet themselves.
    """
    sets = gaussian_sets(n_vectors, n_features, N_NULL, rng)
    name = f"{n_vectors} random directions in {n_features} dimensions"
    repeated = 0.0
    if n_tokens is not None:
        drawn = rng.integers(n_tokens, size=(N_NULL, n_vectors))
        first = (drawn[:, :, None] == drawn[:, None, :]).argmax(axis=-1)
        sets = np.take_along_axis(sets, first[..., None], axis=1)
        name, repeated = f"{name}, with replacement from {n_tokens}", 1 / n_tokens
    null = Reference(name, cosine_measures(sets)[:, 0]).compare(float("nan"), n_averaged).null
    return replace(null, value=repeated + (1 - repeated) * expected_abs_cosine(n_features))


def layer_table(columns: dict[str, Float[np.ndarray, " layer"] | float], caption: str) -> Table:
    """One row a layer; every column is a mean |cos|, those of nulls the same at every layer."""
    n_layers = max(np.size(column) for column in columns.values())
    filled = {name: np.broadcast_to(column, n_layers) for name, column in columns.items()}
    units = {"layer": "layer"} | dict.fromkeys(columns, "1")
    return Table({"layer": np.arange(n_layers), **filled}, units, caption)


def _interval(bounds: np.ndarray, method: str) -> Interval | str:
    return Interval.of(bounds, method, "undefined, or at a bound when some of the prompts are left out")
