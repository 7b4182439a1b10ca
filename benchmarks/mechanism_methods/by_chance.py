"""No method: every head is used, every depth is the first, directions are random, everything matters half the time."""

import numpy as np
from jaxtyping import Float

from .case import Case, orthonormal


class ByChance:
    def used_heads(self, case: Case) -> set[tuple[int, int]]:
        return set(case.heads)

    def depth_of(self, case: Case, variable: str) -> int:
        return 0

    def directions(self, case: Case, variable: str, depth: int) -> Float[np.ndarray, "axis d_model"]:
        n = len(np.unique(case.labels(variable)))
        return orthonormal(np.random.default_rng(case.noise.seed).standard_normal((n - 1, case.model.info.d_model)))
