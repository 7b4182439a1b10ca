"""What a probe found: numbers with units, intervals and nulls; tables; notes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, SupportsFloat

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from interp.errors import Answering, UnknownName
from interp.formatting import (
    brief,
    counted,
    html_table,
    near_zero_as_zero,
    p_equals,
    p_value,
    plural,
    printable,
    short,
    text_table,
    with_unit,
)
from interp.table import Table, number_columns

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

ALPHA = 0.05
"""The p up to which a number is significant."""

_UNASKED = 0.9
"""p above which a value outside the band lies on the side that was not asked about: a two-sided p would be small."""

Standing = Literal["above", "below", "within", "unjudged"]
COLUMNS = ("number", "value", "95 % interval", "null", "p", "n")
"""The columns of a table of scalars: the name, then `Scalar.cells`."""


@dataclass(frozen=True)
class Null:
    """What the same computation gives where there is nothing to find: its value and a 95 % band.

    `n_draws` says how many draws of it were made where a p counts them: no p is below 1 / (1 + n_draws).

    >>> interp.Null("labels shuffled", 0.02, (0.0, 0.05)).band
    (0.0, 0.05)
    """

    name: str
    value: float
    band: tuple[float, float]
    n_draws: int | None = None

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 (read by pydantic where a file is checked)


@dataclass(frozen=True)
class Interval:
    """A 95 % interval and how it was made: `bootstrap over prompts`.

    >>> interp.Interval(0.1, 0.3, "bootstrap over prompts").high
    0.3
    """

    low: float
    high: float
    method: str

    @classmethod
    def of(cls, bounds: Sequence[float] | np.ndarray | None, method: str, otherwise: str) -> "Interval | str":
        """The interval with these bounds; `otherwise`, the reason why there is none, without bounds that are finite."""
        if bounds is None or not np.isfinite(bounds).all():
            return otherwise
        low, high = bounds
        return cls(float(low), float(high), method)


@dataclass(frozen=True, repr=False)
class Scalar(Answering, NDArrayOperatorsMixin):
    """One number. Without an interval or a null it must say why: `Scalar.of` takes either, or the reason.

    `n` counts `n_unit`s (prompts, sequences); `n_distinct_rows` counts different rows, which is less where a site
    depends on the last token alone; `n_clusters` counts what was resampled where that is fewer than `n`: clusters of
    prompts that belong together; `underpowered` says that they are too few, and `enough` how many would do. `p` is
    the probability of a value at least as extreme under the null, corrected over `p_over` (`layers`, `domains` ...)
    where that is named, and `p_least` the smallest that the design can reach, where it is known. `reference` is the
    value without an effect where one model has no null (a trend over its depth): `interp compare` holds several models
    against it.

    >>> chance = interp.Null("labels shuffled", 0.02, (0.0, 0.05))
    >>> interval = interp.Interval(0.2, 0.4, "bootstrap over prompts")
    >>> interp.Scalar.of(0.3, "1", interval, chance, n=100, n_unit="prompt").standing()
    'above'
    """

    _habits = "It has `value`, `interval` (95 %), `null`, `p` and `n`."

    value: float
    unit: str
    interval: tuple[float, float] | None = None
    interval_method: str = ""
    interval_reason: str = ""
    null: Null | None = None
    null_reason: str = ""
    p: float | None = None
    p_over: str = ""
    reference: float | None = None
    n: int | None = None
    n_unit: str = "prompt"
    n_distinct_rows: int | None = None
    n_clusters: int | None = None
    underpowered: bool = False
    enough: int | None = None
    meaning: str = ""
    p_least: float | None = None

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 (read by pydantic where a file is checked)

    def __post_init__(self) -> None:
        if self.interval is None and not self.interval_reason:
            raise ValueError("a scalar without an interval needs an interval_reason")
        if self.interval is not None and not self.interval_method:
            raise ValueError("an interval needs its interval_method")
        if self.null is None and not self.null_reason:
            raise ValueError("a scalar without a null needs a null_reason")

    @classmethod
    def of(
        cls,
        value: SupportsFloat,
        unit: str,
        interval: Interval | str,
        null: Null | str,
        *,
        p: float | None = None,
        **about: Any,
    ) -> "Scalar":
        """A number with its interval and its null, or in the place of either the reason why there is none.

        `about` are the further fields (`p_over`, `reference`, `n`, `n_unit`, `n_distinct_rows`, `underpowered`,
        `meaning`). A p that is no number is none.
        """
        return cls(
            float(value), unit,
            interval=None if isinstance(interval, str) else (float(interval.low), float(interval.high)),
            interval_method="" if isinstance(interval, str) else interval.method,
            interval_reason=interval if isinstance(interval, str) else "",
            null=None if isinstance(null, str) else null, null_reason=null if isinstance(null, str) else "",
            p=None if p is None or not np.isfinite(p) else float(p), **about,
        )  # fmt: skip

    @classmethod
    def undefined(cls, reason: str, unit: str = "1", *, underpowered: bool = False, **about: Any) -> "Scalar":
        """A number that cannot be given, and why; it is NaN."""
        return cls.of(np.nan, unit, reason, reason, underpowered=underpowered, **about)

    def standing(self, p: float | None = None) -> Standing:
        """Where the value stands to its null, by the rule on every page; `p` is one that was corrected further.

        `unjudged` without a null, where the number is underpowered, or is none.
        """
        if self.null is None or self.underpowered or not np.isfinite([self.value, *self.null.band]).all():
            return "unjudged"
        p = self.p if p is None else p
        if p is not None:
            side = "above" if self.value > self.null.value else "below"
            return side if p <= ALPHA else "within"
        has_interval = self.interval is not None and np.isfinite(self.interval).all()
        low, high = self.interval if self.interval and has_interval else (self.value, self.value)
        if low > self.null.band[1]:
            return "above"
        return "below" if high < self.null.band[0] else "within"

    def __repr__(self) -> str:
        return brief(self)

    def __float__(self) -> float:
        return self.value

    def __round__(self, n: int | None = None) -> float:
        return round(self.value, n)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else str(self)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *given: Any, **how: Any) -> Any:
        """Numpy, arithmetic and comparisons take the value alone."""
        return getattr(ufunc, method)(*(x.value if isinstance(x, Scalar) else x for x in given), **how)

    @property
    def is_p_least(self) -> bool:
        """Whether p is the smallest that the draws of the null can give: it may be smaller still."""
        n = None if self.null is None else self.null.n_draws
        least = self.p_least if n is None else max(self.p_least or 0.0, 1 / (1 + n))
        return self.p is not None and least is not None and self.p <= least * (1 + 1e-9)

    @property
    def unasked_side(self) -> Literal["above", "below"] | None:
        """The side of its null that a value lies on where p asked about the other one; None where it is within."""
        if self.null is None or self.p is None or self.p < _UNASKED:
            return None
        low, high = self.null.band
        return "above" if self.value > high else "below" if self.value < low else None

    @property
    def stands_out(self) -> bool:
        """Whether the value differs from its null, by the rule on every page."""
        return self.standing() in ("above", "below")

    @property
    def weakness(self) -> str:
        """`underpowered: 200 clusters would do`, as far as it is known."""
        return "underpowered" + (f": {self.enough:,} {self.resampled} would do" if self.enough else "")

    @property
    def resampled(self) -> str:
        """`prompts`, or `clusters` of them: what is resampled as a whole."""
        return plural(self.n_unit if self.n_clusters is None else "cluster")

    @property
    def value_text(self) -> str:
        """`0.22 bits`."""
        return with_unit(short(self.value), self.unit)

    @property
    def briefly(self) -> str:
        """`0.22 bits, p = 0.06`: the value with its p, or that it is underpowered."""
        reason = "underpowered" if self.underpowered else "" if self.p is None else p_equals(self.p, self.is_p_least)
        return f"{self.value_text}, {reason}" if reason else self.value_text

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        """Value, interval, null, p and n in words, as every table of numbers has them."""
        weak = f" ({self.weakness})" if self.underpowered else ""
        return self.value_text + weak, self.interval_text, self.null_text, self.p_text, self.n_text

    def columns(self, name: str) -> dict[str, float]:
        """Value, interval and null as columns of a table, by this name; NaN where there is none."""
        null = (self.null.value, *self.null.band) if self.null else (np.nan,) * 3
        return number_columns(name, self.value, self.interval or (np.nan, np.nan), null)

    @property
    def interval_text(self) -> str:
        """`0.2 to 0.3`, or the reason why there is no interval."""
        if self.interval is None:
            return f"none: {self.interval_reason}"
        return f"{short(self.interval[0])} to {short(self.interval[1])}"

    @property
    def null_text(self) -> str:
        """`0.1 (0.05 to 0.15)`, the null's value and its band, or the reason why there is no null."""
        if self.null is None:
            return f"none: {self.null_reason}"
        value, low, high = (short(near_zero_as_zero(x)) for x in (self.null.value, *self.null.band))
        return f"{value} ({low} to {high})"

    @property
    def p_text(self) -> str:
        """p with what it was corrected over; `≤` before the smallest that the draws can give; empty without one."""
        if self.p is None:
            return ""
        return p_value(self.p, self.is_p_least) + (f" over {self.p_over}" if self.p_over else "")

    @property
    def n_text(self) -> str:
        """How many of what: `500 sequences, 73 distinct rows`; empty where nothing was counted."""
        distinct = None if self.n in (None, self.n_distinct_rows) else self.n_distinct_rows
        return self.counted_text + ("" if distinct is None else f", {distinct:,} distinct rows")

    @property
    def counted_text(self) -> str:
        """`288 prompts in 48 clusters`; `500 sequences`."""
        clusters = "" if self.n_clusters is None else f" in {counted(self.n_clusters, 'cluster')}"
        return "" if self.n is None else f"{counted(self.n, self.n_unit)}{clusters}"


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
        """
        from interp.registry import load_entry

        drawn = self._drawn()
        name = next(iter(drawn), None) if name is None else name
        if name not in drawn:
            raise UnknownName("figure", str(name), drawn)
        return load_entry("report", "figure")(drawn[name], theme)

    def figures(self, theme: Literal["light", "dark"] = "light") -> dict[str, "go.Figure"]:
        """All figures of the page by name, the main one first, in the page's theme."""
        from interp.registry import load_entry

        themed = load_entry("report", "figure")
        return {name: themed(figure, theme) for name, figure in self._drawn().items()}

    def _drawn(self) -> dict[str, Any]:
        from interp.registry import entries, load_entry

        kind = "study" if self.probe in entries("study") else "probe"
        return {figure.name: figure for figure in load_entry(kind, self.probe)().figures(self)}

    def to_frame(self, table: str | None = None) -> "pandas.DataFrame":
        """A table by name as a pandas frame; without a name, the scalars, one a row with all that is known of each.

        `low` and `high` bound the interval; `standing` to the null takes essential controls into account.
        """
        if table is not None:
            if table not in self.tables:
                raise UnknownName("table", table, self.tables)
            return self.tables[table].to_frame()
        import pandas

        unknown, rows = Null("", np.nan, (np.nan, np.nan)), []
        for name, s in self.scalars.items():
            (low, high), null = s.interval or unknown.band, s.null or unknown
            if_known = {of: np.nan if (x := getattr(s, of)) is None else x for of in ("p", "p_least", "reference")}
            rows.append({
                "name": name, "value": s.value, "unit": s.unit, "low": low, "high": high,
                "interval_method": s.interval_method, "interval_reason": s.interval_reason,
                "null": null.value, "null_low": null.band[0], "null_high": null.band[1],
                "null_name": null.name, "null_reason": s.null_reason,
                "p": if_known["p"], "p_over": s.p_over, "p_least": if_known["p_least"],
                "reference": if_known["reference"], "n": s.n, "n_unit": s.n_unit, "n_distinct_rows": s.n_distinct_rows,
                "underpowered": s.underpowered, "enough": s.enough, "standing": self.standing(name),
                "is_headline": name in self.headline, "meaning": s.meaning,
            })  # fmt: skip
        return pandas.DataFrame(rows)

    def to_latex(self, names: Iterable[str] | None = None) -> str:
        r"""The headline numbers, or those named, as a LaTeX table (`\usepackage{booktabs}`), one a row."""
        import pandas

        chosen = tuple(names) if names is not None else self.headline or tuple(self.scalars)
        rows = [[printable(cell) for cell in (name, *self[name].cells)] for name in chosen]
        frame = pandas.DataFrame(rows, columns=list(COLUMNS))
        return frame.to_latex(index=False, escape=True)
