"""The figure of the probe `depth_use`, from its findings alone."""

from interp.drawing import add_curve, blank, coloured
from interp.findings import Findings
from interp.probe import Figure
from interp.table import Table

_WORDS = {
    "posterior_kl": "KL from the exact posterior (bits)",
    "entropy_error": "entropy error (bits)",
    "next_kl": "KL from the whole model's prediction (bits)",
    "loss": "loss (bits)",
}


def depth_figures(findings: Findings) -> tuple[Figure, ...]:
    """One figure for every measure of the table."""
    if "by_depth" not in findings.tables:
        return ()
    table = findings.tables["by_depth"]
    return tuple(_figure(table, name) for name in _WORDS if name in table and name != _redundant(table))


def _redundant(table: Table) -> str:
    """Beside the exact posterior, the distance from the whole model adds nothing."""
    return "next_kl" if "posterior_kl" in table else ""


def _figure(table: Table, measure: str) -> Figure:
    plot = blank("layers kept", _WORDS[measure])
    for copies, mine, colour in coloured(table, "copies"):
        times = "once" if copies == 1 else f"{copies} times"
        shown = f"{mine['n_shown'][0]} observations shown {times}" if copies else "as drawn"
        add_curve(plot, mine["depth"], mine, measure, shown, colour)
    plot.update_xaxes(dtick=1)
    is_positive = bool((table[measure] > 0).all() and (table[f"{measure}_low"] > 0).all())
    plot.update_yaxes(type="log" if is_positive else "linear")
    reading = (
        "Error when only the first layers are kept, with 95 % bands. If observations are shown several times, a curve "
        "below that of once means that copies help at that depth. No null is drawn: compare with the curve of once; "
        "the table has the p of the gain."
    )
    return Figure(f"by_depth_{measure}", f"Error by depth: {_WORDS[measure]}", reading, plot, "by_depth")
