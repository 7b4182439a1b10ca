"""The contract of a probe: parameters are fields, needs are declared, the analysis is pure.

A probe is a frozen dataclass in a package of its own, found by name through the entry points `interp.probes`. It never
sees the model: the runner captures the union of all needs in one pass and hands every probe the same `Capture`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from interp.capture import Capture
from interp.findings import Findings
from interp.need import Need

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Figure:
    """A plotly figure with its title, one sentence on how to read it, and the table that holds its data."""

    name: str
    title: str
    reading: str
    plot: "go.Figure"
    table: str | None = None


@dataclass(frozen=True)
class Probe(ABC):
    """One question to a model. Subclasses add fields with defaults; each is a parameter and is recorded."""

    name: ClassVar[str]
    question: ClassVar[str]
    observational: ClassVar[bool] = True

    @property
    @abstractmethod
    def needs(self) -> tuple[Need, ...]:
        """What has to be captured. May depend on the fields, never on the data."""

    @abstractmethod
    def analyse(self, base: Capture, under: Mapping[str, Capture]) -> Findings:
        """Findings from the base capture, and from one capture for every named condition. Pure."""

    def figures(self, findings: Findings) -> tuple[Figure, ...]:
        """The figures of the page, from the findings alone; plotly is imported inside."""
        return ()

    def parameters(self) -> dict[str, Any]:
        """The fields and their values, as recorded."""
        return {f.name: getattr(self, f.name) for f in fields(self)}
