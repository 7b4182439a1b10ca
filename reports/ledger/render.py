"""The page of a ledger, drawn from `ledger.json` alone.

It links the pages of records that exist where the ledger names them, and else shows their commands.
"""

from functools import partial
from pathlib import Path
from urllib.parse import quote

from interp.ledger.ledger import ClaimOutcome, LedgerFile, MeasuredNumber, PaperFile
from interp.ledger.rules import ORDER_OF_A_ROW

from ..page.render import page, write_page
from ..page.sections import Number
from ..page.security import address
from ..page.strip import strip
from . import in_words as ledger_words


def render(ledger: LedgerFile, folder: Path) -> Path:
    """Write the page as `ledger.html` into a folder, whole or not at all; returns its path."""
    return write_page(folder / "ledger.html", html(ledger, folder))


def html(ledger: LedgerFile, folder: Path) -> str:
    """The page as text."""
    return page(
        "ledger.html",
        ["static/ledger.css"],
        ["static/page.js"],
        ledger=ledger,
        words=ledger_words,
        order=ORDER_OF_A_ROW,
        links={paper.name: partial(page_of, folder, paper) for paper in ledger.papers},
        drawn=drawn,
        cell_of=cell_of,
        first_number=first_number,
    )


def page_of(folder: Path, paper: PaperFile, number: MeasuredNumber, model: str) -> str:
    """The address of the page with a number, relative to the ledger's; empty if there is none."""
    for source in paper.sources:
        is_it = source.name == number.source and source.model in ("", model) and source.record
        if is_it and (folder / source.record / "report.html").is_file():
            return f"{address(source.record)}/report.html#probe-{quote(number.of)}"
    return ""


def drawn(number: MeasuredNumber) -> Number:
    """A number with its strip, for the macros of the record's page."""
    assert number.scalar is not None
    return Number(number.of, number.field, number.scalar, strip(number.scalar))


def cell_of(cells: list[ClaimOutcome], model: str) -> ClaimOutcome | None:
    """The cell of a model in a row."""
    return next((cell for cell in cells if cell.model == model), None)


def first_number(cell: ClaimOutcome) -> MeasuredNumber | None:
    """The number that a cell shows: of a part with the cell's outcome, else of another part with an outcome."""
    parts = sorted(cell.parts, key=lambda part: (part.outcome != cell.outcome, part.outcome is None))
    return next((number for part in parts for number in part.numbers if number.scalar is not None), None)
