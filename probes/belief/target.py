"""The exact belief that is decoded from the activations, or a column of the prompts in its place.

It is the belief over the latent of the process (hidden states, surviving answers) if known, else the posterior over the
next outcome. Linear predictions of a distribution are moved to the nearest point of the simplex (Duchi et al. 2008,
ICML). A column of names has one 0/1 component a name; a column of numbers is one component.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from interp.capture import Capture
from interp.errors import PromptError

from ..measures.target import Target

Kind = Literal["distribution", "set", "vector", "category"]
"""Probabilities that add up to one; components that are 0 or 1; anything else; one component that is 1, by name."""

_SUM = 1e-4
_RANK = 1e-8


@dataclass(frozen=True)
class ExactBelief:
    """The belief at every row; `source` and `slots` describe it in sentences, `names` are those of components."""

    values: Float[np.ndarray, "row component"]
    kind: Kind
    source: str
    names: tuple[str, ...] = ()
    slots: Mapping[str, str] = field(default_factory=lambda: {"belief": "the exact posterior", "beliefs": "beliefs"})

    @classmethod
    def of(cls, capture: Capture, target: Target | None = None) -> "ExactBelief":
        """The belief of the capture, or the target; raise `PromptError` where none is known or finite."""
        if target is not None:
            return cls._of_column(target.added_to(capture.rows)[target.name], target)
        is_posterior = capture.belief is None
        values = capture.posterior if is_posterior else capture.belief
        if values is None or values.shape[1] == 0:
            raise PromptError(
                asked=f"the belief behind {capture.prompts.name!r}",
                found="belief needs the exact posterior, and these prompts have none",
                fix="Use a wind tunnel (it samples its own sequences), or --prompts sula on a language model.",
            )
        values = np.asarray(values, dtype=np.float64)
        n_bad = int((~np.isfinite(values)).any(axis=1).sum())
        if n_bad:
            raise PromptError(
                asked=f"the exact {'posterior' if is_posterior else 'belief'} of {capture.prompts.name!r}",
                found=f"{n_bad} of {len(values)} rows hold numbers that are not finite",
                fix="Check the task or prompt set that computes it.",
            )
        source = "exact posterior over the next outcome" if is_posterior else "exact belief over the latent"
        return cls(values, _kind(values), source)

    @classmethod
    def _of_column(cls, values: Shaped[np.ndarray, " row"], target: Target) -> "ExactBelief":
        source, slots = f"column {target.words} of the prompts", {"belief": target.words, "beliefs": target.many}
        if values.dtype.kind == "U":
            names, code = np.unique(values, return_inverse=True)
            return cls(np.eye(len(names))[code], "category", source, tuple(names.tolist()), slots)
        return cls(values[:, None], _kind(values[:, None]), source, (target.name,), slots)

    @property
    def varies(self) -> Bool[np.ndarray, " component"]:
        """Which components differ between rows at all."""
        return np.ptp(self.values, axis=0) > 0

    @property
    def rank(self) -> int:
        """How many dimensions the beliefs fill: one less than the components of a distribution, as a rule."""
        singular = np.linalg.svd(self.values - self.values.mean(axis=0), compute_uv=False)
        return int((singular > _RANK * max(singular[0], 1.0)).sum())

    @property
    def most_likely(self) -> Int[np.ndarray, " row"]:
        """The component that is larger than all others at each row; −1 where several tie."""
        largest = self.values.max(axis=1, keepdims=True)
        alone = (self.values >= largest - 1e-9).sum(axis=1) == 1
        return np.where(alone, self.values.argmax(axis=1), -1)


def _kind(values: np.ndarray) -> Kind:
    if values.min() >= 0 and np.abs(values.sum(axis=1) - 1).max() <= _SUM:
        return "distribution"
    return "set" if np.isin(values, (0.0, 1.0)).all() else "vector"


def nearest_on_simplex(points: Float[np.ndarray, "row component"]) -> Float[np.ndarray, "row component"]:
    """The probability distribution nearest to each point (Euclidean projection): lowered by one amount, cut at 0."""
    n_rows, n = points.shape
    falling = np.sort(points, axis=1)[:, ::-1]
    over = np.cumsum(falling, axis=1) - 1
    count = np.arange(1, n + 1)
    n_kept = (falling * count > over).sum(axis=1)
    lowered = over[np.arange(n_rows), n_kept - 1] / n_kept
    return np.maximum(points - lowered[:, None], 0.0)
