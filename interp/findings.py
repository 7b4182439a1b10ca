"""What a probe found: numbers with units, intervals and nulls; tables; notes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, SupportsFloat

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from interp.errors import Answering, Holding, UnknownName, named
from interp.formatting import (
    counted,
    near_zero_as_zero,
    p_equals,
    p_value,
    plural,
    printable,
    short,
    with_unit,
)
from interp.table import Table, number_columns

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

ALPHA = 0.05
"""The p up to which a number is significant."""

_UNASKED = 0.9
"""p above which a value outside the band lies on the side that a one-sided test ignores."""

Standing = Literal["above", "below", "within", "unjudged"]
Asks = Literal["above", "below", "either", "nothing"]
"""On which side of its null a number is of interest."""

COLUMNS = ("number", "value", "95 % interval", "null", "p", "n")
"""The columns of a table of scalars: the name, then `Scalar.cells`."""


@dataclass(frozen=True)
class Null:
    """What the same computation gives without an effect: its value and a 95 % band, in the unit of the number.

    `n_draws` is the number of random draws, where p counts them: no p is below 1 / (1 + n_draws).

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
    """A 95 % interval, in the unit of its number, and the method: `bootstrap over prompts`.

    >>> interp.Interval(0.1, 0.3, "bootstrap over prompts").high
    0.3
    """

    low: float
    high: float
    method: str

    @classmethod
    def of(cls, bounds: Sequence[float] | np.ndarray | None, method: str, otherwise: str) -> "Interval | str":
        """The interval with these bounds (low, high); without finite bounds the reason `otherwise`."""
        if bounds is None or not np.isfinite(bounds).all():
            return otherwise
        low, high = bounds
        return cls(float(low), float(high), method)


