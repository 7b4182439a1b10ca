"""A ledger in words: outcomes, methods, and citation."""

from collections.abc import Iterator, Sequence

from interp.formatting import counted, short_name
from interp.ledger.ledger import ClaimOutcome, LedgerFile, PaperFile
from interp.ledger.replicate import JOINT, TRAINED
from interp.ledger.rules import OUTCOMES, Outcome

from ..page.about import listed, software_entry, tool

SIGNS: dict[Outcome, str] = {
    "supported": "✓",
    "contradicted": "✕",
    "no different from the null": "○",
    "underpowered": "◔",
    "not measurable here": "–",
}
"""A sign for each outcome, which needs no colour."""

MEANINGS: dict[Outcome, str] = {
    "supported": "the whole 95 % interval lies in the region that the claim names",
    "contradicted": "no part of the interval lies in it",
    "no different from the null": "p, corrected over the paper's rows, is 0.05 or more, or without a p the value lies "
    "in the null's band; asked first, where the claim is of something that is there",
    "underpowered": "the interval reaches across the bound, or the probe says that it has too little to go on",
    "not measurable here": "a number is missing that the claim needs, and the row says why",
}

_LONGEST = 12
"""The most entries of a list in the citation; more are counted."""


def title(ledger: LedgerFile) -> str:
    """The heading of the page."""
    return ledger.papers[0].title if len(ledger.papers) == 1 else "Three papers, claim by claim"


def headline(paper: PaperFile) -> str:
    """The outcomes of a paper's claims, in one sentence."""
    return " ".join(f"{heading}: {said}" if heading else said for heading, said in _headlines(paper))


def _headlines(paper: PaperFile) -> Iterator[tuple[str, str]]:
    for heading, rows in paper.parts.items():
        n, cells = len(rows), [cell for row in rows for cell in row.cells]
        claims = f"{n} claim{'s' if n != 1 else ''}"
        if len(paper.models) <= 1:
            about = TRAINED if any(cell.model == TRAINED for cell in cells) else "".join(map(short_name, paper.models))
            of = f" for {about}" if about else ""
            yield heading, f"{claims}{of}: {_counted(cells, n)}."
            continue
        parts = []
        for model in (model for model in _models_of(paper) if any(cell.model == model for cell in cells)):
            mine = [cell for cell in cells if cell.model == model]
            parts.append(f"{short_name(model)}: {_counted(mine, len(mine))}")
        yield heading, f"{claims}. {'. '.join(parts)}."


def columns(paper: PaperFile) -> list[str]:
    """The columns of the table: the models and others; one nameless column if there are none."""
    return _models_of(paper) or [""]


def _models_of(paper: PaperFile) -> list[str]:
    """The models, then all together and networks trained for a claim, if a cell is of these."""
    measured = {cell.model for row in paper.rows for cell in row.cells}
    return [*paper.models, *(other for other in (JOINT, TRAINED) if other in measured)]


def caution(ledger: LedgerFile) -> str:
    """A warning at scales with shortened trainings; else empty."""
    if ledger.scale not in ("tiny", "smoke"):
        return ""
    return (
        f"At the scale {ledger.scale} trainings are cut short and samples small: outcomes show how the ledger works, "
        "and are no evidence for or against a claim about a trained network."
    )


def methods(ledger: LedgerFile) -> str:
    """Sentences for a methods section."""
    made = _rests_on(ledger)
    sentences = [
        f"Using {tool(ledger.environment)}, we measured the claims of "
        + listed([f"{paper.citation} ({len(paper.rows)} claims)" for paper in ledger.papers])
        + f" at the scale {ledger.scale}.",
        "A claim counts as supported where the 95 % interval of its measure lies in the region that the claim names, "
        "as contradicted where none of it does, and as no different from the null where p, by Benjamini and Hochberg "
        "over the paper's rows, is 0.05 or more; every rule stands beside its row.",
        *(headline(paper) for paper in ledger.papers),
        f"Intervals: {made['intervals']}. Nulls: {made['nulls']}. n: {made['n']}. Weights: {made['weights']}.",
    ]
    return " ".join(sentences)


def bibtex(ledger: LedgerFile) -> str:
    """A BibTeX entry whose note identifies this ledger."""
    names = "+".join(paper.name for paper in ledger.papers)
    made = (f"{what}: {said}" for what, said in _rests_on(ledger).items())
    note = [f"Ledger of {names} at the scale {ledger.scale}", *made]
    return software_entry(f"ledger-{names.replace('+', '-')}", ledger.environment, ledger.created, note)


def _counted(cells: Sequence[ClaimOutcome], n: int) -> str:
    counts: dict[Outcome, int] = {outcome: sum(cell.outcome == outcome for cell in cells) for outcome in OUTCOMES}
    return listed([f"{count} {outcome}" for outcome, count in counts.items() if count]) or f"{n} not asked"


def _some(words: Sequence[str]) -> str:
    kept = list(dict.fromkeys(words))
    more = f"; and {len(kept) - _LONGEST} more" if len(kept) > _LONGEST else ""
    return ("; ".join(kept[:_LONGEST]) + more) or "none"


def _rests_on(ledger: LedgerFile) -> dict[str, str]:
    cells = [cell for paper in ledger.papers for row in paper.rows for cell in row.cells]
    numbers = [number for cell in cells for part in cell.parts if part.outcome is not None for number in part.numbers]
    scalars = [number.scalar for number in numbers if number.scalar]
    few = [models for number in numbers if 0 < len(models := number.models) <= 3]
    words = {
        "n": [counted(s.n, s.n_unit) for s in scalars if s.n is not None],
        "intervals": [s.interval_method for s in scalars if s.interval and s.interval_method],
        "nulls": [s.null.name for s in scalars if s.null],
        "weights": [f"{short_name(name)} {fingerprint[:16]}" for models in few for name, fingerprint in models],
    }
    return {what: _some(said) for what, said in words.items()}
