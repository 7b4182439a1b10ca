"""The figures of the page on two real models: from the record that compares them, and from `examples/two-models`."""

import csv
import json
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import plotly.graph_objects as go
from gallery import plotly_figure
from plotly.subplots import make_subplots

from interp.plotting import NULL, PALETTE
from interp.probe import Figure
from interp.records.record import open_run
from interp.registry import load_entry

HERE = Path(__file__).parents[2] / "examples" / "two-models"
MODELS = ("SmolLM2-135M", "Gemma-3-270M")
_AXIS = "attention entropy, share of the largest"
_LONGEST = 1500

Row = dict[str, str]


def drawn(name: str) -> str:
    """One of the three figures."""
    figure = FIGURES[name]()
    themes = {theme: json.loads(load_entry("report", "figure")(figure, theme).to_json()) for theme in ("light", "dark")}
    return plotly_figure(themes, figure.reading)


def _pair() -> Figure:
    findings = open_run(HERE / "comparison").findings["comparison"]
    figures = {figure.name: figure for figure in load_entry("study", "comparison")().figures(findings)}
    return figures["numbers"]


@cache
def _rows() -> tuple[Row, ...]:
    with (HERE / "attention.csv").open(newline="") as file:
        return tuple(csv.DictReader(file))


def _where(**asked: str) -> list[Row]:
    return [row for row in _rows() if all(row[column] == value for column, value in asked.items())]


def _lengths() -> Figure:
    """A panel for each model, a line for each length; layers with full attention among windowed ones are squares."""
    plot = make_subplots(rows=1, cols=2, shared_yaxes=True, subplot_titles=MODELS)
    for col, model in enumerate(MODELS, start=1):
        lengths = dict.fromkeys(row["tokens"] for row in _where(model=model, change=""))
        for i, tokens in enumerate(lengths):
            _add(plot, _where(model=model, change="", tokens=tokens), f"{int(tokens):,} tokens", PALETTE[i], col)
    reading = (
        "Entropy of the attention of the last token over log2 of the keys it sees, the first position left out; means "
        "over heads, bars are 95 % intervals over 16 texts. Squares are layers with full attention among windowed ones."
    )
    return _laid_out(plot, "lengths", "Attention by layer, at five lengths of text", reading)


def _windows() -> Figure:
    """Both models on the longest texts, as they are and with the windows changed."""
    plot = make_subplots(rows=1, cols=2, shared_yaxes=True, subplot_titles=MODELS)
    for col, model in enumerate(MODELS, start=1):
        changes = dict.fromkeys(row["change"] for row in _where(model=model, tokens=str(_LONGEST)))
        for change in changes:
            colour = PALETTE[col] if change else NULL
            rows = _where(model=model, change=change, tokens=str(_LONGEST))
            _add(plot, rows, change or "as it is", colour, col, column="bits", is_shown=bool(change) or col == 1)
    reading = f"Entropy in bits over texts of {_LONGEST:,} tokens, read as above. Squares: full attention."
    return _laid_out(plot, "windows", "The same, with windows imposed and lifted", reading, "attention entropy (bits)")


def _add(
    plot: go.Figure, rows: Iterable[Row], name: str, colour: str, col: int, *, column: str = "share",
    is_shown: bool | None = None,
) -> None:  # fmt: skip
    rows = list(rows)
    value = [float(row[column]) for row in rows]
    error = {} if column != "share" else {"error_y": {
        "type": "data", "symmetric": False, "thickness": 1, "width": 0,
        "array": [float(row["high"]) - float(row["share"]) for row in rows],
        "arrayminus": [float(row["share"]) - float(row["low"]) for row in rows],
    }}  # fmt: skip
    is_mixed = len({row["kind"] for row in rows}) > 1
    symbols = ["square" if is_mixed and row["kind"] == "full" else "circle" for row in rows]
    plot.add_scatter(
        x=[int(row["layer"]) for row in rows], y=value, name=name, legendgroup=name, row=1, col=col,
        showlegend=col == 1 if is_shown is None else is_shown, mode="lines+markers", line={"color": colour},
        marker={"symbol": symbols, "size": [9 if symbol == "square" else 5 for symbol in symbols]}, **error,
    )  # fmt: skip


def _laid_out(plot: go.Figure, name: str, title: str, reading: str, axis: str = _AXIS) -> Figure:
    plot.update_xaxes(title_text="layer", showgrid=False, zeroline=False)
    plot.update_yaxes(title_text=axis, rangemode="tozero", col=1)
    plot.update_layout(height=420)
    return Figure(name, title, reading, plot)


FIGURES: dict[str, Callable[[], Figure]] = {"pair": _pair, "lengths": _lengths, "windows": _windows}
