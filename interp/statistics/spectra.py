"""How many directions a cloud of points uses: eigenvalue shares, participation ratio, principal axes.

A cloud is `[row, feature]`, rows are prompts. With the eigenvalues λ₁ ≥ λ₂ ≥ … of the covariance,

    PC1 share   λ₁ / Σλ            PC1+PC2 share   (λ₁ + λ₂) / Σλ
    participation ratio   (Σλ)² / Σλ²        from 1 (one direction) to min(rows − 1, features)

All depend on the number of rows: a cloud without any structure has a PC1 share that falls, and a
participation ratio that grows, as rows are added (`interp.statistics.nulls` has their nulls at the same size).
Source: Paper III (arXiv 2512.23752), section 4.2, which standardises columns; here they are centred by default, since
standardising gives a column of small variance the weight of one of large variance.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float
from scipy import linalg
from scipy.sparse.linalg import eigsh

from interp.statistics.ratio import ratio

Scaling = Literal["centred", "zscored"]

SPECTRAL = ("pc1_share", "pc1_plus_pc2_share", "participation_ratio")
"""The three statistics, in the order of the last axis of every array of them."""

_DENSE_UP_TO = 400
"""Rows above which Lanczos iteration finds leading eigenvectors sooner than a dense solver."""


@dataclass(frozen=True)
class Axes:
    """The leading principal axes of a cloud, and where its rows lie along them.

    `directions` are orthonormal in the scaled coordinates. The sign of an axis is arbitrary; here its largest
    loading (the first, where several tie) is positive.
    """

    directions: Float[np.ndarray, "axis feature"]
    scores: Float[np.ndarray, "row axis"]


def scaled(rows: np.ndarray, scaling: Scaling) -> Float[np.ndarray, "row feature"]:
    """The rows in float64 with every column centred, and for `zscored` divided by its standard deviation.

    A column that never varies is exactly zero either way: it carries no direction.
    """
    rows = np.asarray(rows, dtype=np.float64)
    centred = rows - rows.mean(axis=0)
    centred[:, constant_columns(rows)] = 0.0
    if scaling == "centred":
        return centred
    deviation = centred.std(axis=0)
    return np.divide(centred, deviation, out=centred, where=deviation > 0)


def constant_columns(rows: np.ndarray) -> Bool[np.ndarray, " feature"]:
    """Which columns hold one value in every row."""
    return np.ptp(rows, axis=0) == 0


def eigenvalues(centred: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " axis"]:
    """Eigenvalues of the scatter Σ y yᵀ of centred rows, largest first, from the smaller of the two Gram matrices."""
    n_rows, n_features = centred.shape
    return gram_eigenvalues(smaller_gram(centred))[: max(1, min(n_rows - 1, n_features))]


def smaller_gram(centred: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "side side"]:
    """Inner products of the rows, or of the columns where they are fewer: both have the eigenvalues of the scatter."""
    return centred @ centred.T if len(centred) <= centred.shape[1] else centred.T @ centred


def gram_eigenvalues(gram: Float[np.ndarray, "*batch row row"]) -> Float[np.ndarray, "*batch axis"]:
    """Eigenvalues of a symmetric matrix of inner products, largest first, rounding below zero cut off."""
    return np.clip(np.linalg.eigvalsh(gram)[..., ::-1], 0.0, None)


def centred_gram(gram: Float[np.ndarray, "*batch row row"]) -> Float[np.ndarray, "*batch row row"]:
    """Inner products about the mean of the rows, from inner products about any other point."""
    by_row = gram.mean(axis=-1, keepdims=True)
    return gram - by_row - np.swapaxes(by_row, -1, -2) + by_row.mean(axis=-2, keepdims=True)


def gram_statistics(gram: Float[np.ndarray, "*batch row row"]) -> Float[np.ndarray, "*batch statistic"]:
    """`SPECTRAL` from inner products of centred rows, or of columns; NaN where nothing varies."""
    leading, total = gram_eigenvalues(gram)[..., :2], np.trace(gram, axis1=-2, axis2=-1)
    part = np.stack([leading[..., 0], leading.sum(axis=-1), np.square(total)], axis=-1)
    return ratio(part, np.stack([total, total, np.einsum("...rs,...rs->...", gram, gram)], axis=-1))


def principal_axes(centred: Float[np.ndarray, "row feature"], n_axes: int) -> Axes:
    """The first principal axes of centred rows; at most as many as rows and features allow."""
    n_rows, n_features = centred.shape
    n_axes = min(n_axes, n_rows, n_features)
    vectors = leading_vectors(smaller_gram(centred), n_axes)
    directions = (vectors.T @ centred) if n_rows <= n_features else vectors.T
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    directions = np.divide(directions, lengths, out=np.zeros_like(directions), where=lengths > 0)
    largest = directions[np.arange(n_axes), np.abs(directions).argmax(axis=1)]
    directions = directions * np.where(largest < 0, -1.0, 1.0)[:, None]
    return Axes(directions, centred @ directions.T)


def leading_vectors(gram: Float[np.ndarray, "*batch row row"], n_axes: int) -> Float[np.ndarray, "*batch row axis"]:
    """Eigenvectors of the largest eigenvalues of one or many symmetric matrices, in columns."""
    found = np.array([_leading_vectors(one, n_axes) for one in gram.reshape(-1, *gram.shape[-2:])])
    return found.reshape(*gram.shape[:-1], n_axes)


def _leading_vectors(gram: Float[np.ndarray, "row row"], n_axes: int) -> Float[np.ndarray, "row axis"]:
    n = len(gram)
    if n <= _DENSE_UP_TO or not gram.any():
        try:
            _, vectors = linalg.eigh(gram, lower=False, subset_by_index=(n - n_axes, n - 1), driver="evx")
        except linalg.LinAlgError:  # inverse iteration did not converge
            _, vectors = np.linalg.eigh(gram)
        return np.asarray(vectors)[:, : -n_axes - 1 : -1]
    start = gram[:, np.diagonal(gram).argmax()]  # deterministic, and never orthogonal to the leading axis in practice
    values, vectors = eigsh(gram, k=n_axes, v0=start)
    return vectors[:, np.argsort(values)[::-1]]
