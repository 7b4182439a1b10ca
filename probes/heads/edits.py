"""The edits of the probe `heads`, by name: single heads, layers, random sets, random subspaces.

Heads are numbered through the layers, `layer * n_heads + head`. Random subspaces of a layer's head outputs, with the
dimensions of one head, are the null.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from interp.edit import Edit
from interp.edits import AblateHeads, AttentionOff, BypassLayer, FeedForwardOff, RemoveAxis
from interp.statistics.cosines import random_subspace

UNEDITED = "unedited"
LATE = "late attention off"
PARTS = ("layer bypassed", "attention off", "feed-forward off")
N_DOUBTED = 2
"""Layers all of whose heads are ablated because a screen is most wrong about them."""

How = Literal["zero", "mean", "resample"]

_PART_EDITS: dict[str, type[Edit]] = dict(zip(PARTS, (BypassLayer, AttentionOff, FeedForwardOff), strict=True))

Named = tuple[str, tuple[Edit, ...]]


@dataclass(frozen=True)
class Plan:
    """The edits of one run, from the shape of the model and the fields of the probe; nothing is drawn twice.

    With `n_screened` and `n_sampled` above 0 single heads are chosen by a screen (see `choice`), else all are ablated.
    """

    n_layers: int
    n_heads: int
    d_head: int
    how: tuple[How, ...]
    n_donors: int
    n_random: int
    n_sets: int
    seed: int
    n_screened: int = 0
    n_sampled: int = 0

    @property
    def n_all(self) -> int:
        """How many heads there are; 0 in a model without attention."""
        return self.n_layers * self.n_heads

    @property
    def is_screened(self) -> bool:
        return self.n_sampled > 0

    @property
    def sample(self) -> np.ndarray:
        """The random sample of heads; without a screen all heads."""
        if not self.is_screened:
            return np.arange(self.n_all)
        rng = np.random.default_rng([self.seed, 9])
        return np.sort(rng.choice(self.n_all, min(self.n_sampled, self.n_all), replace=False))

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
        """2, 4, 8 ... below the number of all heads, and no more than the sample, which random sets are drawn from."""
        return tuple(2**i for i in range(1, 32) if 2**i < self.n_all and 2**i <= len(self.sample))

    def draws(self, how: How) -> int:
        """The number of draws of donors: 1 without donors."""
        return self.n_donors if how == "resample" else 1

    @property
    def kinds(self) -> list[tuple[How, int]]:
        """Every ablation and draw of donors."""
        return [(how, draw) for how in self.how for draw in range(self.draws(how))]

    def screened(self, how: str, draw: int = 0) -> str:
        return f"screen of {how} draw {draw}"

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
        """The number of edits by the first layer that they change, with those of `cumulative`.

        Heads that a screen will choose are assumed to be spread over the layers and not in the sample, and the random
        subspaces to be those of layer 0.
        """
        n_draws, n_chosen = len(self.kinds), self.n_screened + N_DOUBTED * self.n_heads
        n = n_chosen * n_draws + len(self.sample) if self.is_screened else self.n_all * n_draws
        layers = range(self.n_layers)
        counts = {layer: len(self.parts) + n // self.n_layers + (layer < n % self.n_layers) for layer in layers}
        if self.n_heads:
            counts[self.late_layers[0]] += 1
        for layer in layers[: 1 if self.is_screened else None] if self.n_heads > 1 else ():
            counts[layer] += self.n_random
        counts[0] += len(self.set_sizes) * (self.n_sets + 1)
        return counts

    def sets(self, size: int) -> list[np.ndarray]:
        """Random sets of different heads of the sample."""
        rng = np.random.default_rng([self.seed, 1, size])
        return [np.sort(rng.choice(self.sample, size, replace=False)) for _ in range(self.n_sets)]

    def ablated(self, how: How, heads: Sequence[int] | np.ndarray, draw: int = 0) -> tuple[AblateHeads, ...]:
        """One edit a layer that has some of these heads; donors are the same in all layers."""
        by_layer: dict[int, list[int]] = {}
        for head in heads:
            by_layer.setdefault(int(head) // self.n_heads, []).append(int(head) % self.n_heads)
        return tuple(
            AblateHeads(layer=layer, heads=tuple(mine), by=how, seed=self.seed + draw)
            for layer, mine in sorted(by_layer.items())
        )

    def heads(self, how: How, heads: Sequence[int] | np.ndarray) -> Iterator[Named]:
        """Each of these heads alone."""
        for draw in range(self.draws(how)):
            for head in map(int, heads):
                yield self.single(how, head, draw), self.ablated(how, [head], draw)

    def layers(self) -> Iterator[Named]:
        """Every part of every layer, and the attention of the top two layers together."""
        for part in self.parts:
            for layer in range(self.n_layers):
                yield self.part(part, layer), (_PART_EDITS[part](layer=layer),)
        if self.n_heads:
            yield LATE, (AttentionOff(layer=self.late_layers),)

    def subspaces(self, layers: Sequence[int]) -> Iterator[Named]:
        """Random subspaces, removed from the head outputs of these layers."""
        for layer in layers if self.n_heads > 1 else ():
            for i, name in enumerate(self.random(layer)):
                rng = np.random.default_rng([self.seed, 2, layer, i])
                frame = random_subspace(self.n_heads * self.d_head, self.d_head, rng).T
                yield name, (RemoveAxis(layer=layer, site="z", axis=frame),)

    def random_sets(self) -> Iterator[Named]:
        """Random sets of heads, by the primary ablation."""
        for size in self.set_sizes:
            for i, chosen in enumerate(self.sets(size)):
                yield self.set_of(size, i), self.ablated(self.how[0], chosen)

    def cumulative(self, order: Sequence[int] | np.ndarray) -> Iterator[Named]:
        """The first 2, 4, 8 ... heads of an order, by the primary ablation."""
        for size in self.set_sizes:
            yield self.top(size), self.ablated(self.how[0], order[:size])
