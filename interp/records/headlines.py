"""The headline numbers of a record together: p corrected over all of them, and their controls.

Correction: Benjamini and Hochberg, "Controlling the false discovery rate", J. R. Stat. Soc. B 57 (1995).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from interp.findings import Control, Findings, Scalar, Standing
from interp.formatting import DASH, p_value
from interp.records.labels import label

VERDICTS: Mapping[Standing, str] = {
    "above": "above its null", "below": "below its null", "within": "no different", "unjudged": "not tested",
}  # fmt: skip

OF_CONTROL: Mapping[Standing, str] = {
    "above": "significant", "below": "significant", "within": "not significant", "unjudged": "not tested",
}  # fmt: skip


@dataclass(frozen=True)
class Headline:
    """A headline number; `p_together` is its p corrected over the headlines of the record, None where it has none."""

    probe: str
    name: str
    scalar: Scalar
    p_together: float | None
    standing: Standing
    controls: tuple[tuple[Control, Scalar], ...] = ()

    @property
    def stands_out(self) -> bool:
        return self.standing in ("above", "below")

    @property
    def verdict(self) -> str:
        """The standing of the number, for a cell of a table."""
        if self.scalar.underpowered:
            return self.scalar.weakness
        if self.standing == "within" and self.objections:
            return "fails a control"
        side = self.scalar.unasked_side if self.standing == "within" else None
        if side is not None:
            return f"{side} its null; the question was {'below' if side == 'above' else 'above'}"
        return VERDICTS[self.standing]

    @property
    def cells(self) -> tuple[str, str, str, str, str, str]:
        """Name, value, interval, null, p corrected over the record, and verdict; a dash where there is none."""
        s = self.scalar
        interval = s.interval_text if s.interval else DASH
        p = DASH if self.p_together is None else p_value(self.p_together, s.is_p_least)
        return self.name, s.value_text, interval, s.null_text if s.null else DASH, p, self.verdict

    @property
    def without_controls(self) -> Standing:
        """The standing of the number without its controls."""
        return self.scalar.standing(self.p_together)

    @property
    def controls_in_words(self) -> tuple[str, ...]:
        """`holds without the first position: no (0.22 bits, p = 0.06)`, one for every control.

        If the number is not significant: `without the first position: significant (...)`.
        """
        if self.without_controls in ("above", "below"):
            verdicts = {"yes": "yes", "no": "no", "open": "not tested"}
            return tuple(f"holds {c.words}: {verdicts[self._answer(s)]} ({s.briefly})" for c, s in self.controls)
        return tuple(f"{c.words}: {OF_CONTROL[s.standing()]} ({s.briefly})" for c, s in self.controls)

    @property
    def objections(self) -> tuple[str, ...]:
        """`does not hold without the first position (...)`: essential controls against a significant number."""
        if self.without_controls not in ("above", "below"):
            return ()
        verdicts = {"no": "does not hold", "open": "could not be tested"}
        against = [(c, s) for c, s in self.controls if c.essential and self._answer(s) != "yes"]
        return tuple(f"{verdicts[self._answer(s)]} {c.words} ({s.briefly})" for c, s in against)

    @property
    def agreement(self) -> str:
        """How many controls agree: `2 of 3`; empty without controls or a verdict."""
        n = sum(self._answer(s) == "yes" for _, s in self.controls)
        return f"{n} of {len(self.controls)}" if self.controls and self.without_controls != "unjudged" else ""

    def _answer(self, control: Scalar) -> str:
        standing = control.standing()
        return "open" if standing == "unjudged" else "yes" if standing == self.without_controls else "no"


COLUMNS = ("number", "value", "95 % interval", "null", "p", "verdict")
"""The columns of a table of headline numbers, `Headline.cells`."""


def headlines(findings: Mapping[str, Findings]) -> tuple[Headline, ...]:
    """The headline numbers of several probes, in their order, with p corrected over all."""
    named = [(probe, name) for probe, found in findings.items() for name in found.headline]
    together = corrected([findings[probe][name].p for probe, name in named])
    return tuple(
        Headline(
            probe, name, findings[probe][name], p, findings[probe].standing(name, p),
            tuple((c, findings[probe][c.scalar]) for c in findings[probe].controls.get(name, ())),
        )
        for (probe, name), p in zip(named, together, strict=True)
    )  # fmt: skip


def corrected(p: Sequence[float | None]) -> list[float | None]:
    """p-values as Benjamini and Hochberg correct them; None where there is none.

    The k-th smallest of n is n/k times as large, and no larger than the next. (`scipy.stats` has this too, and takes
    longer to import than a page takes to draw.)
    """
    known = np.array([x for x in p if x is not None], dtype=np.float64)
    order = np.argsort(known)[::-1]
    ranks = np.arange(len(known), 0, -1)
    found = np.empty_like(known)
    found[order] = np.minimum.accumulate(known[order] * (len(known) / ranks)).clip(max=1.0)
    values = iter(found.tolist())
    return [None if x is None else next(values) for x in p]


def tried(findings: Mapping[str, Findings]) -> str:
    """How many numbers and p-values a record has, of which some are significant by chance."""
    scalars = [s for found in findings.values() for s in found.scalars.values()]
    in_tables = sum(
        int(np.isfinite(values).sum())
        for found in findings.values() for table in found.tables.values()
        for name, values in table.columns.items()
        if (name == "p" or name.endswith("_p")) and values.dtype.kind == "f"
    )  # fmt: skip
    n, n_p = len(scalars), sum(s.p is not None for s in scalars)
    numbers = f"{n:,} number{'s' * (n != 1)}, {n_p:,} of them with a p"
    return f"The record has {numbers}, and {in_tables:,} p-values in its tables."


def contradictions(findings: Mapping[str, Findings]) -> tuple[str, ...]:
    """Sentences on facts about which probes disagree, with values, and which number to trust.

    A number above its null supports its fact; within or below, it contradicts it. A supporting number with an essential
    control is to be trusted; without one the fact is open.
    """
    p_of = {(h.probe, h.name): h.p_together for h in headlines(findings)}
    by_fact: dict[str, list[tuple[str, str, Standing]]] = {}
    for probe, found in findings.items():
        for name, fact in found.facts.items():
            by_fact.setdefault(fact, []).append((probe, name, found.standing(name, p_of.get((probe, name)))))
    sentences = []
    for fact, numbers in by_fact.items():
        yes = [(probe, name) for probe, name, standing in numbers if standing == "above"]
        no = [(probe, name) for probe, name, standing in numbers if standing in ("within", "below")]
        if yes and no:
            tested = [_words(findings, p, n) for p, n in yes if findings[p].essential_controls(n)]
            trust = f"Trust {', '.join(tested)}, whose controls agree" if tested else "No control decides between them"
            sentences.append(
                f"Probes disagree on whether {fact}. Yes: {_with_values(findings, yes)}. "
                f"No: {_with_values(findings, no)}. {trust}."
            )
    return tuple(sentences)


def _with_values(findings: Mapping[str, Findings], named: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{_words(findings, p, n)} ({p}.{n}: {findings[p][n].briefly})" for p, n in named)


def _words(findings: Mapping[str, Findings], probe: str, name: str) -> str:
    return label(probe, name, findings[probe][name].meaning)
