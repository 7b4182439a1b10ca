"""Which edits the probe `heads` makes, and what each is called: single heads, layers, random sets, random subspaces.

Heads are numbered through the layers, `layer * n_heads + head`. Beside every head stand random subspaces of its layer's
head outputs, of as many dimensions: what their removal does owes nothing to where one head ends and the next begins.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from interp.capture import ModelInfo
from interp.edits import AblateHeads, AttentionOff, BypassLayer, Edit, FeedForwardOff, RemoveAxis

UNEDITED = "unedited"
LATE = "late attention off"
PARTS = ("layer bypassed", "attention off", "feed-forward off")
How = Literal["zero", "mean", "resample"]

_PART_EDITS: dict[str, type[Edit]] = dict(zip(PARTS, (BypassLayer, AttentionOff, FeedForwardOff), strict=True))

Named = tuple[str, tuple[Edit, ...]]


@dataclass(frozen=True)
class Plan:
    """The edits of one run, from the shape of the model and the fields of the probe; nothing is drawn twice."""

    n_layers: int
    n_heads: int
    d_head: int
    how: tuple[How, ...]
    n_donors: int
    n_random: int
    n_sets: int
    seed: int

    @classmethod
    def of(cls, model: ModelInfo, how: tuple[How, ...], n_donors: int, n_random: int, n_sets: int, seed: int) -> "Plan":
        how = tuple(dict.fromkeys(how))
        return cls(model.n_layers, model.n_heads, model.d_head, how, n_donors, n_random, n_sets, seed)

    @property
    def n_all(self) -> int:
        """How many heads there are; 0 in a model without attention."""
        return self.n_layers * self.n_heads

    @property
    def late_layers(self) -> tuple[int, ...]:
        """The top two layers, or the one there is."""
        return tuple(range(max(0, self.n_layers - 2), self.n_layers))

    @property
    def parts(self) -> tuple[str, ...]:
        """What can be switched off in a layer; a model without attention has whole layers alone."""
        return PARTS if self.n_heads else PARTS[:1]

    @property
    def set_sizes(self) -> tuple[int, ...]:
        """2, 4, 8 ... below the number of all heads."""
        return tuple(2**i for i in range(1, 32) if 2**i < self.n_all)

    def draws(self, how: How) -> int:
        """How many donors are drawn for each prompt; other ablations have nothing to draw."""
        return self.n_donors if how == "resample" else 1

    def single(self, how: str, head: int, draw: int = 0) -> str:
        return f"{how} {head // self.n_heads}.{head % self.n_heads} draw {draw}"

    def random(self, layer: int) -> list[str]:
        return [f"random subspace {layer}.{i}" for i in range(self.n_random)]

    def set_of(self, size: int, index: int) -> str:
        return f"{size} random heads, set {index}"

    def top(self, size: int) -> str:
        return f"top {size} heads"

    def part(self, part: str, layer: int) -> str:
        return f"{part} {layer}"

    def counted(self) -> dict[int, int]:
        """How many edits there are by the first layer that they change, those of `cumulative` included."""
        each = len(self.parts) + self.n_heads * sum(self.draws(how) for how in self.how)
        counts = dict.fromkeys(range(self.n_layers), each + (self.n_random if self.n_heads > 1 else 0))
        if self.n_heads:
            counts[self.late_layers[0]] += 1
        counts[0] += len(self.set_sizes) * (self.n_sets + 1)
        return counts

    def sets(self, size: int) -> list[np.ndarray]:
        """Random sets of so many different heads."""
        rng = np.random.default_rng([self.seed, 1, size])
        return [np.sort(rng.choice(self.n_all, size, replace=False)) for _ in range(self.n_sets)]

    def ablated(self, how: How, heads: Sequence[int] | np.ndarray, draw: int = 0) -> tuple[Edit, ...]:
        """One edit a layer that has some of these heads; donors are the same in all layers."""
        by_layer: dict[int, list[int]] = {}
        for head in heads:
            by_layer.setdefault(int(head) // self.n_heads, []).append(int(head) % self.n_heads)
        return tuple(
            AblateHeads(layer=layer, heads=tuple(mine), by=how, seed=self.seed + draw)
            for layer, mine in sorted(by_layer.items())
        )

    def heads(self, how: How, n_draws: int | None = None) -> Iterator[Named]:
        """Every head by itself."""
        for draw in range(self.draws(how) if n_draws is None else n_draws):
            for head in range(self.n_all):
                yield self.single(how, head, draw), self.ablated(how, [head], draw)

    def layers(self) -> Iterator[Named]:
        """Every part of every layer, and the attention of the top two layers together."""
        for part in self.parts:
            for layer in range(self.n_layers):
                yield self.part(part, layer), (_PART_EDITS[part](layer=layer),)
        if self.n_heads:
            yield LATE, (AttentionOff(layer=self.late_layers),)

    def controls(self) -> Iterator[Named]:
        """Random subspaces taken out of the head outputs, and random sets of heads by the primary ablation."""
        for layer in range(self.n_layers if self.n_heads > 1 else 0):
            for i, name in enumerate(self.random(layer)):
                rng = np.random.default_rng([self.seed, 2, layer, i])
                frame = np.linalg.qr(rng.standard_normal((self.n_heads * self.d_head, self.d_head)))[0].T
                yield name, (RemoveAxis(layer=layer, site="z", axis=frame),)
        for size in self.set_sizes:
            for i, chosen in enumerate(self.sets(size)):
                yield self.set_of(size, i), self.ablated(self.how[0], chosen)

    def cumulative(self, order: Sequence[int] | np.ndarray) -> Iterator[Named]:
        """The first 2, 4, 8 ... heads of an order, by the primary ablation."""
        for size in self.set_sizes:
            yield self.top(size), self.ablated(self.how[0], order[:size])
