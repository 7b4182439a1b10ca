"""Simulated prompts: heavy tails, and clusters with shared variance."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from interp.certificates.simulations import Grouping, grouped, in_common, noise

Draw = Callable[..., np.ndarray]
"""Returns noise of these sizes for each prompt."""


@dataclass(frozen=True)
class Prompts:
    """Prompts, or clusters of prompts with the share `alike` of all variance in common."""

    heavy: bool = False
    clusters: Grouping = "alone"
    alike: float = 0.95

    def drawn(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, Draw]:
        """The cluster of each prompt, of `n` clusters, and a function that draws noise for all prompts."""
        cluster = grouped(self.clusters, n, rng)
        return cluster, noise_of(cluster, rng, self.alike, heavy=self.heavy)


def noise_of(cluster: np.ndarray, rng: np.random.Generator, alike: float = 0.95, *, heavy: bool = False) -> Draw:
    """A function that draws noise, with the share `alike` common to each cluster unless every prompt is alone."""
    share = alike * (len(np.unique(cluster)) < len(cluster))
    return lambda *sizes: in_common(lambda n: noise(rng, (n, *sizes), heavy), cluster, share)


KINDS: Mapping[str, Prompts] = {
    "as assumed": Prompts(), "heavy tails": Prompts(heavy=True),
    "five near-copies of each prompt": Prompts(clusters="fives"),
    "templates of unequal size": Prompts(clusters="templates"),
}  # fmt: skip
