"""Coin: tosses of a coin with an unknown bias.

The probabilities of O outcomes are drawn for every sequence from Dirichlet(a₁ … a_O). After n_o tosses of outcome o the
next has p(o | tosses) = (a_o + n_o) / (Σ a + n). The belief is the predictive of the next two tosses, order ignored.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float, Int

from interp.tunnel import REQUIRED_UNITS, Sequences

from ..validation import POSITIVES, Conflict
from .shipped_task import ShippedTask, in_turn


@dataclass(frozen=True)
class Coin(ShippedTask):
    """`n_tosses` tosses, each predicted before it is shown; `concentration` holds the Dirichlet prior's a_o by outcome.

    `layout` is `marked` (TOSS x1 TOSS x2 … TOSS, scored at every TOSS) or `plain` (TOSS x1 x2 …, scored at every
    token). The outcomes are the ids 0 … O − 1, TOSS is O.
    """

    n_tosses: int = 12
    concentration: Sequence[float | int] = (1.0, 1.0)
    layout: Literal["marked", "plain"] = "marked"

    name: ClassVar[str] = "coin"
    question: ClassVar[str] = "Does the network count, and let its doubt shrink with the evidence?"
    length_field: ClassVar[str] = "n_tosses"
    rules: ClassVar = {"n_tosses": 1, "concentration": POSITIVES}
    units: ClassVar[Mapping[str, str]] = {
        **REQUIRED_UNITS,
        "evidence": "tosses",
        "n_first": "tosses",
        "bias": "probability",
        "bias_sd": "probability",
    }

    def __post_init__(self) -> None:
        if isinstance(self.concentration, list):  # as JSON gives it
            object.__setattr__(self, "concentration", tuple(self.concentration))
        super().__post_init__()

    def conflicts(self) -> Iterator[Conflict]:
        found = f"{self.n_outcomes} outcomes leave nothing to infer"
        yield self.n_outcomes < 2, found, "Give a concentration for two or more."

    @property
    def n_outcomes(self) -> int:
        """O, the number of outcomes."""
        return len(self.concentration)

    @property
    def vocab_size(self) -> int:
        return self.n_outcomes + 1

    @property
    def n_positions(self) -> int:
        return 2 * self.n_tosses - 1 if self.layout == "marked" else self.n_tosses

    @property
    def most_copies(self) -> int:
        """The number of cyclic shifts of the outcomes under which the prior stays the same."""
        return 1 if len(set(self.concentration)) > 1 else self.n_outcomes

    def relabelled(self, copy, shift, bias, tosses) -> tuple[np.ndarray, ...]:
        shifted_bias = np.take_along_axis(bias, (np.arange(self.n_outcomes) - shift) % self.n_outcomes, axis=1)
        return shifted_bias, (tosses + shift) % self.n_outcomes

    def encode(
        self, bias: Float[np.ndarray, "sequence outcome"], tosses: Int[np.ndarray, "sequence toss"]
    ) -> Sequences:
        """The sequences that show these tosses, with the exact posterior; the last toss is an answer only."""
        is_marked, toss = self.layout == "marked", np.full_like(tosses, self.n_outcomes)
        tokens = in_turn(toss, tosses)[:, :-1] if is_marked else np.column_stack([toss[:, 0], tosses[:, :-1]])
        scored = np.arange(0, self.n_positions, 2 if is_marked else 1)
        came = tosses[:, :, None] == np.arange(self.n_outcomes)  # [sequence, toss, outcome]
        counts = np.cumsum(came, axis=1) - came
        weight = counts + np.array(self.concentration, dtype=np.float64)
        total = weight.sum(axis=2)
        posterior = weight / total[..., None]
        first = posterior[..., 0]
        columns = {
            "n_first": counts[..., 0], "bias": bias[:, :1], "bias_sd": np.sqrt(first * (1.0 - first) / (total + 1.0)),
        }  # fmt: skip
        return self._sequences(
            tokens, scored, tosses, posterior, np.arange(self.n_outcomes), np.arange(self.n_tosses), columns,
            belief=next_two(weight),
        )  # fmt: skip

    def _draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
        bias = rng.dirichlet(self.concentration, size=n)
        cumulative = np.cumsum(bias, axis=1)[:, None, :-1]
        return bias, (rng.random((n, self.n_tosses, 1)) > cumulative).sum(axis=2)


def next_two(weight: Float[np.ndarray, "sequence toss outcome"]) -> Float[np.ndarray, "sequence toss pair"]:
    """The predictive of the next two tosses, order ignored, under Dirichlet(weight): E[θᵢ²], 2 E[θᵢ θⱼ] for i < j."""
    i, j = np.triu_indices(weight.shape[-1])
    total = weight.sum(axis=-1, keepdims=True)
    both = weight[..., i] * (weight[..., j] + (i == j)) / (total * (total + 1.0))
    return np.where(i == j, 1.0, 2.0) * both
