"""What simulated prompts are like: heavy tails, and clusters whose prompts have most of what is drawn in common."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from interp.certificates.simulations import Grouping, grouped, in_common, noise

Draw = Callable[..., np.ndarray]
"""Noise of all prompts, of these sizes each."""


@dataclass(frozen=True)
class Prompts:
    """Prompts, or clusters of them, which have the share `alike` of all variance in common."""

    heavy: bool = False
    clusters: Grouping = "alone"
    alike: float = 0.95

    def drawn(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, Draw]:
        """The cluster of each prompt, of `n` clusters, and what draws noise for all prompts."""
        cluster = grouped(self.clusters, n, rng)
        return cluster, noise_of(cluster, rng, self.alike, heavy=self.heavy)


def noise_of(cluster: np.ndarray, rng: np.random.Generator, alike: float = 0.95, *, heavy: bool = False) -> Draw:
    """Draws noise of which the prompts of a cluster have the share `alike` in common; none where each is alone."""
    share = alike * (len(np.unique(cluster)) < len(cluster))
    return lambda *sizes: in_common(lambda n: noise(rng, (n, *sizes), heavy), cluster, share)


KINDS: Mapping[str, Prompts] = {
    "as assumed": Prompts(), "heavy tails": Prompts(heavy=True),
    "five near-copies of each prompt": Prompts(clusters="fives"),
    "templates of unequal size": Prompts(clusters="templates"),
}  # fmt: skip
