"""A cloud: the captured rows of one site, layer by layer, with their prompts and clusters."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Num

from interp.capture import Capture, ModelInfo
from interp.errors import PromptError
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

    `unit` names what the column `prompt` counts (`prompt`, `sequence`). Rows of one `cluster` are resampled together.
    The column with the `target`'s name holds its values.
    """

    points: Float[np.ndarray, "layer row feature"]
    rows: Table
    unit: str
    target: Target = OWN_ENTROPY

    @classmethod
    def of(cls, capture: Capture, need: Need, target: Target = OWN_ENTROPY) -> "Cloud":
        """The rows of a need. Raise an error for too few clusters, or numbers (or entropies) that are not finite."""
        points = finite(capture, need)
        points = points.reshape(*points.shape[:2], -1)
        cloud = cls(points, target.added_to(capture.rows), capture.prompts.unit, target)
        if NEXT_ENTROPY in cloud.rows:
            refuse_not_finite(capture, "next-token entropies", ~np.isfinite(cloud.rows[NEXT_ENTROPY]))
        return cloud.wide_enough()

    def wide_enough(self) -> "Cloud":
        """The cloud itself; raise `PromptError` for fewer than three clusters."""
        if self.n_units < MIN_CLOUD:
            raise PromptError(
                asked=f"the geometry of {self.in_words}",
                found=f"fewer than {MIN_CLOUD} {self.resampled}s say nothing of how far a number could move",
                fix="Draw more prompts (--draw), of more clusters.",
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
        """The cluster of each row."""
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
        """These columns without that of the target, which must not be regressed out."""
        return tuple(column for column in columns if column != self.target.column)

    @property
    def counted(self) -> dict[str, Any]:
        """What is counted, as fields of a scalar."""
        return counted(self.prompts, self.units, self.unit)

    @property
    def in_words(self) -> str:
        """`288 prompts in 48 clusters`; `500 sequences`."""
        n, n_clusters = self.counted["n"], self.counted["n_clusters"]
        return f"{n} {self.unit}{'s' * (n != 1)}" + (
            f" in {n_clusters} cluster{'s' * (n_clusters > 1)}" if n_clusters else ""
        )

    @property
    def resampled(self) -> str:
        """The name of the unit that is resampled."""
        return resampled_unit(self.counted)

    @property
    def slots(self) -> dict[str, str]:
        """The words for the slots of declared sentences."""
        return self.target.slots | {"unit": self.unit, "drawn": self.resampled}

    @property
    def clusters(self) -> Num[np.ndarray, " row"] | None:
        """The cluster of each row, where prompts come in clusters."""
        return self.units if self.counted["n_clusters"] else None

    @property
    def is_alone(self) -> bool:
        """Whether every row is a cluster."""
        return self.n_units == self.rows.n_rows

    @property
    def one_row_each(self) -> bool:
        """Whether every prompt has one row."""
        return len(np.unique(self.prompts)) == self.rows.n_rows

    def one_of_each(self, names: Num[np.ndarray, " row"], rng: np.random.Generator) -> "Cloud":
        """One random row of every group of `names`."""
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
        """The layer's index; negative layers count from the last."""
        return layer % self.n_layers

    def thinned(self, n_rows: int, rng: np.random.Generator) -> "Cloud":
        """`whole_groups` of its clusters; or the cloud itself where it is small."""
        if self.rows.n_rows <= n_rows:
            return self
        return self.where(whole_groups(self.units, n_rows, rng))


def whole_groups(names: Num[np.ndarray, " row"], n_rows: int, rng: np.random.Generator) -> Int[np.ndarray, " kept"]:
    """The rows of whole groups chosen at random: as many as have up to `n_rows` rows together, at least three."""
    _, code, counts = np.unique(names, return_inverse=True, return_counts=True)
    order = rng.permutation(len(counts))
    n = max(MIN_CLOUD, int((np.cumsum(counts[order]) <= n_rows).sum()))
    return np.flatnonzero(np.isin(code, order[:n]))


def n_places(site: str, n_layers: int) -> int:
    """How many layers a site has, or depths for the residual stream."""
    return n_layers + (site == "resid")


def own_number(site: str, place: int, model: ModelInfo) -> int:
    """The model's number of a layer in a site's arrays (a depth for the residual stream)."""
    return place if site == "resid" else model.layers_with_attention[place]
