"""A cloud: the captured rows of one site, layer by layer, with the prompt and the cluster that each belongs to."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Num

from interp.capture import Capture, ModelInfo
from interp.errors import PromptError, UsageError
from interp.need import Need
from interp.statistics.nulls import GaussianClouds
from interp.statistics.units import clusters_of, counted, resampled_unit
from interp.table import Table

from .finite import finite, refuse_not_finite
from .sample_sizes import MIN_CLOUD
from .target import NEXT_ENTROPY, OWN_ENTROPY, Target


@dataclass(frozen=True)
class Cloud:
    """Points `[layer, row, feature]` and the table of their rows; heads are concatenated.

    `unit` is what the rows are of (`prompt`, `sequence`); a row's `prompt` column says which one, its `cluster` what is
    resampled with it, the column of the `target`'s name what is sought in the points.
    """

    points: Float[np.ndarray, "layer row feature"]
    rows: Table
    unit: str
    target: Target = OWN_ENTROPY

    @classmethod
    def of(cls, capture: Capture, need: Need, target: Target = OWN_ENTROPY) -> "Cloud":
        """The rows of a need. Too few clusters, and numbers that are not finite, are rejected with a message.

        That holds for the model's entropies at these rows too, which most statistics of a cloud are compared with.
        """
        points = finite(capture, need)
        points = points.reshape(*points.shape[:2], -1)
        cloud = cls(points, target.added_to(capture.rows), capture.prompts.unit, target)
        if NEXT_ENTROPY in cloud.rows:
            refuse_not_finite(capture, "next-token entropies", ~np.isfinite(cloud.rows[NEXT_ENTROPY]))
        return cloud.wide_enough()

    def wide_enough(self) -> "Cloud":
        """The cloud itself; `PromptError` for fewer than three clusters: of a set that has more, too few were drawn."""
        if self.n_units < MIN_CLOUD:
            raise PromptError(
                asked=f"the geometry of {self.in_words}",
                found=f"fewer than {MIN_CLOUD} {self.resampled}s say nothing of how far a number could move",
                fix="Draw more prompts (--n-prompts), of more clusters.",
            )
        return self

    @property
    def n_units(self) -> int:
        """How many clusters of prompts (or sequences) are resampled."""
        return len(np.unique(self.units))

    @property
    def n_layers(self) -> int:
        return len(self.points)

    @property
    def units(self) -> Num[np.ndarray, " row"]:
        """What each row is resampled with: the cluster of its prompt."""
        return clusters_of(self.rows)

    @property
    def prompts(self) -> Num[np.ndarray, " row"]:
        """The prompt of each row, by its number in the capture."""
        return self.rows["prompt"]

    @property
    def sought(self) -> Float[np.ndarray, " row"]:
        """The target at each row."""
        return self.rows[self.target.name]

    def levels(self, *columns: str) -> tuple[str, ...]:
        """These columns without the one that is sought: regressed out, it would take its own values with it."""
        return tuple(column for column in columns if column != self.target.column)

    @property
    def counted(self) -> dict[str, Any]:
        """What is counted, as fields of a scalar."""
        return counted(self.prompts, self.units, self.unit)

    @property
    def in_words(self) -> str:
        """`288 prompts in 48 clusters`; `500 sequences`."""
        n, n_clusters = self.counted["n"], self.counted["n_clusters"]
        return f"{n} {self.unit}s" + (f" in {n_clusters} cluster{'s' * (n_clusters > 1)}" if n_clusters else "")

    @property
    def resampled(self) -> str:
        """What is resampled, in a word."""
        return resampled_unit(self.counted)

    @property
    def slots(self) -> dict[str, str]:
        """What fills the slots of declared sentences: the target, what the rows are of, and what is resampled."""
        return self.target.slots | {"unit": self.unit, "drawn": self.resampled}

    @property
    def clusters(self) -> Num[np.ndarray, " row"] | None:
        """The cluster of each row, where prompts come in clusters."""
        return self.units if self.counted["n_clusters"] else None

    @property
    def is_alone(self) -> bool:
        """Whether every row is resampled by itself."""
        return self.n_units == self.rows.n_rows

    @property
    def one_row_each(self) -> bool:
        """Whether every prompt has one row, as texts have that are read at their last token."""
        return len(np.unique(self.prompts)) == self.rows.n_rows

    def one_of_each(self, names: Num[np.ndarray, " row"], rng: np.random.Generator) -> "Cloud":
        """One row of every prompt or cluster that rows are named by, drawn at random; itself where there is no more."""
        if len(np.unique(names)) == len(names):
            return self
        order = rng.permutation(len(names))
        return self.where(np.sort(order[np.unique(names[order], return_index=True)[1]]))

    def gaussian(self, n_draws: int, seed: int) -> GaussianClouds:
        """Gaussian clouds of as many rows and columns, in the same clusters."""
        return GaussianClouds(self.rows.n_rows, self.points.shape[2], n_draws, seed, self.clusters)

    def where(self, keep: Bool[np.ndarray, " row"] | Int[np.ndarray, " kept"]) -> "Cloud":
        return replace(self, points=self.points[:, keep], rows=self.rows.where(keep))

    def layer_index(self, layer: int) -> int:
        """The layer that is meant; negative ones count from the last."""
        return layer % self.n_layers

    def thinned(self, n_rows: int, rng: np.random.Generator) -> "Cloud":
        """Whole clusters chosen at random until `n_rows` rows are reached; or the cloud itself where it is small."""
        if self.rows.n_rows <= n_rows:
            return self
        names, counts = np.unique(self.units, return_counts=True)
        order = rng.permutation(len(names))
        chosen = names[order[np.cumsum(counts[order]) <= n_rows]]
        return self.where(np.isin(self.units, chosen))


def refuse_layer(layer: int, n_layers: int | None, site: str = "") -> None:
    """Raise `UsageError` for a layer of a site that a model of so many has not, counted from either end."""
    if n_layers is None:  # not known yet
        return
    n = n_places(site, n_layers)
    if not -n <= layer < n:
        raise UsageError(
            asked=f"layer {layer}",
            found=f"the model has layers 0 to {n - 1}",
            fix=f"Choose one of them, or -1 to -{n} counted from the last.",
        )


def n_places(site: str, n_layers: int) -> int:
    """How many layers a site has in a model of so many; the residual stream has its depths."""
    return n_layers + (site == "resid")


def own_number(site: str, place: int, model: ModelInfo) -> int:
    """The number that the model gives to a place of a site's arrays: a layer, of the residual stream a depth."""
    return place if site == "resid" else model.layers_with_attention[place]
