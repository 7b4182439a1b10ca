"""The figures of the components probe, from its findings alone."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from interp.drawing import PALETTE, VALUE, add_curve, add_null_curve, add_profile, blank
from interp.findings import Findings
from interp.probe import Figure
from interp.table import Table

if TYPE_CHECKING:
    import plotly.graph_objects as go

_BLOCKS = {"attn": "attention", "mlp": "feed-forward"}
_EXPERTS = {
    "expert_domain_information": "at a given position",
    "expert_domain_information_beyond_token": "at a given position and token",
}


def figures(findings: Findings) -> tuple[Figure, ...]:
    """Sizes, shares of the final stream and attribution by layer; the lens by depth."""
    layers, depths = findings.tables["by_layer"], findings.tables["by_depth"]
    drawn = [
        Figure(
            "lens_kl",
            "When the prediction is made",
            "KL of the final prediction from what each depth decodes to, with its 95 % band over prompts: where it "
            "falls, the prediction is being made. It ends at zero by construction. "
            "No null is drawn: at any depth, what has been written so far decides.",
            _curve(depths, "lens_kl", "KL from the final prediction (bits)"),
            "by_depth",
        ),
        Figure(
            "lens_entropy",
            "How certain each depth is",
            "Entropy of what the residual stream decodes to, with its 95 % band over prompts. No null is drawn: "
            "this is a description, and a stream that decodes to nothing would lie at log2 of the vocabulary.",
            _curve(depths, "lens_entropy", "entropy of the decoded distribution (bits)"),
            "by_depth",
        ),
        Figure(
            "attribution",
            "Which block makes the prediction",
            "What each block adds to the logit of the predicted token, above the mean token's; below zero it argues "
            "against it. The null is the zero line: a block that favours no token.",
            _blocks(layers, "logit", "added to the logit (logits)"),
            "by_layer",
        ),
        Figure(
            "final_shares",
            "Who wrote the final residual stream",
            "Shares of the stream after the last layer. Grey is what updates of the same size have with random signs: "
            "outside of it they agree, or disagree, with the rest more than by chance.",
            _blocks(layers, "final_share", "share of the final stream (fraction)"),
            "by_layer",
        ),
        Figure(
            "sizes",
            "Size of the updates",
            "Length of each update over that of the stream it is added to. No null is drawn: a "
            "length is a description.",
            _blocks(layers, "relative", "length / length of the stream"),
            "by_layer",
        ),
    ]
    if "posterior_kl" in depths:
        plot = blank("residual depth", "KL from the exact posterior (bits)")
        add_profile(plot, depths, "depth", "posterior_kl")
        reading = (
            "How far each depth is from the ideal observer. Grey: posteriors of other sequences at the same positions; "
            "only below it does the stream hold a belief about this sequence."
        )
        drawn.insert(0, Figure("posterior_kl", "Belief by depth", reading, plot, "by_depth"))
    if "experts_by_layer" in findings.tables:
        drawn.append(_experts(findings.tables["experts_by_layer"]))
    return tuple(drawn)


def _experts(table: Table) -> Figure:
    undefined = "" if set(_EXPERTS) <= set(table.columns) else " What has no curve is undefined; its number says why."
    return Figure(
        "experts",
        "Do the chosen experts depend on the domain?",
        "Information about the prompt's domain in the experts of a layer, in bits, with 95 % intervals. Grey: routing "
        "permuted between prompts at the same positions (and tokens); its mean is subtracted. By position alone a "
        "router of tokens looks like one of domains: experts divide domains where the curve at a given position and "
        f"token lies above grey.{undefined}",
        _lines(table, _EXPERTS, "information on the domain (bits)", "routing permuted"),
        "experts_by_layer",
    )


def _curve(table: Table, column: str, title: str) -> "go.Figure":
    plot = blank("residual depth", title)
    add_curve(plot, table["depth"], table, column, "measured", VALUE)
    plot.update_yaxes(rangemode="tozero")
    return plot


def _blocks(table: Table, statistic: str, title: str) -> "go.Figure":
    """Both blocks over the layers."""
    labels = {f"{block}_{statistic}": label for block, label in _BLOCKS.items()}
    return _lines(table, labels, title, "random signs")


def _lines(table: Table, labels: Mapping[str, str], title: str, null: str) -> "go.Figure":
    """Those of the columns that there are over the layers, each with its null where it has one."""
    plot = blank("layer", title)
    layer = table["layer"]
    for (column, label), colour, dash in zip(labels.items(), PALETTE, ("dash", "dot"), strict=False):
        if f"{column}_null" in table:
            add_null_curve(plot, layer, table, column, f"null: {null}, {label}", dash)
        if column in table:
            add_curve(plot, layer, table, column, label, colour)
    return plot
