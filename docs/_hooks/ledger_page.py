"""The claims of the shipped ledgers as tables."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from reference import table

ROOT = Path(__file__).parents[2]


def claims(paper: str) -> str:
    """Every claim of a paper with its outcome and the reason for it."""
    ledger = json.loads((ROOT / "examples" / "ledger" / paper / "ledger.json").read_text())
    (found,) = ledger["papers"]
    parts = [f"{found['citation']}. {found['note']}"]
    for is_beyond in (False, True):
        rows, outcomes = [], Counter()
        for row in (row for row in found["rows"] if row.get("is_beyond", False) == is_beyond):
            outcomes.update(cell["outcome"] for cell in row["cells"])
            says = f"**{row['title']}.** {row['says']} {row.get('revised', '')}".rstrip()
            told = [_told(cell, row) for cell in row["cells"]]
            rows.append((row["number"], says, *map("<br>".join, zip(*told, strict=True))))
        if rows:
            counted = ", ".join(f"{n} {outcome}" for outcome, n in outcomes.most_common())
            parts.append(f"{'Claims beyond the fifty. ' if is_beyond else ''}Outcomes: {counted}.")
            parts.append(table(("Claim", "What the paper says", "Outcome", "Why"), rows))
    return "\n\n".join(parts)


def _told(cell: dict[str, Any], row: dict[str, Any]) -> tuple[str, str]:
    """The outcome and why, with the model where there are several."""
    model = f"{Path(cell['model']).name}: " if len(row["cells"]) > 1 else ""
    size = " at this size" if row.get("is_small") else ""
    earlier = f" (by its first rule: {cell['earlier']['outcome']})" if cell.get("earlier") else ""
    return f"{model}{cell['outcome']}{size}{earlier}", f"{model}{cell['why']}"
