"""Pictures of what each null is: what was measured, one draw of the null, and many draws beside the measured value.

The data are made up; the computation is that of the null in its smallest form.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import plotly.graph_objects as go
from gallery import plotly_figure
from plotly.subplots import make_subplots

from interp.plotting import NULL, PALETTE
from interp.probe import Figure
from interp.registry import load_entry

INK, GREY = PALETTE[0], NULL
N_DRAWS = 500


@dataclass(frozen=True)
class Picture:
    """The two panels of traces, the titles above them, the statistic, and its value in data and in draws."""

    measured: list[go.Trace]
    drawn: list[go.Trace]
    titles: tuple[str, str]
    axes: tuple[str, str]
    statistic: str
    value: float
    null: list[float] = field(repr=False)


def picture(name: str) -> str:
    """The picture of a null, as HTML."""
    shown = PICTURES[name](np.random.default_rng(7))
    plot = make_subplots(1, 3, subplot_titles=(*shown.titles, f"{N_DRAWS} draws"), horizontal_spacing=0.09)
    for column, traces in ((1, shown.measured), (2, shown.drawn)):
        plot.add_traces(traces, rows=1, cols=column)
        plot.update_xaxes(title=shown.axes[0], row=1, col=column)
        plot.update_yaxes(title=shown.axes[1] if column == 1 else None, row=1, col=column)
    plot.add_histogram(x=shown.null, nbinsx=30, marker_color=GREY, name="null", row=1, col=3)
    plot.add_vline(x=shown.value, line={"color": INK, "width": 3}, row=1, col=3)
    plot.update_xaxes(title=shown.statistic, row=1, col=3)
    plot.update_layout(height=300, showlegend=False)
    themes = {}
    for theme in ("light", "dark"):
        drawn = load_entry("report", "figure")(Figure(name, "", "", plot), theme)
        themes[theme] = json.loads(drawn.to_json())
    return plotly_figure(themes)


def _points(x: np.ndarray, y: np.ndarray, color: str) -> go.Scatter:
    return go.Scatter(x=x, y=y, mode="markers", marker={"size": 5, "color": color})


def _exchanged(rng: np.random.Generator) -> Picture:
    axis = rng.normal(size=80)
    entropy = 2.5 + 0.8 * axis + rng.normal(size=80)

    def rho(y: np.ndarray) -> float:
        return float(abs(np.corrcoef(axis.argsort().argsort(), y.argsort().argsort())[0, 1]))

    shuffled = rng.permutation(entropy)
    return Picture(
        [_points(axis, entropy, INK)], [_points(axis, shuffled, GREY)],
        ("prompts as measured", "entropies permuted"), ("PC1", "entropy, bits"),
        "|Spearman ρ|", rho(entropy), [rho(rng.permutation(entropy)) for _ in range(N_DRAWS)],
    )  # fmt: skip


def _gaussian(rng: np.random.Generator) -> Picture:
    n, d = 75, 64
    scale = np.linspace(1.5, 0.7, d)
    cloud = rng.normal(size=(n, d)) * scale + 3.0 * np.outer(rng.normal(size=n), rng.normal(size=d) / np.sqrt(d))

    def spectrum(rows: np.ndarray) -> np.ndarray:
        return np.linalg.svd(rows - rows.mean(0), compute_uv=False)[:20] ** 2 / ((rows - rows.mean(0)) ** 2).sum()

    def null() -> np.ndarray:
        return spectrum(rng.normal(size=(n, d)) * cloud.std(0))

    places = np.arange(1, 21)
    return Picture(
        [go.Bar(x=places, y=spectrum(cloud), marker_color=INK)], [go.Bar(x=places, y=null(), marker_color=GREY)],
        ("75 prompts as measured", "75 Gaussian points"), ("component", "share of variance"),
        "PC1 + PC2 share", float(spectrum(cloud)[:2].sum()), [float(null()[:2].sum()) for _ in range(N_DRAWS)],
    )  # fmt: skip


def _signs(rng: np.random.Generator) -> Picture:
    gains = rng.normal(0.15, 0.4, size=40)
    order = np.arange(1, 41)

    def flipped() -> np.ndarray:
        return gains * rng.choice([-1, 1], size=40)

    return Picture(
        [go.Bar(x=order, y=gains, marker_color=INK)], [go.Bar(x=order, y=flipped(), marker_color=GREY)],
        ("difference in each prompt", "with random signs"), ("prompt", "difference, bits"),
        "mean difference, bits", float(gains.mean()), [float(flipped().mean()) for _ in range(N_DRAWS)],
    )  # fmt: skip


def _keys(rng: np.random.Generator) -> Picture:
    n, d = 24, 16
    keys = rng.normal(size=(n, d))
    queries = 0.7 * keys[rng.permutation(n)] + rng.normal(size=(n, d))

    def attention(of: np.ndarray) -> np.ndarray:
        scores = np.where(np.tri(n, dtype=bool), queries @ of.T / np.sqrt(d) * 1.6, -np.inf)
        weights = np.exp(scores - scores.max(1, keepdims=True))
        return weights / weights.sum(1, keepdims=True)

    def entropy(rows: np.ndarray) -> float:
        return float(-(rows * np.log2(np.where(rows > 0, rows, 1))).sum(1).mean())

    def other() -> np.ndarray:
        return attention(rng.normal(size=(n, d)))

    def map_of(rows: np.ndarray) -> go.Heatmap:
        return go.Heatmap(z=rows, colorscale="Blues", showscale=False, zmin=0, zmax=0.6)

    return Picture(
        [map_of(attention(keys))], [map_of(other())],
        ("a prompt with its own keys", "with another prompt's keys"), ("key position", "query position"),
        "attention entropy, bits", entropy(attention(keys)), [entropy(other()) for _ in range(N_DRAWS)],
    )  # fmt: skip


def _turned(rng: np.random.Generator) -> Picture:
    first = rng.normal(size=(50, 2)) * (1.6, 0.35) + (1.0, 0.2)
    second = rng.normal(size=(50, 2)) * (1.4, 0.35) + (0.9, 0.4)

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.abs((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).mean())

    def turned() -> np.ndarray:
        angle = rng.uniform(0, 2 * np.pi)
        return second @ np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])

    second_turned = turned()
    return Picture(
        [_points(*first.T, INK), _points(*second.T, PALETTE[1])],
        [_points(*first.T, INK), _points(*second_turned.T, GREY)],
        ("keys of two heads", "one cloud rotated at random"), ("dimension 1", "dimension 2"),
        "mean |cos| between the heads", cosine(first, second), [cosine(first, turned()) for _ in range(N_DRAWS)],
    )  # fmt: skip


def _controls(rng: np.random.Generator) -> Picture:
    doses = np.linspace(0, 1, 9)

    def curve(strength: float) -> np.ndarray:
        return strength * doses**2 + rng.normal(0, 0.002, size=9) * doses

    def line(y: np.ndarray, color: str) -> go.Scatter:
        return go.Scatter(x=doses, y=y, mode="lines", line={"color": color, "width": 2})

    strengths = rng.gamma(6, 0.006, size=N_DRAWS)
    top = 0.1
    frame = go.Scatter(x=[0, 0], y=[0, 0.11], mode="markers", marker_opacity=0)  # the same axis in both panels
    return Picture(
        [line(curve(top), INK), frame], [*(line(curve(s), GREY) for s in strengths[:19]), frame],
        ("the axis removed", "19 control axes removed"), ("dose", "KL from the unedited model, bits"),
        "KL at dose 1, bits", top, list(strengths),
    )  # fmt: skip


def _untrained(rng: np.random.Generator) -> Picture:
    depth = np.arange(12)

    def profile(drop: float) -> np.ndarray:
        return 4.4 - drop * depth / 11 + rng.normal(0, 0.06, size=12)

    def line(y: np.ndarray, color: str) -> go.Scatter:
        return go.Scatter(x=depth, y=y, mode="lines+markers", line={"color": color})

    trained = profile(1.6)
    flat = go.Scatter(x=[0, 0], y=[2.4, 4.8], mode="markers", marker_opacity=0)
    return Picture(
        [line(trained, INK), flat], [*(line(profile(0.1), GREY) for _ in range(3)), flat],
        ("trained weights", "untrained weights, 3 seeds"), ("layer", "attention entropy, bits"),
        "entropy, first − last layer", float(trained[0] - trained[-1]),
        [float(p[0] - p[-1]) for p in (profile(0.1) for _ in range(N_DRAWS))],
    )  # fmt: skip


PICTURES: dict[str, Callable[[np.random.Generator], Picture]] = {
    "exchanged": _exchanged,
    "gaussian": _gaussian,
    "signs": _signs,
    "keys": _keys,
    "turned": _turned,
    "controls": _controls,
    "untrained": _untrained,
}
