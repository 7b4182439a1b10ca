"""Does the flatness of a cloud hang on a few loud dimensions, or on one prompt?

Dropping: the k columns of largest variance are left out and everything is measured again, the null with the columns
that stay. Influence: the change of the PC1+PC2 share when one prompt is left out; the largest is compared with the
largest in Gaussian clouds of the same size and column deviations. Stability: |cos| between the first axes of disjoint
halves of the prompts, beside that of such Gaussian clouds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from interp.findings import Scalar
from interp.statistics.estimate import null_from_draws
from interp.statistics.jackknife import without_each_group, without_each_row
from interp.statistics.ratio import ratio
from interp.statistics.resampling import split_rows
from interp.statistics.spectra import SPECTRAL, Scaling, gram_statistics, scaled, smaller_gram
from interp.table import Table

from ..measures.axis_stability import Split, first_axis_cosines
from ..measures.cloud import Cloud
from ..measures.geometry import ALL_ALIKE, NULL_NAMES, UNITS, spectral_profiles
from ..measures.profiles import Part, Profile
from ..measures.sample_sizes import MIN_HALVES

DROPPED = (0, 1, 2, 4, 8, 16, 32)
N_NULL = 20
_SHARE = 1
"""Where PC1+PC2 stands in `interp.statistics.spectra.SPECTRAL`."""

DROPPED_CAPTION = (
    "The primary layer without its k loudest columns (largest variance): the share of the variance that goes with "
    "them, and the statistics of what stays with jackknife intervals and Gaussian nulls of the same columns."
)
INFLUENCE_CAPTION = "Leaving out one prompt at the primary layer: how much the PC1+PC2 share and the ratio change."


@dataclass(frozen=True)
class Loudest:
    """A cloud without its loudest columns, and the share of each layer's variance that went with them."""

    cloud: Cloud
    variance_share: Float[np.ndarray, " layer"]


def without_loudest(cloud: Cloud, n_dropped: int) -> Loudest | None:
    """The cloud without the columns of largest variance in each layer; None where fewer than two would stay."""
    n_features = cloud.points.shape[2]
    if n_features - n_dropped < 2:
        return None
    variance = np.asarray(cloud.points, dtype=np.float64).var(axis=1)
    order = np.argsort(-variance, axis=1, kind="stable")
    kept = np.sort(order[:, n_dropped:], axis=1)
    gone = np.take_along_axis(variance, order[:, :n_dropped], axis=1).sum(axis=1)
    points = np.take_along_axis(cloud.points, kept[:, None, :], axis=2)
    return Loudest(replace(cloud, points=points), ratio(gone, variance.sum(axis=1)))


def dropped_profiles(left: Loudest, n_dropped: int, scaling: Scaling, seed: int) -> dict[str, Profile]:
    """The spectral statistics of every layer without its loudest columns."""
    profiles = spectral_profiles(left.cloud, scaling, left.cloud.gaussian(N_NULL, seed))
    words = f" Measured without the {n_dropped} columns of largest variance."
    return {
        f"{name}_dropped": [replace(s, meaning=s.meaning + words) for s in profile]
        for name, profile in profiles.items() if name != "pc1_share"
    }  # fmt: skip


def dropped_table(cloud: Cloud, layer: int, scaling: Scaling, seed: int) -> Table:
    """One row for every number of dropped columns, at one layer."""
    one = replace(cloud, points=cloud.points[layer : layer + 1])
    rows = []
    for n_dropped in DROPPED:
        left = without_loudest(one, n_dropped)
        if left is None:
            break
        row: dict[str, object] = {"n_dropped": n_dropped, "variance_dropped": left.variance_share[0]}
        for name, (scalar,) in spectral_profiles(left.cloud, scaling, left.cloud.gaussian(N_NULL, seed)).items():
            row |= scalar.columns(name)
        rows.append(row)
    units = {"n_dropped": "columns", "variance_dropped": "fraction"} | {name: UNITS[name] for name in SPECTRAL[1:]}
    return Table.from_rows(rows, units, DROPPED_CAPTION)


