"""Ridge of many labels at many penalties from one decomposition of the inner products K of the rows: K = Q T Qᵀ.

    (K + α)⁻¹ y = Q (T + α)⁻¹ Qᵀ y        tr (K + α)⁻¹ = tr (T + α)⁻¹

Of many rows T is tridiagonal, as Householder's reduction leaves it in a quarter of the time of all eigenvectors, and a
system with it takes a few operations a row. Source: Gu, Bates, Chen and Wahba 1989 (doi 10.1137/0610033), for
generalised cross-validation. Of few rows Q has the eigenvectors, T the eigenvalues.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Float
from scipy import linalg

_REDUCED_FROM = 300
"""Rows from which labels are read sooner by the tridiagonal form."""

_BLOCK = 64
"""Columns that LAPACK treats together at most: how much room it is given."""

_SYTRD, _ORMQR, _PTTRF, _PTTRS, _TBTRS = linalg.get_lapack_funcs(
    ("sytrd", "ormqr", "pttrf", "pttrs", "tbtrs"), dtype=np.float64
)


@dataclass(frozen=True)
class Diagonal:
    """The eigenvalues, ascending, and the eigenvectors in columns; without them Q is the identity."""

    diagonal: Float[np.ndarray, " axis"]
    vectors: Float[np.ndarray, "row axis"] | None = None

    @classmethod
    def of(cls, products: Float[np.ndarray, "row row"]) -> "Diagonal":
        return cls(*np.linalg.eigh(products))

    @property
    def leading(self) -> tuple[float, Float[np.ndarray, " axis"]]:
        """The largest eigenvalue and its eigenvector, in the basis of Q's columns."""
        first = np.zeros(len(self.diagonal))
        first[-1] = 1.0
        return float(self.diagonal[-1]), first

    @property
    def spectrum(self) -> Float[np.ndarray, " axis"]:
        """All eigenvalues, largest first."""
        return self.diagonal[::-1]

    def n_above(self, value: float) -> int:
        """How many eigenvalues are larger."""
        return int((self.diagonal > value).sum())

    def turned(self, columns: Float[np.ndarray, "row column"]) -> Float[np.ndarray, "axis column"]:
        """Qᵀ times columns."""
        return columns if self.vectors is None else (columns.T @ self.vectors).T

    def turned_back(self, columns: Float[np.ndarray, "axis column"]) -> Float[np.ndarray, "row column"]:
        """Q times columns."""
        return columns if self.vectors is None else (columns.T @ self.vectors.T).T

    def squares(
        self, columns: Float[np.ndarray, "axis column"], penalty: float
    ) -> tuple[Float[np.ndarray, " column"], float]:
        """The squared lengths of (T + α)⁻¹ times columns, and the trace of (T + α)⁻¹."""
        inverse = 1 / (self.diagonal + penalty)
        return np.square(inverse) @ np.square(columns), float(inverse.sum())

    def solved(self, columns: Float[np.ndarray, "axis column"], penalty: float) -> Float[np.ndarray, "axis column"]:
        """(T + α)⁻¹ times columns."""
        return columns / (self.diagonal + penalty)[:, None]

    def times(self, column: Float[np.ndarray, " axis"]) -> Float[np.ndarray, " axis"]:
        """T times a column."""
        return self.diagonal * column


