"""A small probe with one figure of each kind that pages draw, and a record that holds its findings."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from interp.capture import Capture
from interp.findings import Findings, Null, Scalar
from interp.need import Need
from interp.plotting import Chart, scale_of
from interp.probe import Figure, Probe, Readout
from interp.records.record import RunRecord
from interp.table import Table

N_LAYERS, N_POINTS = 6, 75
DOMAINS = ("mathematics", "code", "philosophy", "general", "fiction", "prose")


@dataclass(frozen=True)
class Pictures(Probe):
    """Draws what its tables hold; `kind` adds a figure that the page's bundle cannot draw."""

    kind: str = "flat"

    name: ClassVar[str] = "pictures"
    question: ClassVar[str] = "Do the values lie near a curve, and is it ordered by the model's uncertainty?"

    @property
    def needs(self) -> tuple[Need, ...]:
        return ()

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        return made_findings()

    def figures(self, findings: Findings) -> tuple[Figure, ...]:
        import plotly.graph_objects as go

        points, layers = findings.tables["points"], findings.tables["by_layer"]
        drawn = [_cloud(points, layers), _profile(layers), _matrix(), _panels(points)]
        if self.kind == "solid":
            solid = go.Figure(go.Scatter3d(x=[0.0], y=[0.0], z=[0.0]))
            drawn.append(Figure("solid", "Three axes", "Not to be drawn.", solid))
        return tuple(drawn)


def _cloud(points: Table, layers: Table) -> Figure:
    import plotly.graph_objects as go

    def trace(layer: int) -> go.Scatter:
        chart = Chart(points.where(points["layer"] == layer), "pc1", "PC1", "PC2")
        chart.points("pc2", "prompts", scale_of(chart.table["entropy_bits"], "entropy", "bits"), 9)
        return chart.plot.data[0]

    x, y = np.random.default_rng(3).normal(size=(2, 75))
    grey = {"color": "rgba(128,128,128,0.35)", "size": 6}
    null = go.Scatter(x=x, y=y, mode="markers", name="null", hoverinfo="skip", marker=grey)
    n = len(layers["layer"])
    figure = go.Figure(
        [null, trace(n - 1)], frames=[go.Frame(name=str(i), data=[trace(i)], traces=[1]) for i in range(n)]
    )
    at_once = {"mode": "immediate", "frame": {"duration": 0, "redraw": False}, "transition": {"duration": 0}}
    steps = [{"label": str(i), "method": "animate", "args": [[str(i)], at_once]} for i in range(n)]
    figure.update_layout(
        xaxis_title="PC1",
        yaxis_title="PC2",
        sliders=[{"active": n - 1, "currentvalue": {"prefix": "layer "}, "steps": steps}],
    )
    reading = "Each point is a prompt; colour is the entropy of its next token. Grey is a Gaussian of the same size."
    return Figure("map", "Value manifold, layer by layer", reading, figure, "points")


def _profile(layers: Table) -> Figure:
    chart = Chart(layers, "layer", "layer", "share of variance")
    chart.curve("share", "PC1+PC2")
    chart.line("null", "null", "dot")
    reading = "Above the dotted line is more than a Gaussian gives."
    return Figure("depth", "Share by depth", reading, chart.plot, "by_layer")


def _matrix() -> Figure:
    import plotly.graph_objects as go

    z = np.random.default_rng(1).random((8, 8))
    figure = go.Figure(go.Heatmap(z=z, colorbar={"title": {"text": "bits"}}))
    figure.update_layout(xaxis_title="head", yaxis_title="layer")
    return Figure("matrix", "Attention entropy, layer by head", "Dark heads attend to few keys.", figure)


def _panels(points: Table) -> Figure:
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    figure = make_subplots(1, 3, subplot_titles=list(DOMAINS[:3]))
    for i, domain in enumerate(DOMAINS[:3]):
        here = points.where(points["domain"] == domain)
        figure.add_trace(go.Bar(x=here["prompt"][:8], y=here["entropy_bits"][:8], name=domain), row=1, col=i + 1)
    return Figure("panels", "Three domains", "Bars are single prompts.", figure, "points")


