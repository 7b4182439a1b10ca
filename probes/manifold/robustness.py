"""Does the flatness of a cloud hang on a few loud dimensions, or on one prompt?

Dropping: the k columns of largest variance are left out and everything is measured again, the null with the columns
that stay. Influence: the change of the PC1+PC2 share when one prompt is left out; the largest is compared with the
largest in Gaussian clouds of the same size and column deviations. Stability: |cos| between the first axes of disjoint
halves of the prompts, beside that of such Gaussian clouds.
"""

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from interp.statistics.estimates import Estimates
from interp.statistics.ratio import ratio
from interp.statistics.resampling import split_rows
from interp.statistics.spectra import Scaling, gram_statistics, scaled, smaller_gram
from interp.table import Table

from ..measures.axis_stability import first_axis_cosines
from ..measures.cloud import Cloud
from ..measures.geometry import ALL_ALIKE, NULL_NAMES, spectral_estimates
from ..measures.profiles import Part
from ..measures.sample_sizes import MIN_HALVES
from .collapse import without_each_unit
from .quantities import QUANTITIES

DROPPED = (0, 1, 2, 4, 8, 16, 32)
N_NULL = 20
_SHARE = 1
"""Where PC1+PC2 stands in `interp.statistics.spectra.SPECTRAL`."""

DROPPED_CAPTION = (
    "The primary layer without its k loudest columns (largest variance): the share of the variance that goes with "
    "them, and the statistics of what stays with jackknife intervals and Gaussian nulls of the same columns."
)
INFLUENCE_CAPTION = "Leaving out one prompt at the primary layer: how much the PC1+PC2 share and the ratio change."


def without_loudest(cloud: Cloud, n_dropped: int) -> tuple[Cloud, Float[np.ndarray, " layer"]] | None:
    """The cloud without the columns of largest variance in each layer, and the share of the variance that went.

    None where fewer than two columns would stay.
    """
    n_features = cloud.points.shape[2]
    if n_features - n_dropped < 2:
        return None
    variance = np.asarray(cloud.points, dtype=np.float64).var(axis=1)
    order = np.argsort(-variance, axis=1, kind="stable")
    kept = np.sort(order[:, n_dropped:], axis=1)
    gone = np.take_along_axis(variance, order[:, :n_dropped], axis=1).sum(axis=1)
    points = np.take_along_axis(cloud.points, kept[:, None, :], axis=2)
    return replace(cloud, points=points), ratio(gone, variance.sum(axis=1))


def dropped_estimates(left: Cloud, scaling: Scaling, seed: int, ending: str = "") -> dict[str, Estimates]:
    """The spectral statistics of every layer without its loudest columns."""
    found = spectral_estimates(left, scaling, left.gaussian(N_NULL, seed))
    return {name + ending: of for name, of in found.items() if name != "pc1_share"}


def dropped_table(cloud: Cloud, layer: int, scaling: Scaling, seed: int) -> Table:
    """One row for every number of dropped columns, at one layer."""
    one = replace(cloud, points=cloud.points[layer : layer + 1])
    rows = []
    for n in DROPPED:
        if (kept := without_loudest(one, n)) is not None:
            left, gone = kept
            found = dropped_estimates(left, scaling, seed)
            rows.append({"n_dropped": np.array([n]), "variance_dropped": gone, **found})
    return QUANTITIES.stacked(rows, DROPPED_CAPTION)


def influence(cloud: Cloud, layer: int, scaling: Scaling, seed: int) -> Part:
    """How much the flatness of one layer owes to a single prompt.

    Rows are scaled once, with all prompts. The null's rows are independent, also where the measured ones are not.
    """
    rows = scaled(cloud.points[layer], scaling)
    whole = gram_statistics(smaller_gram(rows))
    words = cloud.slots | {"gaussian": NULL_NAMES[scaling]}
    if np.isnan(whole).any():
        nothing = Estimates.undefined(ALL_ALIKE, about=cloud.counted, words=words)
        return Part(QUANTITIES.scalars({"largest_influence": nothing}))
    left = without_each_unit(rows, cloud.prompts) - whole
    largest = np.nanmax(np.abs(left[:, [_SHARE]]), axis=0)
    found = Estimates(largest, about=cloud.counted, words=words).drawn(_null_influences(rows, cloud, seed)[:, None])
    columns = {"prompt": np.unique(cloud.prompts), "share_change": left[:, _SHARE], "ratio_change": left[:, 2]}
    table = QUANTITIES.table(columns, INFLUENCE_CAPTION)
    return Part(QUANTITIES.scalars({"largest_influence": found}), {"influence": table})


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


def stability_estimates(cloud: Cloud, scaling: Scaling, n_splits: int, seed: int) -> Estimates:
    """Mean |cos| between the first axes of disjoint halves, at every layer; the same splits and draws for all."""
    rng = np.random.default_rng(seed)
    enough = cloud.n_units >= MIN_HALVES
    splits = [split_rows(cloud.units, rng) for _ in range(n_splits)] if enough else []
    clouds, values = cloud.gaussian(N_NULL, seed), np.full(cloud.n_layers, np.nan)
    draws = np.full((N_NULL, cloud.n_layers), np.nan)
    for layer, points in enumerate(cloud.points):
        rows = scaled(points, scaling)
        if splits and rows.any():
            values[layer] = first_axis_cosines(rows, splits).mean()
            draws[:, layer] = [first_axis_cosines(drawn, splits).mean() for drawn in clouds.like(rows)]
    why = ALL_ALIKE if splits else f"fewer than {MIN_HALVES} {cloud.unit}s make no halves"
    words = cloud.slots | {"gaussian": NULL_NAMES[scaling], "n_splits": str(len(splits))}
    found = Estimates.bare(values, about=cloud.counted, words=words).because(why).drawn(draws)
    assert found.null is not None
    # a prediction interval knows no bounds, |cos| does
    return found.against(np.clip(found.null, 0.0, 1.0))
