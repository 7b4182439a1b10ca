"""Controls that remove as much as the axis does, at the positions that are scored.

First, refits: axes fitted in the same way to entropies permuted between prompts, each removed at the dose at which the
change is as large as the axis' own.

Second, random directions. Let C be the covariance of the scored rows (of the prompts that are run, raw coordinates) in
the complement of the axis, with eigenvalues λ and eigenvectors V. Each Gaussian draw g is tilted,

    u ∝ V λ^γ Vᵀ g        γ = 0: any direction        γ = ½: as the data are distributed        γ → ∞: the loudest

until uᵀCu is the variance that the axis removes (by bisection in γ); draws off by more than 10 % are rejected. If all
matched directions are similar, or none is loud enough, k dimensions are removed at once; if no k up to 10 works,
directions distributed as the data with a scaled dose. The table `matching` says which.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from interp.errors import PromptError

from ..programs.swaps import Directions
from .axis import Axis

HOW = ("direction", "subspace", "dose", "refit")
"""How controls are made: random in three ways, or refitted."""

TOLERANCE = 0.1
MOST_DIMENSIONS = 10
ALIKE = 0.5
"""Mean squared cosine between two controls above which they are one control drawn many times."""

_ROUNDS = 20
_STEPS = 50
_STEEPEST = 64.0
_FLOOR = 1e-12


@dataclass(frozen=True)
class Edited:
    """What is edited at one layer: the mean of the rows there, and second moments about it (or about 0).

    Moments are those of the rows that controls are matched at, the scored ones.
    """

    mean: Float[np.ndarray, " feature"]
    moments: Float[np.ndarray, "feature feature"]

    @classmethod
    def of(
        cls,
        rows: Float[np.ndarray, "row feature"],
        about: Literal["mean", "zero"],
        scored: Float[np.ndarray, "scored feature"] | None = None,
    ) -> "Edited":
        """From all edited rows and the `scored` ones among them (None: all)."""
        mean = rows.mean(axis=0)
        at = rows if scored is None else scored
        moved = at - mean if about == "mean" else at
        return cls(mean, moved.T @ moved / len(at))

    def removed(self, axis: Axis) -> float:
        """Mean square of the change when the axis is removed: ⟨(x·a)²⟩ ‖d‖²."""
        return float(axis.covector @ self.moments @ axis.covector * (axis.displacement @ axis.displacement))

    def dose(self, frame: Float[np.ndarray, "axis feature"], axis: Axis) -> float:
        """The share of the coordinates along an orthonormal frame whose removal changes as much as the axis' does."""
        return float(np.sqrt(self.removed(axis) / np.trace(frame @ self.moments @ frame.T)))


@dataclass(frozen=True)
class Cut(Directions):
    """What is removed at one layer: this dose of the coordinates that are read.

    `facts` of a control: its `dose`, the `ratio` of what it removes to what the axis does, and `matching`: the index in
    `HOW`, dimensions, mean squared cosine between controls, and rejected draws.
    """

    dose: float = 1.0
    facts: Mapping[str, Any] = field(default_factory=dict)


def _cuts(
    frames: Float[np.ndarray, "control axis feature"], moved: Float[np.ndarray, "control axis feature"],
    dose: Float[np.ndarray, " control"], ratio: Float[np.ndarray, " control"], how: str, n_rejected: int,
) -> list[Cut]:  # fmt: skip
    matching = np.array([HOW.index(how), frames.shape[1], alikeness(frames), n_rejected])
    return [
        Cut(frame, along, float(d), {"ratio": r, "dose": d, "matching": matching})
        for frame, along, d, r in zip(frames, moved, dose, ratio, strict=True)
    ]


def refitted_controls(edited: Edited, axis: Axis, refits: Sequence[Axis]) -> list[Cut]:
    """Axes fitted to permuted entropies, each at the dose at which it removes as much as the axis."""
    target = edited.removed(axis)
    taken = np.array([edited.removed(refit) for refit in refits])
    _refuse_still(target, taken.min(), "an axis fitted to permuted entropies does not vary at the scored positions")
    frames = np.array([refit.covector for refit in refits])[:, None]
    moved = np.array([refit.displacement for refit in refits])[:, None]
    return _cuts(frames, moved, np.sqrt(target / taken), np.ones(len(refits)), "refit", 0)


def _refuse_still(target: float, beside: float, found: str) -> None:
    """Raise `PromptError` where nothing varies along the axis, or next to nothing beside it (`found`)."""
    if not target > 0:
        found = "the axis does not vary at the scored positions"
    elif beside > _FLOOR * target:
        return
    raise PromptError(
        asked="controls matched to the axis in removed variance",
        found=found,
        fix="Choose another layer, or more varied prompts.",
    )


