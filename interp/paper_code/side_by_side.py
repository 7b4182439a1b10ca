"""Right and wrong, side by side: the same quantity from two reads of one model on the same prompts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Int

from interp.capture import Capture
from interp.findings import Findings, Scalar
from interp.hooks.attention import Listener
from interp.model import Model
from interp.need import Need
from interp.prompt import PromptSet
from interp.reading.forward import capture
from interp.statistics.resampling import bootstrap_weights
from interp.statistics.units import clusters_of, counted, resampled_unit
from interp.system.progress import Report
from interp.table import LABEL, Table

N_BOOTSTRAP = 1000


@dataclass(frozen=True)
class Subject:
    """The model and the tokenised prompts that both reads are taken from."""

    model: Model
    prompts: PromptSet
    ids: Sequence[Int[np.ndarray, " _pos"]]
    seed: int = 0
    progress: Report | None = None

    def read(self, *needs: Need, listeners: Sequence[Listener] = ()) -> Capture:
        """One pass over the prompts."""
        said = {"listeners": listeners, "progress": self.progress, "seed": self.seed}
        return capture(self.model, self.prompts, self.ids, needs, **said)

    def rng(self, purpose: int) -> np.random.Generator:
        """A stream of its own for each purpose, so that no number depends on which others were computed."""
        return np.random.default_rng([self.seed, purpose])


@dataclass(frozen=True)
class Sample:
    """Which cluster of prompts each row belongs to, with one set of bootstrap resamples for all that is averaged.

    `counted` says of how many prompts and clusters, as fields of a scalar; `resampled` is the word for what is drawn.
    """

    units: Int[np.ndarray, " row"]
    counted: Mapping[str, Any]
    rng: np.random.Generator = field(repr=False)

    @classmethod
    def of(cls, base: Capture, rng: np.random.Generator) -> "Sample":
        clusters = clusters_of(base.rows)
        return cls(clusters, counted(base.rows["prompt"], clusters, base.prompts.unit), rng)

    @property
    def resampled(self) -> str:
        return resampled_unit(self.counted)

    @cached_property
    def weights(self) -> Int[np.ndarray, "resample row"]:
        """How often each row occurs when whole clusters are drawn with replacement."""
        return bootstrap_weights(self.units, None, N_BOOTSTRAP, self.rng)


@dataclass(frozen=True)
class Sides:
    """One quantity, read right and read wrong. `name` is for machines, `quantity` for people."""

    name: str
    quantity: str
    right: Scalar
    wrong: Scalar


def side_by_side(sides: Sequence[Sides], caption: str) -> Table:
    """A row a quantity; a null is NaN where there is none, for the reason that the scalar gives."""
    rows = [
        {
            "quantity": s.quantity, "right": s.right.value, "right_null": _null(s.right),
            "wrong": s.wrong.value, "wrong_null": _null(s.wrong), "unit": s.right.unit,
        }
        for s in sides
    ]  # fmt: skip
    numbers = dict.fromkeys(("right", "right_null", "wrong", "wrong_null"), "as named")
    return Table.from_rows(rows, {"quantity": LABEL, **numbers, "unit": LABEL}, caption)


def compared(bug: str, sides: Sequence[Sides], notes: tuple[str, ...], tables: Mapping[str, Table]) -> Findings:
    """The findings of one bug: scalars `<name>_right` and `<name>_wrong`, headed by the first quantity."""
    scalars = {f"{s.name}_{side}": getattr(s, side) for s in sides for side in ("right", "wrong")}
    caption = "The same quantities from the tensor that is meant and from the one the published code reads."
    return Findings(
        probe=f"reproduce-bug-{bug}",
        scalars=scalars,
        tables={"side_by_side": side_by_side(sides, caption), **tables},
        notes=notes,
        headline=tuple(scalars)[:2],
    )


def _null(scalar: Scalar) -> float:
    return scalar.null.value if scalar.null else float("nan")
