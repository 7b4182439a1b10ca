"""How records, findings and captures show themselves in a notebook: small tables, escaped, with no colours set."""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from interp.findings import Findings, Scalar

if TYPE_CHECKING:
    from interp.capture import Capture
    from interp.record import RunRecord


def record_html(record: "RunRecord") -> str:
    """The headline numbers of every probe, and where the page is."""
    name = record.model.get("name") or record.spec.get("study") or "unnamed"
    n, unit = record.prompts.get("n"), record.prompts.get("unit", "prompt")
    read = f", {n:,} {unit}s of {record.prompts.get('name', '')}" if n else ""
    rows = [
        (probe, name, *_cells(findings.scalars[name]))
        for probe, findings in record.findings.items()
        for name in findings.headline
    ]
    where = f"Written to {record.path}; " if record.path else "Not written to a folder; "
    further = where + "`record.show()` draws the page, `record.findings[probe]` holds all numbers and tables."
    return _block(f"{name}{read} ({record.status})", ("probe", *_HEAD), rows, further)


def findings_html(findings: Findings) -> str:
    """The headline numbers, and what else there is under which name."""
    names = findings.headline or tuple(findings.scalars)
    rows = [(name, *_cells(findings.scalars[name])) for name in names]
    further = f"{len(findings.scalars) - len(names)} further numbers: `findings.to_frame()`. "
    if findings.tables:
        further += f"Tables: {', '.join(findings.tables)} (`findings.to_frame(name)`)."
    return _block(findings.probe, _HEAD, rows, further)


def capture_html(capture: "Capture") -> str:
    """What was captured: one row a need with the shape of its array."""
    rows = [(need.site, type(need.fold).__name__, need.at, _shapes(folded)) for need, folded in capture.arrays.items()]
    n = len(capture.prompts.prompts)
    of = f"{n:,} {capture.prompts.unit}s, {capture.rows.n_rows:,} rows"
    title = f"{capture.model.name} on {capture.prompts.name}: {of}"
    return _block(title, ("site", "fold", "at", "arrays"), rows, f"Columns: {', '.join(capture.rows.columns)}.")


_HEAD = ("number", "value", "95 % interval", "null", "p", "n")


def _shapes(folded: Mapping[str, np.ndarray]) -> str:
    return "; ".join(f"{name} {list(array.shape)}" for name, array in folded.items())


def _cells(s: Scalar) -> tuple[str, ...]:
    unit = "" if s.unit == "1" else f" {s.unit}"
    interval = f"{_short(s.interval[0])} to {_short(s.interval[1])}" if s.interval else f"none: {s.interval_reason}"
    null = f"{_short(s.null.value)} ({_short(s.null.band[0])} to {_short(s.null.band[1])})" if s.null else (
        f"none: {s.null_reason}"
    )  # fmt: skip
    weak = " (underpowered)" if s.underpowered else ""
    n = "" if s.n is None else f"{s.n:,} {s.n_unit}s"
    return f"{_short(s.value)}{unit}{weak}", interval, null, "" if s.p is None else _short(s.p), n


def _short(x: float) -> str:
    return "n/a" if math.isnan(x) else f"{x:.3g}"


def _block(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], further: str) -> str:
    """A titled table; every text is escaped, and no colour is set."""
    cells = "".join(f"<tr>{''.join(f'<td>{html.escape(x)}</td>' for x in row)}</tr>" for row in rows)
    heads = "".join(f"<th>{html.escape(x)}</th>" for x in head)
    return (
        f"<div><p><b>{html.escape(title)}</b></p><table><thead><tr>{heads}</tr></thead><tbody>{cells}</tbody></table>"
        f"<p>{html.escape(further)}</p></div>"
    )
