"""The claims of the shipped ledgers as tables and pictures."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from gallery import plotly_figure
from reference import table

from interp.drawing import NULL, VALUE, blank
from interp.probe import Figure
from interp.registry import load_entry

ROOT = Path(__file__).parents[2]


def picture(word: str) -> str:
    """Numbers of some rows, `newer/86/87`, with their intervals and what stands for chance."""
    paper, *numbers = word.split("/")
    ledger = json.loads((ROOT / "examples" / "ledger" / paper / "ledger.json").read_text())
    rows = {str(row["number"]): row for row in ledger["papers"][0]["rows"]}
    shown = [
        (f"{number}: {part['label']}" + f" ({i})" * (len(part["numbers"]) > 1), each["scalar"])
        for number in numbers
        for part in rows[number]["cells"][0]["parts"]
        for i, each in enumerate(part["numbers"], 1)
        if each["scalar"]
    ][::-1]
    unit = shown[-1][1]["unit"]  # of the first number; others of another unit are left out
    labels, scalars = zip(*(each for each in shown if each[1]["unit"] == unit), strict=True)
    plot = blank("" if unit == "1" else unit, "")
    nulls = [scalar["null"]["value"] if scalar["null"] else None for scalar in scalars]
    ends = [scalar["interval"] or [scalar["value"]] * 2 for scalar in scalars]
    values = [scalar["value"] for scalar in scalars]
    plot.add_scatter(x=nulls, y=labels, mode="markers", name="null", marker={"color": NULL, "symbol": "x", "size": 9})
    plot.add_scatter(
        x=values, y=labels, mode="markers", name="measured", marker={"color": VALUE, "size": 9},
        error_x={"type": "data", "symmetric": False, "array": [e[1] - v for v, e in zip(values, ends, strict=True)],
                 "arrayminus": [v - e[0] for v, e in zip(values, ends, strict=True)]},
    )  # fmt: skip
    plot.update_layout(height=90 + 36 * len(labels), margin={"l": 300})
    figure = Figure("-".join(numbers), "", "95 % intervals; grey crosses: the null of each number.", plot)
    themes = {theme: json.loads(load_entry("report", "figure")(figure, theme).to_json()) for theme in ("light", "dark")}
    return plotly_figure(themes, figure.reading)


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
