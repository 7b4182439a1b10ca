"""Figures of the attention entropy: the curve over depth with its references, and every head on its own."""

from interp.findings import Findings
from interp.plotting import NULL, PALETTE, VALUE, Chart, head_map
from interp.probe import Figure

_PLACES = {"scored": "the scored positions", "all": "all positions"}
_LINES = (
    ("uniform", "null: uniform row", NULL, "dash"),
    ("other_keys", "null: shuffled keys", PALETTE[1], "dot"),
    ("no_first", "without the first position", PALETTE[2], "dashdot"),
    ("entropy", "entropy", VALUE, "solid"),
)
_CURVE_READING = (
    "Blue falls where attention narrows. The gap between blue and orange (shuffled keys: another prompt's keys at the "
    "same positions) is due to this prompt's content. The null is uniform attention."
)
_HEADS_READING = (
    "One square per head: dark heads attend to a single key; yellow, the end of the scale, is the null of uniform "
    "attention. Layers differ only if they do so by more than the heads within a layer."
)


def entropy_figures(findings: Findings) -> tuple[Figure, ...]:
    """For each kind of position the curve and the heads."""
    figures: list[Figure] = []
    by_place = (findings.tables[name].groups("positions") for name in ("by_layer", "by_head"))
    for (where, layers), (_, heads) in zip(*by_place, strict=True):
        place = _PLACES[where]
        chart = Chart(layers, "layer", "layer", "attention entropy (bits)")
        for line in _LINES:
            chart.curve(*line)
        chart.plot.update_yaxes(rangemode="tozero")
        squares = head_map(heads, heads["entropy"], "bits", float(heads["uniform"].max()))
        title = f"Attention entropy over depth, {place}"
        figures.append(Figure(f"entropy_{where}", title, _CURVE_READING, chart.plot, "by_layer"))
        title = f"Entropy of every head, {place}"
        figures.append(Figure(f"heads_{where}", title, _HEADS_READING, squares, "by_head"))
    return tuple(figures)