def random_controls(edited: Edited, axis: Axis, n: int, rng: np.random.Generator) -> list[Cut]:
    """`n` random controls for one axis at one layer, at right angles to it."""
    target = edited.removed(axis)
    values, vectors = _complement(edited, axis)
    _refuse_still(target, values.max(initial=0.0), "nothing varies beside it")
    for k in range(1, min(MOST_DIMENSIONS, len(values) - 1) + 1):
        if not values[:k].sum() < target < values[-k:].sum():
            continue
        pilot, _ = _drawn(values, target, k, min(n, 20), rng)
        if len(pilot) < 2 or alikeness(pilot) > ALIKE:
            continue
        coordinates, n_rejected = _drawn(values, target, k, n, rng)
        if len(coordinates) == n:
            how, dose = "direction" if k == 1 else "subspace", np.ones(n)
            break
    else:
        coordinates = _frames(np.full(n, 0.5), rng.standard_normal((n, 1, len(values))), values)
        how, dose, n_rejected = "dose", np.sqrt(target / _captured(coordinates, values)), 0
    ratio = np.square(dose) * _captured(coordinates, values) / target
    frames = coordinates @ vectors.T
    return _cuts(frames, frames, dose, ratio, how, n_rejected)


def alikeness(frames: Float[np.ndarray, "control axis feature"]) -> float:
    """Mean squared cosine between the spaces of two controls: ‖UᵢUⱼᵀ‖²/k, 1 where all are the same."""
    n, k, _ = frames.shape
    if n < 2:
        return 1.0
    flat = frames.reshape(n * k, -1)
    squares = np.square(flat @ flat.T).reshape(n, k, n, k).sum(axis=(1, 3)) / k
    return float((squares.sum() - np.trace(squares)) / (n * (n - 1)))


def _complement(edited: Edited, axis: Axis) -> tuple[Float[np.ndarray, " axis"], Float[np.ndarray, "feature axis"]]:
    """Eigenvalues, smallest first, and eigenvectors of the moments at right angles to covector and displacement."""
    taken = axis.covector[:, None] if axis.is_orthogonal else np.stack([axis.covector, axis.displacement], axis=1)
    taken, lengths, _ = np.linalg.svd(taken, full_matrices=True)
    basis = taken[:, int((lengths > 1e-9 * lengths[0]).sum()) :]
    values, vectors = np.linalg.eigh(basis.T @ edited.moments @ basis)
    return np.clip(values, 0.0, None), basis @ vectors


def _drawn(
    values: np.ndarray, target: float, k: int, n: int, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "control axis feature"], int]:
    """Up to `n` frames of k matched dimensions, in eigencoordinates, and how many draws were rejected."""
    kept: list[np.ndarray] = []
    n_rejected = 0
    for _ in range(_ROUNDS):
        wanted = n - sum(len(part) for part in kept)
        if wanted == 0:
            break
        frames = _tilted(values, target, rng.standard_normal((wanted, k, len(values))))
        fits = np.abs(_captured(frames, values) / target - 1) <= TOLERANCE
        kept.append(frames[fits])
        n_rejected += int((~fits).sum())
    return np.concatenate(kept), n_rejected


def _tilted(values: np.ndarray, target: float, draws: Float[np.ndarray, "control axis feature"]) -> np.ndarray:
    """Every draw at the tilt at which it removes `target`, by bisection."""
    low, high = np.full(len(draws), -_STEEPEST), np.full(len(draws), _STEEPEST)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        too_much = _captured(_frames(middle, draws, values), values) > target
        low, high = np.where(too_much, low, middle), np.where(too_much, middle, high)
    return _frames((low + high) / 2, draws, values)


def _frames(
    gamma: Float[np.ndarray, " control"], draws: Float[np.ndarray, "control axis feature"], values: np.ndarray
) -> Float[np.ndarray, "control axis feature"]:
    """Orthonormal frames of the tilted draws λ^γ g, in eigencoordinates."""
    logs = gamma[:, None] * np.log(np.maximum(values, _FLOOR * values.max()))
    tilted = np.exp(logs - logs.max(axis=1, keepdims=True))[:, None] * draws
    if draws.shape[1] == 1:
        return tilted / np.linalg.norm(tilted, axis=2, keepdims=True)
    return np.linalg.qr(tilted.transpose(0, 2, 1))[0].transpose(0, 2, 1)


def _captured(frames: np.ndarray, values: np.ndarray) -> Float[np.ndarray, " control"]:
    return (np.square(frames) @ values).sum(axis=1)
