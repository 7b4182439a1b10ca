"""What a probe measures, declared once: the name, unit and meaning of each number, and what it is compared with.

Scalars, tables, headlines, controls, `interp list` and the documentation read the same table. Sentences have slots in
braces (`{target}`), filled when the data are known (`filled`). Values and uncertainty arrive as
`interp.statistics.estimates.Estimates`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import Formatter
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.errors import named
from interp.findings import Asks, Control, Findings, Interval, Null, Scalar
from interp.table import LABEL, Table

if TYPE_CHECKING:
    from interp.statistics.estimates import Estimates

PLACES = {
    "axis": LABEL, "chosen": LABEL, "component": "component", "depth": "depth", "domain": LABEL, "head": "head",
    "how": LABEL, "kv_head": "head", "layer": "layer", "n_distinct_rows": "rows", "nuisances": LABEL, "part": LABEL,
    "positions": LABEL, "prompt": "index", "set": LABEL, "site": LABEL, "target": LABEL, "text": LABEL,
    "turns": "boolean",
}  # fmt: skip
"""The units of columns that say where a row is: the same in the tables of every probe."""


@dataclass(frozen=True)
class Quantity:
    """The declaration of one number of a probe: unit, meaning, null. Its texts may have slots, such as `{target}`.

    `asks` is the side of the null that is of interest. `null` names the null and `method` how the interval is made; if
    there is none, `null` and `no_interval` (else `method`) say why. `p_over` names what p is corrected over. `fact`
    says what a value above the null shows, if other probes measure the same.

    >>> entropy = interp.Quantity("bits", "Entropy of {target}.", null="no chance level", method="one number")
    >>> entropy.filled(target="the next token").in_words(entropy.meaning)
    'Entropy of the next token.'
    """

    unit: str
    meaning: str = ""
    null: str = ""
    method: str = ""
    no_interval: str = ""
    asks: Asks = "above"
    p_over: str = ""
    reference: float | None = None
    is_headline: bool = False
    controls: tuple[Control, ...] = ()
    fact: str = ""
    words: Mapping[str, str] = field(default_factory=dict)

    def filled(self, **words: str) -> "Quantity":
        """A copy with these words in its slots; words that it already has stay."""
        return replace(self, words={**words, **self.words})

    def in_words(self, text: str) -> str:
        """A text with the slots filled; a slot without a word stays as it is."""
        return text.format_map(_Slots(self.words))

    def scalar(self, found: "Estimates", place: int = 0) -> Scalar:
        """The scalar of these estimates at one `place` (an index: a layer, a head), with interval, null and p."""
        one = found.at(place)
        mine, value, why = self.filled(**one.words), float(one.value[0]), str(one.why)
        about: dict[str, Any] = {**one.about, "meaning": mine.in_words(mine.meaning)}
        if np.isnan(value):
            return Scalar.undefined(why, self.unit, **about | {"underpowered": True, "enough": None})
        method = mine.in_words(mine.method)
        bounds = (np.nan, np.nan) if one.interval is None else one.interval[:, 0].tolist()
        null, *band = (np.nan, np.nan, np.nan) if one.null is None else one.null[:, 0].tolist()
        p = np.nan if one.p is None else float(one.p[0])
        return Scalar.of(
            value,
            self.unit,
            Interval.of(bounds, method, why or mine.in_words(mine.no_interval) or method),
            why or mine.in_words(mine.null)
            if np.isnan(null)
            else Null(mine.in_words(mine.null), null, (band[0], band[1]), one.n_draws),
            p=p,
            p_over=self.p_over if np.isfinite(p) else "",
            reference=self.reference,
            **about,
        )


def in_general(text: str) -> str:
    """A declared name or text before the data are known: slots stand in capitals."""
    return text.format_map({name: name.upper() for _, name, *_ in Formatter().parse(text) if name})


class _Slots(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return f"{{{name}}}"


class Quantities(Mapping[str, Quantity]):
    """The numbers of a probe by name, headlines in the order of the page; names may have slots too.

    `columns` are the units of further columns of its tables.

    >>> share = interp.Quantity("fraction", "Share of {target}.", null="none is expected", method="all rows")
    >>> interp.Quantities({"{prefix}_share": share}).filled(target="bits", prefix="bit")["bit_share"].unit
    'fraction'
    """

    def __init__(self, of: Mapping[str, Quantity] = {}, columns: Mapping[str, str] = {}) -> None:
        self._of, self.columns = dict(of), dict(columns)

    def __getitem__(self, name: str) -> Quantity:
        return named("quantity", name, self._of)

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)

    def filled(self, **words: str) -> "Quantities":
        """A copy with these words in the slots of names and texts."""
        slots = _Slots(words)
        return Quantities(
            {name.format_map(slots): quantity.filled(**words) for name, quantity in self._of.items()},
            {name.format_map(slots): unit for name, unit in self.columns.items()},
        )

    def scalar(self, name: str, found: "Estimates", place: int = 0) -> Scalar:
        """The scalar of this name at one place; `UnknownName` (a `KeyError`) if it is not declared."""
        return self[name].scalar(found, place)

    def scalars(self, found: Mapping[str, "Estimates"], place: int = 0) -> dict[str, Scalar]:
        """The scalars of several estimates at one place, by name."""
        return {name: self.scalar(name, of, place) for name, of in found.items()}

    def table(self, columns: "Mapping[str, np.ndarray | Estimates]", caption: str = "", **units: str) -> Table:
        """A table of columns; estimates add interval, null and p. `units` are those of undeclared columns."""
        return self.stacked([columns], caption, **units)

    def stacked(
        self, parts: "Sequence[Mapping[str, np.ndarray | Estimates]]", caption: str = "", **units: str
    ) -> Table:
        """A table of parts with the same columns, one below the other."""
        known = {**PLACES, **self.columns, **{name: of.unit for name, of in self._of.items()}, **units}
        spread = [
            {
                name: column
                for given, of in part.items()
                for name, column in ({given: of} if isinstance(of, np.ndarray) else of.columns(given)).items()
            }
            for part in parts
        ]
        return Table.stacked(spread, {name: known[name] for name in parts[0] if name in known}, caption)

    def findings(self, probe: str, scalars: Mapping[str, Scalar], tables: Mapping[str, Table], **rest: Any) -> Findings:
        """The findings, with the declared headline, controls and facts of all numbers that were measured.

        `rest` holds further fields of `Findings`, and replaces these.
        """
        mine = {name: self._of[name] for name in self._of if name in scalars}
        declared: dict[str, Any] = {
            "headline": tuple(name for name, quantity in mine.items() if quantity.is_headline),
            "controls": {name: kept for name, q in mine.items() if (kept := tuple(_measured(q, scalars)))},
            "facts": {name: q.in_words(q.fact) for name, q in mine.items() if q.fact},
        }
        return Findings(probe, scalars, tables, **declared | rest)


def _measured(quantity: Quantity, scalars: Iterable[str]) -> Iterator[Control]:
    for control in quantity.controls:
        name = quantity.in_words(control.scalar)
        if name in scalars:
            yield replace(control, scalar=name)
