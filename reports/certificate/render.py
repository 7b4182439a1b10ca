"""The page of a certificate, drawn from its record alone, without scripts."""

from math import isfinite
from pathlib import Path
from typing import Any

from interp.certificates.verdicts import Count
from interp.records.record import RunRecord
from interp.system.foreign_files import readable

from ..page.render import page, write_page


def render(record: RunRecord, target: Path | None = None) -> Path:
    """Write the page as a file, by default beside the record, whole or not at all; returns its path."""
    fix = "The record was edited or written by another program; certify again."
    with readable(f"the page of the certificate {record.path}", fix, found="it lacks what a certificate has"):
        text = html(record)
    return write_page(target or record.page, text)


def html(record: RunRecord) -> str:
    """The page as text."""
    findings = record.findings["certificate"]
    return page(
        "certificate.html",
        record=record,
        certified=record.spec["certified"],
        rows=[*findings.tables["headlines"].rows()],
        simulations=[*findings.tables["worlds"].rows()],
        known=[*findings.tables["known"].rows()] if "known" in findings.tables else [],
        interval=interval,
        is_said=isfinite,
        place=place,
    )


def interval(row: dict[str, Any], name: str, n: str) -> tuple[float, float]:
    """The exact interval of a share of simulations."""
    return Count(round(row[name] * row[n]), row[n]).interval()


def place(share: float, most: float) -> float:
    """The position of a share on a drawing 100 wide that ends at `most`."""
    return round(100 * min(share / most, 1.0), 1)
