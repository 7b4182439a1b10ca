"""Does the spectrum depend on a few dimensions of large variance, and would other prompts give the same first axis?

Dropping: the k columns of largest variance are left out and everything is measured again, with its null. Stability:
|cos| between the first axes of disjoint halves of the prompts, compared with Gaussian clouds of the same size and
column deviations.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from interp.statistics.estimates import Estimates
from interp.statistics.resampling import split_rows
from interp.statistics.spectra import Scaling, centred_gram, leading_vectors, scaled

from ..measures.cloud import Cloud
from ..measures.geometry import ALL_ALIKE, NULL_NAMES, spectral_estimates
from ..measures.sample_sizes import MIN_HALVES

N_NULL = 20


def without_loudest(cloud: Cloud, n_dropped: int) -> Cloud | None:
    """The cloud without the columns of largest variance in each layer; None where fewer than two columns would stay."""
    n_features = cloud.points.shape[2]
    if n_features - n_dropped < 2:
        return None
    variance = np.asarray(cloud.points, dtype=np.float64).var(axis=1)
    order = np.argsort(-variance, axis=1, kind="stable")
    kept = np.sort(order[:, n_dropped:], axis=1)
    return replace(cloud, points=np.take_along_axis(cloud.points, kept[:, None, :], axis=2))


def dropped_estimates(left: Cloud, scaling: Scaling, seed: int) -> dict[str, Estimates]:
    """The spectral statistics of every layer without its columns of largest variance."""
    found = spectral_estimates(left, scaling, left.gaussian(N_NULL, seed))
    return {f"{name}_dropped": of for name, of in found.items() if name != "pc1_share"}


def stability_estimates(cloud: Cloud, scaling: Scaling, n_splits: int, seed: int) -> Estimates:
    """Mean |cos| between the first axes of disjoint halves, at every layer; the same splits and draws for all."""
    rng = np.random.default_rng(seed)
    enough = cloud.n_units >= MIN_HALVES
    splits = [split_rows(cloud.units, rng) for _ in range(n_splits)] if enough else []
    layers, values = [scaled(points, scaling) for points in cloud.points], np.full(cloud.n_layers, np.nan)
    draws = np.full((N_NULL, cloud.n_layers), np.nan)
    if splits:
        values = np.array([first_axis_cosines(rows, splits).mean() if rows.any() else np.nan for rows in layers])
        nulls = cloud.gaussian(N_NULL, seed).like(layers)
        draws = np.array([[first_axis_cosines(drawn, splits).mean() for drawn in draw] for draw in nulls])
    why = ALL_ALIKE if splits else f"fewer than {MIN_HALVES} {cloud.unit}s make no halves"
    words = cloud.slots | {"gaussian": NULL_NAMES[scaling], "n_splits": str(len(splits))}
    found = Estimates.bare(values, about=cloud.counted, words=words).because(why).drawn(draws)
    assert found.null is not None
    # a prediction interval can exceed the bounds of |cos|
    return found.against(np.clip(found.null, 0.0, 1.0))


def first_axis_cosines(
    points: Float[np.ndarray, "row feature"], splits: Sequence[tuple[np.ndarray, np.ndarray]]
) -> Float[np.ndarray, " split"]:
    """|cos| between the first principal axes of the two halves of every split; zero where nothing varies.

    From one matrix of products: those of a half about its mean are K, and its axis is Xᵀc, where c is the first
    eigenvector of K.
    """
    products = np.asarray(points @ points.T, dtype=np.float64)
    first, second = np.zeros((2, len(splits), len(products)))
    for i, split in enumerate(splits):
        for side, half in zip((first, second), split, strict=True):
            kernel = centred_gram(products[half][:, half])
            c = leading_vectors(kernel, 1)[:, 0]
            length = np.sqrt(max(0.0, c @ kernel @ c))
            if length > 0:
                side[i, half] = (c - c.mean()) / length
    return np.abs(np.einsum("sr,sr->s", first @ products, second))
