"""What a probe found: numbers with units, intervals and nulls; tables; notes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from interp.errors import Answering, UnknownName
from interp.formatting import html_table, printable, text_table
from interp.scalar import COLUMNS, Scalar, Standing
from interp.table import Table

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go


def with_controls(own: Standing, controls: Iterable[Scalar]) -> Standing:
    """Where a number stands that would stand at `own` without its essential controls.

    `within` where one of them does not stand out on the same side; `unjudged` where one cannot be judged.
    """
    others = {control.standing() for control in controls}
    if own not in ("above", "below") or others <= {own}:
        return own
    return "unjudged" if others <= {own, "unjudged"} else "within"


@dataclass(frozen=True)
class Control:
    """A headline number measured again without one thing that could make it: `without the first position`.

    `scalar` names that number among the same findings. Where it is `essential` the headline stands out only if this
    one does, on the same side of its null.

    >>> interp.Control("without the first position", "sink_free").essential
    True
    """

    words: str
    scalar: str
    essential: bool = True

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 (read by pydantic where a file is checked)


@dataclass(frozen=True, repr=False)
class Findings(Answering, Mapping[str, Scalar]):
    """The result of one probe on one capture.

    `headline` names the scalars that the page puts first, in order; `controls` are those of a headline number, by its
    name; `facts` says in words what a number above its null says, where other probes measure the same (`attention
    sharpens with depth`): numbers of one fact that disagree are named on the page. `arrays` are kept for later use (an
    axis, say) and saved beside the tables.

    >>> size = interp.Scalar(2.0, "bits", interval_reason="one value", null_reason="no chance level")
    >>> found = interp.Findings("my_probe", scalars={"size": size}, headline=("size",))
    >>> found["size"].value
    2.0
    """

    probe: str
    scalars: Mapping[str, Scalar] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    headline: tuple[str, ...] = ()
    controls: Mapping[str, tuple[Control, ...]] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = {
            "headline": self.headline,
            "controls": (*self.controls, *(c.scalar for controls in self.controls.values() for c in controls)),
            "facts": self.facts,
        }
        for what, names in named.items():
            missing = set(names) - set(self.scalars)
            if missing:
                raise ValueError(f"{what} names no scalar: {sorted(missing)}")

    def standing(self, name: str, p: float | None = None) -> Standing:
        """Where a number stands to its null (see `Scalar.standing`), as far as its essential controls agree."""
        return with_controls(self[name].standing(p), [control for _, control in self.essential_controls(name)])

    def essential_controls(self, name: str) -> list[tuple[str, Scalar]]:
        """What a number needs to stand out, and what that needs in turn, each in words and as it was measured."""
        found: dict[str, str] = {}
        waiting = [name]
        for each in waiting:
            for control in self.controls.get(each, ()):
                if control.essential and control.scalar not in found:
                    found[control.scalar] = control.words
                    waiting.append(control.scalar)
        return [(words, self[scalar]) for scalar, words in found.items()]

    _habits = "`findings[name]` is a number, `findings.to_frame(name)` a table."

    def __getitem__(self, name: str) -> Scalar:
        if name not in self.scalars:
            raise UnknownName("finding", name, self.scalars)
        return self.scalars[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.scalars)

    def __len__(self) -> int:
        return len(self.scalars)

    def rows_in_words(self, names: Iterable[str]) -> list[tuple[str, ...]]:
        """Scalars as rows of a table with the columns `COLUMNS`."""
        return [(name, *self.scalars[name].cells) for name in names]

    def __repr__(self) -> str:
        return text_table(self.probe, *self._headline_table())

    def _repr_html_(self) -> str:
        return html_table(self.probe, *self._headline_table())

    def _headline_table(self) -> tuple[Sequence[str], list[tuple[str, ...]], str]:
        """Head and rows of the headline numbers (all, where none is named), and where the rest is."""
        names = self.headline or tuple(self.scalars)
        further = f"{len(self.scalars) - len(names)} further numbers: `findings.to_frame()`. "
        if self.tables:
            further += f"Tables: {', '.join(self.tables)} (`findings.to_frame(name)`)."
        return COLUMNS, self.rows_in_words(names), further

    def plot(self, name: str | None = None, theme: Literal["light", "dark"] = "light") -> "go.Figure":
        """A figure of the page by its name, in the page's theme; without a name the main one, which comes first.

        `UnknownName` for a name that is none of them lists those that there are.

        Figures are made of findings alone: the parameters of the probe that found them do not come into it.
        """
        from interp.registry import load_entry

        drawn = self._drawn()
        if name is None and drawn:
            name = next(iter(drawn))
        if name not in drawn:
            raise UnknownName("figure", str(name), drawn)
        return load_entry("report", "figure")(drawn[name], theme)

    def figures(self, theme: Literal["light", "dark"] = "light") -> dict[str, "go.Figure"]:
        """All figures of the page by name, the main one first, in the page's theme."""
        from interp.registry import load_entry

        themed = load_entry("report", "figure")
        return {name: themed(figure, theme) for name, figure in self._drawn().items()}

    def _drawn(self) -> dict[str, Any]:
        """The figures (`interp.Figure`) by name, as the probe or study draws them."""
        from interp.registry import entries, load_entry

        kind = "study" if self.probe in entries("study") else "probe"
        return {figure.name: figure for figure in load_entry(kind, self.probe)().figures(self)}

    def to_frame(self, table: str | None = None) -> "pandas.DataFrame":
        """A table by name as a pandas frame; without a name, the scalars, one a row with all that is known of each.

        `low` and `high` bound the interval, `null_low` and `null_high` the null's band; `standing` is where the value
        stands to its null, its essential controls included.
        """
        if table is not None:
            if table not in self.tables:
                raise UnknownName("table", table, self.tables)
            return self.tables[table].to_frame()
        import pandas

        rows = [
            {
                "name": name, "value": s.value, "unit": s.unit,
                "low": s.interval[0] if s.interval else np.nan, "high": s.interval[1] if s.interval else np.nan,
                "interval_method": s.interval_method, "interval_reason": s.interval_reason,
                "null": s.null.value if s.null else np.nan, "null_low": s.null.band[0] if s.null else np.nan,
                "null_high": s.null.band[1] if s.null else np.nan,
                "null_name": s.null.name if s.null else "", "null_reason": s.null_reason,
                "p": np.nan if s.p is None else s.p, "p_over": s.p_over,
                "p_least": np.nan if s.p_least is None else s.p_least,
                "reference": np.nan if s.reference is None else s.reference,
                "n": s.n, "n_unit": s.n_unit, "n_distinct_rows": s.n_distinct_rows,
                "underpowered": s.underpowered, "enough": s.enough, "standing": self.standing(name),
                "is_headline": name in self.headline, "meaning": s.meaning,
            }
            for name, s in self.scalars.items()
        ]  # fmt: skip
        return pandas.DataFrame(rows)

    def to_latex(self, names: Iterable[str] | None = None) -> str:
        r"""The headline numbers, or those named, as a LaTeX table (`\usepackage{booktabs}`), one a row."""
        import pandas

        chosen = tuple(names) if names is not None else self.headline or tuple(self.scalars)
        rows = [[printable(cell) for cell in (name, *self[name].cells)] for name in chosen]
        frame = pandas.DataFrame(rows, columns=list(COLUMNS))
        return frame.to_latex(index=False, escape=True)
