"""Figures of the use of depth."""

from interp.findings import Findings
from interp.plotting import Chart
from interp.probe import Figure

_WORDS = {
    "posterior_kl": "KL from the exact posterior (bits)",
    "entropy_error": "entropy error (bits)",
    "next_kl": "KL from the whole model's prediction (bits)",
    "loss": "loss (bits)",
}
_READING = (
    "Error when only the first layers are kept, with 95 % bands. Below the curve of observations shown once, copies "
    "help at that depth. No null is drawn: compare with that curve; the table has the p of the gain."
)


def depth_figures(findings: Findings) -> tuple[Figure, ...]:
    """One figure for every measure; beside the exact posterior, the distance from the whole model adds nothing."""
    if "by_depth" not in findings.tables:
        return ()
    table = findings.tables["by_depth"]
    drawn = []
    for measure, title in _WORDS.items():
        if measure not in table or (measure == "next_kl" and "posterior_kl" in table):
            continue
        chart = Chart(table, "depth", "layers kept", title)
        for copies, mine, colour in chart.by("copies"):
            times = "once" if copies == 1 else f"{copies} times"
            shown = f"{mine.table['n_shown'][0]} observations shown {times}" if copies else "as drawn"
            mine.curve(measure, shown, colour)
        is_positive = bool((table[measure] > 0).all() and (table[f"{measure}_low"] > 0).all())
        chart.plot.update_yaxes(type="log" if is_positive else "linear")
        drawn.append(Figure(f"by_depth_{measure}", f"Error by depth: {title}", _READING, chart.plot, "by_depth"))
    return tuple(drawn)
