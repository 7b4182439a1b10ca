"""The figures of the components probe, from its findings alone."""

from collections.abc import Mapping

from interp.findings import Findings
from interp.plotting import PALETTE, Chart
from interp.probe import Figure
from interp.table import Table

from .quantities import BLOCKS, EXPERTS

_DEPTHS = {
    "lens_kl": (
        "When the prediction is made", "KL from the final prediction (bits)",
        "KL of the final prediction from what each depth decodes to, with 95 % bands over prompts. Where it falls, the "
        "prediction is made. It ends at 0 by construction. No null is drawn: the whole network before a depth decides.",
    ),
    "lens_entropy": (
        "How certain each depth is", "entropy of the decoded distribution (bits)",
        "Entropy of what the residual stream decodes to, with 95 % bands over prompts. No null is drawn: this is a "
        "description. A stream that decodes to nothing lies at log2 of the vocabulary.",
    ),
}  # fmt: skip
_BLOCKS = {
    "attribution": (
        "Which block makes the prediction", "logit", "added to the logit (logits)",
        "What each block adds to the logit of the predicted token, relative to the mean token. A block below 0 argues "
        "against the prediction. The null is 0: a block that favours no token.",
    ),
    "final_shares": (
        "Who wrote the final residual stream", "final_share", "share of the final stream (fraction)",
        "Shares of the stream after the last layer. The null: updates of the same sizes with random signs. "
        "Above it, a block agrees with the others more than by chance; below it, less.",
    ),
}  # fmt: skip
_EXPERTS = {name: f"at a given {by}" for name, by in EXPERTS.items()}


def component_figures(findings: Findings) -> tuple[Figure, ...]:
    """The belief by depth where it is known, the lens by depth; attribution and shares by layer; experts."""
    layers, depths = findings.tables["by_layer"], findings.tables["by_depth"]
    drawn = []
    if "posterior_kl" in depths:
        chart = Chart(depths, "depth", "residual depth", "KL from the exact posterior (bits)").profile("posterior_kl")
        reading = (
            "Distance of each depth from the exact posterior. The null: posteriors of other sequences at the "
            "same positions. Below it, the stream knows something of this sequence."
        )
        drawn.append(Figure("posterior_kl", "Belief by depth", reading, chart.plot, "by_depth"))
    for name, (title, axis, reading) in _DEPTHS.items():
        chart = Chart(depths, "depth", "residual depth", axis)
        chart.curve(name, "measured")
        chart.plot.update_yaxes(rangemode="tozero")
        drawn.append(Figure(name, title, reading, chart.plot, "by_depth"))
    for name, (title, statistic, axis, reading) in _BLOCKS.items():
        labels = {f"{block}_{statistic}": label for block, label in BLOCKS.items()}
        drawn.append(Figure(name, title, reading, _lines(layers, labels, axis, "random signs").plot, "by_layer"))
    if "experts_by_layer" in findings.tables:
        table = findings.tables["experts_by_layer"]
        undefined = "" if set(_EXPERTS) <= set(table.columns) else " A missing curve is undefined; its number says why."
        reading = (
            "How many bits a layer's choice of experts says about the prompt's domain, with 95 % intervals. The "
            "null: routing permuted between prompts at the same positions (and tokens); its mean is subtracted. "
            f"Experts divide domains where the curve at a given position and token lies above the null.{undefined}"
        )
        chart = _lines(table, _EXPERTS, "information on the domain (bits)", "routing permuted")
        title = "Do the chosen experts depend on the domain?"
        drawn.append(Figure("experts", title, reading, chart.plot, "experts_by_layer"))
    return tuple(drawn)


def _lines(table: Table, labels: Mapping[str, str], title: str, null: str) -> Chart:
    """The existing columns over the layers, each with its null where it has one."""
    chart = Chart(table, "layer", "layer", title)
    for (column, label), colour, dash in zip(labels.items(), PALETTE, ("dash", "dot"), strict=False):
        if f"{column}_null" in table:
            chart.null(column, f"null: {null}, {label}", dash)
        if column in table:
            chart.curve(column, label, colour)
    return chart