def made_findings(texts: tuple[str, ...] = ()) -> Findings:
    """Findings with every kind of scalar: tested, untested, underpowered, without interval, without null."""
    rng = np.random.default_rng(0)
    entropy = np.sort(rng.uniform(0.1, 9.0, N_POINTS))
    bent = np.tile(entropy / 4.5 - 1, N_LAYERS)
    layer = np.repeat(np.arange(N_LAYERS), N_POINTS)
    text = [texts[i] if i < len(texts) else f"the prompt that has number {i} ends here" for i in range(N_POINTS)]
    points = {
        "layer": layer,
        "prompt": np.tile(np.arange(N_POINTS), N_LAYERS),
        "pc1": bent * (layer + 1) + rng.normal(scale=0.4, size=len(layer)),
        "pc2": bent**2 * (layer + 1) - 1 + rng.normal(scale=0.4, size=len(layer)),
        "entropy_bits": np.tile(entropy, N_LAYERS),
        "domain": np.tile(np.array([DOMAINS[i % 6] for i in range(N_POINTS)]), N_LAYERS),
        "text": np.tile(np.array(text, dtype=object), N_LAYERS),
    }
    units = {
        "layer": "layer",
        "prompt": "index",
        "pc1": "activation",
        "pc2": "activation",
        "entropy_bits": "bits",
        "domain": "label",
        "text": "label",
    }
    share = np.array([0.12, 0.2, 0.31, 0.38, 0.4, 0.47])
    by_layer = {
        "layer": np.arange(N_LAYERS),
        "share": share,
        "share_low": share - 0.04,
        "share_high": share + 0.05,
        "null": np.full(N_LAYERS, 0.042),
        "p": np.array([0.4, 0.02, 0.00004123, np.nan, 0.001, 0.001]),
    }
    return Findings(
        probe="pictures",
        scalars=_scalars(),
        tables={
            "points": Table(points, units, "Coordinates of the prompts on the first principal axes."),
            "by_layer": Table(by_layer, dict.fromkeys(by_layer, "1") | {"layer": "layer", "p": "probability"}),
            "loose": Table(
                {"key": np.array(["a", "b"]), "kept": np.array([True, False])}, {"key": "label", "kept": "label"}
            ),
        },
        notes=("The sign of an axis is arbitrary.",),
        headline=("share", "dimension", "correlation", "collapse"),
    )


def _scalars() -> dict[str, Scalar]:
    jackknife = "jackknife over prompts, logit scale"
    return {
        "share": Scalar(
            0.4712,
            "1",
            (0.43, 0.52),
            jackknife,
            null=Null("Gaussian, own variances", 0.042, (0.0404, 0.0441)),
            n=75,
            n_distinct_rows=75,
            meaning="Share of the values' variance that lies in their first two directions.",
        ),
        "dimension": Scalar(
            6.82,
            "dimensions",
            (5.9, 7.8),
            "jackknife over prompts, log scale",
            null=Null("Gaussian, own variances", 69.1, (68.2, 70.3)),
            n=75,
            meaning="How many directions the values use (participation ratio).",
        ),
        "correlation": Scalar(
            0.81,
            "1",
            (0.71, 0.88),
            "bootstrap over prompts within strata",
            null=Null("entropies permuted", 0.09, (0.0, 0.31)),
            p=0.002,
            p_over="layers",
            n=75,
            meaning="How well the first axis orders the prompts by the entropy of their next token.",
        ),
        "collapse": Scalar(
            0.06,
            "1",
            interval_reason="too few prompts of one domain",
            null_reason="too few prompts of one domain",
            p=0.21,
            n=12,
            n_distinct_rows=9,
            underpowered=True,
            meaning="Extra share when prompts come from one domain.",
        ),
        "lost": Scalar(float("nan"), "bits", interval_reason="no rows", null_reason="no rows"),
        "plain": Scalar(
            1.9, "bits", (1.5, 2.3), jackknife, null=Null("uniform", 6.2, (6.2, 6.2)), p=0.04, meaning="Sink entropy."
        ),
    }


def made_record(findings: Findings | None = None, **changes: Any) -> RunRecord:
    """A finished run of the probe `pictures`."""
    parameters = {"kind": "flat"}
    meaning = "logits with our attention function equal eager attention"
    checks = ({"name": "eager", "meaning": meaning, "passed": True, "value": 3.1e-7, "bound": 1e-4},)
    record = RunRecord(
        created="2026-03-04T05:06:07+00:00",
        spec={
            "model": "pythia-410m",
            "probes": {"pictures": parameters},
            "prompts": "mixed",
            "n_pool": 400,
            "seed": 7,
            "command": "interp run --model pythia-410m --probe pictures --prompts mixed --n-pool 400 --seed 7",
        },
        spec_hash="0123456789abcdef",
        model={
            "name": "pythia-410m",
            "source": "EleutherAI/pythia-410m",
            "family": "gpt_neox",
            "n_layers": 24,
            "d_model": 1024,
            "n_parameters": 405_334_016,
            "dtype": "float32",
            "device": "cpu",
            "revision": "main",
            "fingerprint": "9fb1c1f4a2d04c7e",
        },
        prompts={
            "name": "mixed",
            "source": "six domains of our own writing",
            "unit": "prompt",
            "n": 400,
            "hash": "ab" * 32,
            "draw": {"per_quintile": 15, "n_drawn": 75, "note": ""},
            "window": 64,
            "n_truncated": 3,
        },
        environment={
            "python": "3.11.2",
            "packages": {"interp": "0.1.0", "torch": "2.13.0"},
            "code": {"revision": "0123456789abcdef0123", "dirty": True},
        },
        selfcheck=checks,
        timings={"load": 3.2, "capture": 41.0, "probe pictures": 2.31},
        findings={"pictures": findings or replace(made_findings(), parameters=parameters)},
    )
    return replace(record, **changes)