@dataclass(frozen=True, repr=False)
class Scalar(Answering, NDArrayOperatorsMixin):
    """One number. Without an interval or a null it must say why, else `ValueError`: use `Scalar.of`.

    `n` counts `n_unit`s (prompts, sequences); `n_distinct_rows` counts different rows, fewer if a site depends on the
    last token alone; `n_clusters` counts the clusters of prompts that were resampled, if fewer than `n`. If these are
    too few it is `underpowered`, and `enough` would do. `p` is the probability of a value at least as extreme under the
    null, corrected over `p_over` (`layers`, `domains` ...) if that is named; `p_least` is the smallest that the design
    can reach. `reference` is the value without an effect of a number that has no null in one model (a trend over its
    depth); `interp compare` tests several models against it.

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
        """A number with its interval and null, or for either the reason why there is none.

        `about` holds further fields (`p_over`, `reference`, `n`, `n_unit`, `underpowered`, `meaning` ...). A p that is
        not finite becomes None.
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
        """A number that cannot be computed: its value is NaN, with the reason."""
        return cls.of(np.nan, unit, reason, reason, underpowered=underpowered, **about)

    def standing(self, p: float | None = None) -> Standing:
        """`above` or `below` its null if p is at most 0.05, or without a p if the interval misses the null's band.

        Otherwise `within`; `unjudged` without a null, if underpowered or not finite. `p` replaces the number's own.
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

    def __float__(self) -> float:
        return self.value

    def __round__(self, n: int | None = None) -> float:
        return round(self.value, n)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else str(self)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *given: Any, **how: Any) -> Any:
        """Numpy, arithmetic and comparisons use the value."""
        return getattr(ufunc, method)(*(x.value if isinstance(x, Scalar) else x for x in given), **how)

    @property
    def least_p(self) -> float:
        """The smallest p that the draws of the null, or the design, can give; 0 if that is not known."""
        n = self.null.n_draws if self.null else None
        return max(self.p_least or 0.0, 0.0 if n is None else 1 / (1 + n))

    @property
    def is_p_least(self) -> bool:
        """Whether p is the smallest that the draws of the null can give, so the true p may be smaller."""
        return self.p is not None and 0 < self.p <= self.least_p * (1 + 1e-9)

    @property
    def unasked_side(self) -> Literal["above", "below"] | None:
        """The side of the null on which the value lies although p tested the other side; None if there is none."""
        if self.null is None or self.p is None or self.p < _UNASKED:
            return None
        low, high = self.null.band
        return "above" if self.value > high else "below" if self.value < low else None

    @property
    def stands_out(self) -> bool:
        """Whether the value is significantly above or below its null: see `standing`."""
        return self.standing() in ("above", "below")

    @property
    def weakness(self) -> str:
        """`underpowered: 200 clusters would do`, with the number if it is known."""
        return "underpowered" + (f": {self.enough:,} {self.resampled} would do" if self.enough else "")

    @property
    def resampled(self) -> str:
        """What is resampled as a whole: `prompts`, or `clusters` of them."""
        return plural(self.n_unit if self.n_clusters is None else "cluster")

    @property
    def value_text(self) -> str:
        """The value with its unit: `0.22 bits`."""
        return with_unit(short(self.value), self.unit)

    @property
    def briefly(self) -> str:
        """`0.22 bits, p = 0.06`: the value with its p, or that it is underpowered."""
        reason = "underpowered" if self.underpowered else "" if self.p is None else p_equals(self.p, self.is_p_least)
        return f"{self.value_text}, {reason}" if reason else self.value_text

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        """Value, interval, null, p and n as text."""
        weak = f" ({self.weakness})" if self.underpowered else ""
        return self.value_text + weak, self.interval_text, self.null_text, self.p_text, self.n_text

    def columns(self, name: str) -> dict[str, float]:
        """Value, interval and null as `NAME`, `NAME_low`, `NAME_high`, `NAME_null` ...; NaN if there is none."""
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
        """`500 sequences, 73 distinct rows`; empty without n."""
        distinct = None if self.n in (None, self.n_distinct_rows) else self.n_distinct_rows
        return self.counted_text + ("" if distinct is None else f", {distinct:,} distinct rows")

    @property
    def counted_text(self) -> str:
        """`288 prompts in 48 clusters`, `500 sequences`; empty without n."""
        clusters = "" if self.n_clusters is None else f" in {counted(self.n_clusters, 'cluster')}"
        return "" if self.n is None else f"{counted(self.n, self.n_unit)}{clusters}"


def with_controls(own: Standing, controls: Iterable[Scalar]) -> Standing:
    """The standing of a number that is at `own` without its essential controls.

    `within` if one of them is not significant on the same side; `unjudged` if one cannot be tested.
    """
    others = {control.standing() for control in controls}
    if own not in ("above", "below") or others <= {own}:
        return own
    return "unjudged" if others <= {own, "unjudged"} else "within"


@dataclass(frozen=True)
class Control:
    """A headline number measured again without one other explanation: `without the first position`.

    `scalar` is its name among the same findings. If it is `essential`, the headline is significant only if this number
    is too, on the same side of its null.

    >>> interp.Control("without the first position", "sink_free").essential
    True
    """

    words: str
    scalar: str
    essential: bool = True

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 (read by pydantic where a file is checked)


@dataclass(frozen=True, eq=False, repr=False)
class Findings(Holding[str, Scalar]):
    """The result of one probe on one capture: `findings["name"]` is a scalar.

    `headline` names the scalars that the page shows first, in order; `controls` holds those of each headline number.
    `facts` says in words what a number above its null shows (`attention sharpens with depth`); the page names numbers
    of different probes that disagree on one fact. `arrays` are saved for later use, such as an axis for edits. A run
    gives them the `parameters` of the probe, which figures are drawn with. Raises `ValueError` where headline,
    controls or facts name no scalar.

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
    parameters: Mapping[str, Any] = field(default_factory=dict)

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
        """Whether a number is above, below or within its null (`Scalar.standing`); essential controls must agree."""
        return with_controls(self[name].standing(p), [control for _, control in self.essential_controls(name)])

    def essential_controls(self, name: str) -> list[tuple[str, Scalar]]:
        """The essential controls of a number, and their own: words and scalar of each."""
        found: dict[str, str] = {}
        waiting = [name]
        for each in waiting:
            for control in self.controls.get(each, ()):
                if control.essential and control.scalar not in found:
                    found[control.scalar] = control.words
                    waiting.append(control.scalar)
        return [(words, self[scalar]) for scalar, words in found.items()]

    _habits = "`findings[name]` is a number, `findings.to_frame(name)` a table."
    _held, _kind = "scalars", "finding"

    def rows_in_words(self, names: Iterable[str]) -> list[tuple[str, ...]]:
        """Name, value, interval, null, p and n of these scalars as text."""
        return [(name, *self.scalars[name].cells) for name in names]

    def _table(self) -> tuple[str, Sequence[str], list[tuple[str, ...]], str]:
        names = self.headline or tuple(self.scalars)
        further = f"{len(self.scalars) - len(names)} further numbers: `findings.to_frame()`. "
        if self.tables:
            further += f"Tables: {', '.join(self.tables)} (`findings.to_frame(name)`)."
        return self.probe, COLUMNS, self.rows_in_words(names), further

    def plot(self, name: str | None = None, theme: Literal["light", "dark"] = "light") -> "go.Figure":
        """A figure of the page by its name, by default the main one; an unknown name raises `UnknownName`."""
        from interp.registry import load_entry

        drawn = self._drawn()
        name = next(iter(drawn), None) if name is None else name
        if name not in drawn:
            hint = "" if drawn else "A probe's figures are drawn if it is registered (`interp.probes`) and has any."
            raise UnknownName("figure", str(name or self.probe), drawn, hint)
        return load_entry("report", "figure")(drawn[name], theme)

    def figures(self, theme: Literal["light", "dark"] = "light") -> dict[str, "go.Figure"]:
        """All figures of the page by name, the main one first, in the page's theme."""
        from interp.registry import load_entry

        themed = load_entry("report", "figure")
        return {name: themed(figure, theme) for name, figure in self._drawn().items()}

    def _drawn(self) -> dict[str, Any]:
        from interp.registry import entries, load_entry
        from interp.settings import read_fields

        kind = "study" if self.probe in entries("study") else "probe"
        if self.probe not in entries(kind):  # a probe of the user's own, which no name leads to
            return {}
        cls = load_entry(kind, self.probe)
        probe = cls(**read_fields(cls, self.probe, self.parameters))
        return {figure.name: figure for figure in probe.figures(self)}

    def to_frame(self, table: str | None = None) -> "pandas.DataFrame":
        """A table (`UnknownName` if unknown) as a pandas frame; without a name the scalars, one per row.

        `low` and `high` bound the interval; `standing` takes essential controls into account.
        """
        if table is not None:
            return named("table", table, self.tables).to_frame()
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
                "n_clusters": s.n_clusters, "underpowered": s.underpowered, "enough": s.enough,
                "standing": self.standing(name), "is_headline": name in self.headline, "meaning": s.meaning,
            })  # fmt: skip
        return pandas.DataFrame(rows)

    def to_latex(self, names: Iterable[str] | None = None) -> str:
        r"""The headline numbers, or those named, as a LaTeX table (`\usepackage{booktabs}`), one per row."""
        import pandas

        chosen = tuple(names) if names is not None else self.headline or tuple(self.scalars)
        rows = [[printable(cell) for cell in (name, *self[name].cells)] for name in chosen]
        frame = pandas.DataFrame(rows, columns=list(COLUMNS))
        return frame.to_latex(index=False, escape=True).replace("−", "$-$").replace("≤", r"$\leq$")
