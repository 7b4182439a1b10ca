"""What the tasks of this package have in common, beside the contract of every task."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from interp.errors import UsageError
from interp.information import entropy_bits
from interp.tunnel import Task


@dataclass(frozen=True)
class ShippedTask(Task):
    """A task whose trained networks lie in `checkpoints/`.

    `length_field` names the field that counts observations: another value of it gives the task over more of them.
    """

    checkpoints: ClassVar[Path] = Path(__file__).parent.parent / "checkpoints"
    length_field: ClassVar[str | None] = None

    def lengthened(self, n_observations: int) -> Task:
        if self.length_field is None:
            return super().lengthened(n_observations)
        return replace(self, **{self.length_field: n_observations})

    def refusal(self, found: str, fix: str) -> UsageError:
        """Of parameters with which there is nothing to draw, or nothing to infer."""
        return UsageError(asked=f"the {self.name} task", found=found, fix=fix)


def random_permutations(rng: np.random.Generator, n: int, n_symbols: int) -> Int[np.ndarray, "n symbol"]:
    """The symbols in `n` independent uniform orders."""
    return rng.permuted(np.tile(np.arange(n_symbols), (n, 1)), axis=1)


def required_columns(
    scored: Int[np.ndarray, " scored"],
    evidence: Int[np.ndarray, " scored"],
    posterior: Float[np.ndarray, "sequence scored outcome"],
) -> dict[str, np.ndarray]:
    """The columns that every task has, from the scored positions and the observations before each."""
    shape = posterior.shape[:2]
    return {
        "position": np.broadcast_to(scored, shape),
        "evidence": np.broadcast_to(evidence, shape),
        "bayes_entropy_bits": entropy_bits(posterior),
    }
