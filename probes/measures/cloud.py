"""A cloud: the captured rows of one site, layer by layer, with the prompt that each belongs to."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Num

from interp.capture import Capture
from interp.errors import ModelError, PromptError, UsageError
from interp.need import Need
from interp.table import Table

from .finite import finite
from .sample_sizes import MIN_CLOUD
from .target import OWN_ENTROPY, Target


@dataclass(frozen=True)
class Cloud:
    """Points `[layer, row, feature]` and the table of their rows; heads are concatenated.

    `unit` is what is resampled (`prompt`, `sequence`); a row's `prompt` column says which one it belongs to, the column
    of the `target`'s name what is sought in the points.
    """

    points: Float[np.ndarray, "layer row feature"]
    rows: Table
    unit: str
    target: Target = OWN_ENTROPY

    @classmethod
    def of(cls, capture: Capture, need: Need, target: Target = OWN_ENTROPY) -> "Cloud":
        """The rows of a need; numbers that are not finite, and fewer than three prompts, are refused in words.

        That holds for the model's entropies at these rows too, which most statistics of a cloud are held against.
        """
        points = finite(capture, need)
        points = points.reshape(*points.shape[:2], -1)
        cloud = cls(points, target.added_to(capture.rows), capture.prompts.unit, target)
        if cloud.n_units < MIN_CLOUD:
            raise PromptError(
                asked=f"the geometry of {cloud.n_units} {cloud.unit}{'s' if cloud.n_units > 1 else ''}",
                found=f"fewer than {MIN_CLOUD} points span no cloud",
                fix="Give more prompts; the statistics want a hundred or more.",
            )
        n_bad = int((~np.isfinite(cloud.rows["next_entropy_bits"])).sum()) if "next_entropy_bits" in cloud.rows else 0
        if n_bad:
            raise ModelError(
                asked=f"the next-token entropies of {capture.model.name}",
                found=f"{n_bad} of {cloud.rows.n_rows} are not finite",
                fix=f"Load the model in float32 (it was read in {capture.model.dtype}), or check its weights.",
            )
        return cloud

    @property
    def n_units(self) -> int:
        return len(np.unique(self.units))

    @property
    def n_layers(self) -> int:
        return len(self.points)

    @property
    def units(self) -> Num[np.ndarray, " row"]:
        return self.rows["prompt"]

    @property
    def entropy_bits(self) -> Float[np.ndarray, " row"]:
        """The model's own next-token entropy at each row."""
        return self.rows["next_entropy_bits"]

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
        return {"n": self.n_units, "n_unit": self.unit}

    @property
    def one_row_each(self) -> bool:
        return self.n_units == self.rows.n_rows

    def one_of_each(self, rng: np.random.Generator) -> "Cloud":
        """One row of every prompt, drawn at random; the cloud itself where there is no more."""
        if self.one_row_each:
            return self
        order = rng.permutation(self.rows.n_rows)
        _, first = np.unique(self.units[order], return_index=True)
        keep = np.zeros(self.rows.n_rows, dtype=bool)
        keep[order[first]] = True
        return self.where(keep)

    def where(self, keep: Bool[np.ndarray, " row"]) -> "Cloud":
        return replace(self, points=np.compress(keep, self.points, axis=1), rows=self.rows.where(keep))

    def layer_index(self, layer: int) -> int:
        """The layer that is meant; negative ones count from the last."""
        refuse_layer(layer, self.n_layers)
        return layer % self.n_layers

    def thinned(self, n_rows: int, rng: np.random.Generator) -> "Cloud":
        """Whole prompts chosen at random until `n_rows` rows are reached; the cloud itself where it is small enough."""
        if self.rows.n_rows <= n_rows:
            return self
        names, counts = np.unique(self.units, return_counts=True)
        order = rng.permutation(len(names))
        chosen = names[order[np.cumsum(counts[order]) <= n_rows]]
        return self.where(np.isin(self.units, chosen))


def refuse_layer(layer: int, n_layers: int) -> None:
    """Raise `UsageError` for a layer that is none of so many, counted from either end."""
    if not -n_layers <= layer < n_layers:
        raise UsageError(
            asked=f"layer {layer}",
            found=f"the model has layers 0 to {n_layers - 1}",
            fix=f"Choose one of them, or -1 to -{n_layers} counted from the last.",
        )


def n_places(site: str, n_layers: int) -> int:
    """How many layers a site has in a model of so many; the residual stream has its depths."""
    return n_layers + (site == "resid")
