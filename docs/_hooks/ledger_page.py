"""The claims of the shipped ledgers as tables and pictures."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from gallery import plotly_figure
from reference import table

from interp.plotting import NULL, VALUE, Chart
from interp.probe import Figure
from interp.registry import load_entry
from interp.table import Table

ROOT = Path(__file__).parents[2]


def picture(word: str) -> str:
    """Numbers of some rows, `newer/86/87`, with their intervals and what stands for chance."""
    paper, *numbers = word.split("/")
    rows = {str(row["number"]): row for row in _ledger(paper)["rows"]}
    shown = [
        (f"{number}: {part['label']}" + f" ({i})" * (len(part["numbers"]) > 1), each["scalar"])
        for number in numbers
        for part in rows[number]["cells"][0]["parts"]
        for i, each in enumerate(part["numbers"], 1)
        if each["scalar"]
    ][::-1]
    unit = shown[-1][1]["unit"]  # of the first number; others of another unit are left out
    labels, scalars = zip(*(each for each in shown if each[1]["unit"] == unit), strict=True)
    low, high = np.array([scalar["interval"] or [scalar["value"]] * 2 for scalar in scalars]).T
    found = {
        "value": np.array([scalar["value"] for scalar in scalars]), "value_low": low, "value_high": high,
        "null": np.array([scalar["null"]["value"] if scalar["null"] else np.nan for scalar in scalars]),
    }  # fmt: skip
    chart = Chart(Table(found, dict.fromkeys(found, unit)), "value", "" if unit == "1" else unit, "")
    chart.dots("null", "null", NULL, 9, y=labels, marker={"symbol": "x"})
    chart.dots("value", "measured", VALUE, 9, y=labels)
    chart.plot.update_layout(height=90 + 36 * len(labels), margin={"l": 300})
    figure = Figure("-".join(numbers), "", "95 % intervals; grey crosses: the null of each number.", chart.plot)
    themes = {theme: json.loads(load_entry("report", "figure")(figure, theme).to_json()) for theme in ("light", "dark")}
    return plotly_figure(themes, figure.reading)


def _ledger(paper: str) -> dict[str, Any]:
    """A shipped ledger, which is of one paper."""
    (found,) = json.loads((ROOT / "examples" / "ledger" / paper / "ledger.json").read_text())["papers"]
    return found


def claims(paper: str) -> str:
    """Every claim of a paper with its outcome and the reason for it."""
    found = _ledger(paper)
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