def without_each_unit(
    centred: Float[np.ndarray, "row feature"], units: Int[np.ndarray, " row"]
) -> Float[np.ndarray, "unit statistic"]:
    """The spectral statistics of centred rows without each unit's rows in turn, recentred."""
    names, codes = np.unique(units, return_inverse=True)
    if len(names) == len(units):
        return without_each_row(centred)[np.argsort(codes)]
    return without_each_group(centred, codes)


def influence(cloud: Cloud, layer: int, scaling: Scaling, seed: int) -> Part:
    """How much the flatness of one layer owes to a single prompt.

    Rows are scaled once, with all prompts. The null's rows are independent, also where the measured ones are not.
    """
    rows = scaled(cloud.points[layer], scaling)
    whole = gram_statistics(smaller_gram(rows))
    meaning = (
        f"Largest change of the PC1+PC2 share when a single {cloud.unit} is left out; above its null, one "
        f"{cloud.unit} makes the plane."
    )
    about: dict[str, Any] = {"meaning": meaning, **cloud.counted}
    if np.isnan(whole).any():
        return Part({"largest_influence": Scalar.undefined(ALL_ALIKE, "fraction", underpowered=True, **about)})
    left = without_each_unit(rows, cloud.prompts) - whole
    largest = float(np.nanmax(np.abs(left[:, _SHARE])))
    null = null_from_draws(NULL_NAMES[scaling], _null_influences(rows, cloud, seed))
    none = "the largest of all prompts: leaving one out is what it measures"
    scalar = Scalar.of(largest, "fraction", none, null, **about)
    columns = {"prompt": np.unique(cloud.prompts), "share_change": left[:, _SHARE], "ratio_change": left[:, 2]}
    units = {"prompt": "index", "share_change": "fraction", "ratio_change": "dimensions"}
    return Part({"largest_influence": scalar}, {"influence": Table(columns, units, INFLUENCE_CAPTION)})


def _null_influences(rows: np.ndarray, cloud: Cloud, seed: int) -> np.ndarray:
    deviation, rng = rows.std(axis=0), np.random.default_rng(seed)
    n_draws = max(5, min(N_NULL, 2000 // len(np.unique(cloud.prompts))))
    found = []
    for _ in range(n_draws):
        drawn = rng.standard_normal(rows.shape) * deviation
        drawn -= drawn.mean(axis=0)
        share = gram_statistics(smaller_gram(drawn))[_SHARE]
        found.append(np.nanmax(np.abs(without_each_unit(drawn, cloud.prompts)[:, _SHARE] - share)))
    return np.array(found)


def stability_profile(cloud: Cloud, scaling: Scaling, n_splits: int, seed: int) -> list[Scalar]:
    """Mean |cos| between the first axes of disjoint halves, at every layer; the same splits and draws for all."""
    rng = np.random.default_rng(seed)
    enough = cloud.n_units >= MIN_HALVES
    splits = [split_rows(cloud.units, rng) for _ in range(n_splits)] if enough else []
    clouds, found = cloud.gaussian(N_NULL, seed), []
    for points in cloud.points:
        rows = scaled(points, scaling)
        if not splits or not rows.any():
            found.append(_stability(cloud, float("nan"), np.empty(0), scaling, splits))
            continue
        draws = np.array([first_axis_cosines(drawn, splits).mean() for drawn in clouds.like(rows)])
        found.append(_stability(cloud, float(first_axis_cosines(rows, splits).mean()), draws, scaling, splits))
    return found


def _stability(
    cloud: Cloud, value: float, draws: Float[np.ndarray, " draw"], scaling: Scaling, splits: Sequence[Split]
) -> Scalar:
    meaning = (
        "Mean |cos| between the first principal axes of disjoint halves of the prompts, over random splits: near 1, "
        "other prompts would give the same axis."
    )
    if np.isnan(value):
        reason = ALL_ALIKE if splits else f"fewer than {MIN_HALVES} {cloud.unit}s make no halves"
        return Scalar.undefined(reason, underpowered=True, meaning=meaning, **cloud.counted)
    null = null_from_draws(NULL_NAMES[scaling], draws)
    # a prediction interval knows no bounds, |cos| does
    low, high = np.clip(null.band, 0.0, 1.0)
    return Scalar.of(
        value, "1", f"the {len(splits)} splits share {cloud.unit}s", replace(null, band=(float(low), float(high))),
        meaning=meaning, **cloud.counted,
    )  # fmt: skip
