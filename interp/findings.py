"""What a probe found: numbers with units, intervals and nulls; tables; notes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from interp.errors import UnknownName
from interp.table import Table

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Null:
    """What the same computation gives where there is nothing to find: its value and a 95 % band."""

    name: str
    value: float
    band: tuple[float, float]


@dataclass(frozen=True)
class Scalar:
    """One number. Without an interval or a null it must say why.

    `n` counts `n_unit`s (prompts, sequences); `n_distinct_rows` counts different rows, which is less where a site
    depends on the last token alone. `p` is the probability of a value at least as extreme under the null, corrected
    over `p_over` (`layers`, `domains` ...) where that is named.
    """

    value: float
    unit: str
    interval: tuple[float, float] | None = None
    interval_method: str = ""
    interval_reason: str = ""
    null: Null | None = None
    null_reason: str = ""
    p: float | None = None
    p_over: str = ""
    n: int | None = None
    n_unit: str = "prompt"
    n_distinct_rows: int | None = None
    underpowered: bool = False
    meaning: str = ""

    def __post_init__(self) -> None:
        if self.interval is None and not self.interval_reason:
            raise ValueError("a scalar without an interval needs an interval_reason")
        if self.interval is not None and not self.interval_method:
            raise ValueError("an interval needs its interval_method")
        if self.null is None and not self.null_reason:
            raise ValueError("a scalar without a null needs a null_reason")


@dataclass(frozen=True)
class Findings:
    """The result of one probe on one capture.

    `headline` names the scalars that the page puts first, in order; `arrays` are kept for later use (an axis, say) and
    saved beside the tables.
    """

    probe: str
    scalars: Mapping[str, Scalar] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    headline: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        missing = set(self.headline) - set(self.scalars)
        if missing:
            raise ValueError(f"headline names no scalar: {sorted(missing)}")

    def __getitem__(self, name: str) -> Scalar:
        if name not in self.scalars:
            raise UnknownName("finding", name, self.scalars)
        return self.scalars[name]

    def _repr_html_(self) -> str:
        from interp.notebook import findings_html

        return findings_html(self)

    def plot(self, name: str, theme: Literal["light", "dark"] = "light") -> "go.Figure":
        """A figure of the page by its name, in the page's theme; an unknown name lists those that there are.

        Figures are made of findings alone: the parameters of the probe that found them do not come into it.
        """
        from interp.registry import entries, load_entry

        kind = "study" if self.probe in entries("study") else "probe"
        figures = {figure.name: figure for figure in load_entry(kind, self.probe)().figures(self)}
        if name not in figures:
            raise UnknownName("figure", name, figures)
        return load_entry("report", "figure")(figures[name], theme)

    def to_frame(self, table: str | None = None) -> "pandas.DataFrame":
        """A table by name as a pandas frame; without a name, the scalars, one a row."""
        if table is not None:
            if table not in self.tables:
                raise UnknownName("table", table, self.tables)
            return self.tables[table].to_frame()
        import pandas

        rows = [
            {
                "name": name, "value": s.value, "unit": s.unit,
                "low": s.interval[0] if s.interval else np.nan, "high": s.interval[1] if s.interval else np.nan,
                "null": s.null.value if s.null else np.nan, "p": s.p if s.p is not None else np.nan, "n": s.n,
            }
            for name, s in self.scalars.items()
        ]  # fmt: skip
        return pandas.DataFrame(rows)