@dataclass(frozen=True)
class Tridiagonal:
    """T, and the Householder reflectors that Q is the product of, as LAPACK keeps them."""

    diagonal: Float[np.ndarray, " axis"]
    beside: Float[np.ndarray, " link"]
    reflectors: Float[np.ndarray, "row axis"]
    factors: Float[np.ndarray, " axis"]
    _room: dict[tuple[int, ...], np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, products: Float[np.ndarray, "row row"]) -> "Tridiagonal":
        matrix = products if products.flags.f_contiguous else products.T  # the same, in LAPACK's order
        reduced, diagonal, beside, factors, _ = _SYTRD(matrix, lower=1, lwork=_BLOCK * len(matrix), overwrite_a=1)
        # the reflector of column i begins at row i + 1: one to the right it stands as those of a QR decomposition do
        reflectors = np.zeros_like(reduced)
        reflectors[:, 1:] = reduced[:, :-1]
        return cls(diagonal, beside, reflectors, np.concatenate([[0.0], factors]))

    @cached_property
    def leading(self) -> tuple[float, Float[np.ndarray, " axis"]]:
        last = len(self.diagonal) - 1
        values, vectors = linalg.eigh_tridiagonal(
            self.diagonal, self.beside, select="i", select_range=(last, last), check_finite=False
        )
        return float(values[0]), np.asarray(vectors)[:, 0]

    @property
    def spectrum(self) -> Float[np.ndarray, " axis"]:
        return np.asarray(linalg.eigvalsh_tridiagonal(self.diagonal, self.beside, check_finite=False))[::-1]

    def n_above(self, value: float) -> int:
        """As many as pivots of T − value are above zero (Sylvester's law of inertia)."""
        pivot, found, least = 1.0, 0, float(np.finfo(np.float64).tiny)
        links = [0.0, *np.square(self.beside).tolist()]
        for own, link in zip((self.diagonal - value).tolist(), links, strict=True):
            pivot = own - link / pivot or -least
            found += pivot > 0
        return found

    def turned(self, columns: Float[np.ndarray, "row column"]) -> Float[np.ndarray, "axis column"]:
        return self._reflected("T", columns)

    def turned_back(self, columns: Float[np.ndarray, "axis column"]) -> Float[np.ndarray, "row column"]:
        return self._reflected("N", columns)

    def _reflected(self, transposed: str, columns: np.ndarray) -> np.ndarray:
        room = _BLOCK * (columns.shape[1] + _BLOCK + 1)
        found = np.array(columns, order="F")
        return _ORMQR("L", transposed, self.reflectors, self.factors, found, room, overwrite_c=1)[0]

    def squares(
        self, columns: Float[np.ndarray, "axis column"], penalty: float
    ) -> tuple[Float[np.ndarray, " column"], float]:
        """With T + α = L D Lᵀ the trace is d/dα Σ log dᵢ = Σ d′ᵢ/dᵢ, where d′ᵢ = 1 + lᵢ² d′ᵢ₋₁."""
        pivots, multipliers, _ = _PTTRF(self.diagonal + penalty, self.beside)
        band = np.ones((2, len(pivots)), order="F")
        band[1, :-1] = -np.square(multipliers)
        derivatives = _TBTRS(band, np.ones((len(pivots), 1)), uplo="L", diag="U")[0][:, 0]
        solution = self._solution(columns, pivots, multipliers)
        return np.einsum("al,al->l", solution, solution), float((derivatives / pivots).sum())

    def solved(self, columns: Float[np.ndarray, "axis column"], penalty: float) -> Float[np.ndarray, "axis column"]:
        return _PTTRS(*_PTTRF(self.diagonal + penalty, self.beside)[:2], columns)[0]

    def _solution(self, columns: np.ndarray, pivots: np.ndarray, multipliers: np.ndarray) -> np.ndarray:
        """In memory that is used again: new memory takes as long as the solution."""
        room = self._room.setdefault(columns.shape, np.empty_like(columns, order="F"))
        np.copyto(room, columns)
        return _PTTRS(pivots, multipliers, room, overwrite_b=1)[0]

    def times(self, column: Float[np.ndarray, " axis"]) -> Float[np.ndarray, " axis"]:
        found = self.diagonal * column
        found[1:] += self.beside * column[:-1]
        found[:-1] += self.beside * column[1:]
        return found


Form = Diagonal | Tridiagonal


def decomposed(products: Float[np.ndarray, "row row"]) -> Form:
    """The form of a symmetric matrix, which is overwritten."""
    return Tridiagonal.of(products) if len(products) >= _REDUCED_FROM else Diagonal.of(products)
