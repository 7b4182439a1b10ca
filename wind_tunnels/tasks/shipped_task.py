"""The base of the tasks of this package."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from interp.information import entropy_bits
from interp.tunnel import Sequences, Task

from ..validation import Checked


@dataclass(frozen=True)
class ShippedTask(Task, Checked):
    """A task with trained networks in `checkpoints/`, whose sequences are drawn, perhaps relabelled, and encoded.

    `length_field` names the number of observations. `symbols_field` names the number of symbols, which may be shifted
    cyclically in the parts of a draw marked in `shifted`. `_draw` returns arrays, sequences first, for `encode`.
    """

    checkpoints: ClassVar[Path] = Path(__file__).parent.parent / "checkpoints"
    length_field: ClassVar[str | None] = None
    symbols_field: ClassVar[str | None] = None
    shifted: ClassVar[tuple[bool, ...]] = ()

    @property
    def asked(self) -> str:
        return f"the {self.name} task"

    @property
    def most_copies(self) -> int:
        """The number of equally likely relabellings of a sequence, itself included."""
        return getattr(self, self.symbols_field) if self.symbols_field else 1

    def sample(self, rng: np.random.Generator, n: int) -> Sequences:
        return self.sample_orbits(rng, n, 1)

    def sample_orbits(self, rng: np.random.Generator, n: int, n_copies: int) -> Sequences:
        """Groups of `n_copies` (at most `most_copies`) relabelled sequences; the last may be smaller."""
        n_copies = min(n_copies, self.most_copies)
        drawn = (np.repeat(part, n_copies, axis=0)[:n] for part in self._draw(rng, -(-n // n_copies)))
        if n_copies > 1:
            copy = np.arange(n) % n_copies
            drawn = self.relabelled(copy, (copy * self.most_copies // n_copies)[:, None], *drawn)
        return self.encode(*drawn)

    def _draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
        raise NotImplementedError

    def encode(self, *args: Any, **kwargs: Any) -> Sequences:
        """The sequences that show the drawn arrays, with the exact posterior."""
        raise NotImplementedError

    def relabelled(self, *args: Any, **kwargs: Any) -> tuple[np.ndarray, ...]:
        """The drawn arrays, the arguments after `copy` and `shift` `[sequence, 1]`, with labels shifted cyclically."""
        _, shift, *drawn = args
        moved = [(part + shift.reshape(-1, *[1] * (part.ndim - 1))) % self.most_copies for part in drawn]
        return tuple(new if moves else old for old, new, moves in zip(drawn, moved, self.shifted, strict=True))

    def lengthened(self, n_observations: int) -> Task:
        if self.length_field is None:
            return super().lengthened(n_observations)
        return replace(self, **{self.length_field: n_observations})

    def _sequences(
        self, tokens: Int[np.ndarray, "sequence pos"], scored: Int[np.ndarray, " scored"],
        targets: Int[np.ndarray, "sequence scored"], posterior: Float[np.ndarray, "sequence scored outcome"],
        slice_ids: Int[np.ndarray, " outcome"], evidence: Int[np.ndarray, " scored"],
        columns: Mapping[str, np.ndarray] | None = None, **more: Any,
    ) -> Sequences:  # fmt: skip
        """Sequences of this task with the required columns; `evidence` counts the observations before each position."""
        named = {"position": scored, "evidence": evidence, "bayes_entropy_bits": entropy_bits(posterior)}
        columns = {name: np.broadcast_to(each, targets.shape) for name, each in (named | dict(columns or {})).items()}
        domain = np.full(len(tokens), self.name)
        return Sequences(tokens, scored, targets, posterior, slice_ids, columns, domain, **more)


def in_turn(first: Shaped[np.ndarray, "sequence step *rest"], second: np.ndarray) -> np.ndarray:
    """a1 b1 a2 b2 … along the axis of steps."""
    n, n_steps = first.shape[:2]  # which may be no sequence
    return np.stack([first, second], axis=2).reshape(n, 2 * n_steps, *first.shape[2:])


def earlier(happens: Bool[np.ndarray, "sequence step symbol"]) -> Bool[np.ndarray, "sequence step symbol"]:
    """Whether it has happened at any earlier step."""
    return np.cumsum(happens, axis=1) - happens > 0
