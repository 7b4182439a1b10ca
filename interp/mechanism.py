"""The mechanism of a network that was compiled: where its variables lie, and what follows from other values of them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int


class Mechanism(ABC):
    """What is known of how a network computes its answers. Depths are those of the residual stream."""

    @property
    @abstractmethod
    def directions(self) -> Mapping[str, Float[np.ndarray, "axis feature"]]:
        """How the residual stream moves with each variable that it holds."""

    @abstractmethod
    def variable(self, column: str) -> str | None:
        """The variable that a column of the prompts holds; None where it holds none."""

    @abstractmethod
    def first_depth(self, variable: str) -> int:
        """The first depth at which the variable stands in the stream."""

    @abstractmethod
    def is_read(self, variable: str, depth: int) -> bool:
        """Whether something behind this depth reads the variable."""

    @abstractmethod
    def swapped(
        self, variable: str, depth: int, tokens: Int[np.ndarray, "prompt pos"], donors: Int[np.ndarray, "prompt pos"],
        scored: Int[np.ndarray, " scored"],
    ) -> Int[np.ndarray, "prompt scored"]:  # fmt: skip
        """The exact answers (outcomes, by number) with the donors' values of the variable at the scored positions.

        What stands in the stream at this depth stays as it is, the variable apart; what comes later follows from it. −1
        where nothing is defined for such values.
        """
