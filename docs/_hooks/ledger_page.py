"""The claims of the shipped ledgers as tables."""

import json
from collections import Counter
from pathlib import Path

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
            cell = row["cells"][0]
            outcomes[cell["outcome"]] += 1
            says = f"**{row['title']}.** {row['says']} {row.get('revised', '')}".rstrip()
            outcome = cell["outcome"] + (" at this size" if row.get("is_small") else "")
            earlier = cell.get("earlier")
            if earlier:
                outcome += f" (by its first rule: {earlier['outcome']})"
            rows.append((row["number"], says, outcome, cell["why"]))
        if rows:
            counted = ", ".join(f"{n} {outcome}" for outcome, n in outcomes.most_common())
            parts.append(f"{'Claims beyond the fifty. ' if is_beyond else ''}Outcomes: {counted}.")
            parts.append(table(("Claim", "What the paper says", "Outcome", "Why"), rows))
    return "\n\n".join(parts)
