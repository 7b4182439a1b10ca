"""The map of an activation patching: the recovered share by layer and position."""

from typing import TYPE_CHECKING, Literal

import numpy as np

from interp.probe import Figure

from .prepare import themed

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.running.patching import PatchingMap


def patching(found: "PatchingMap", theme: Literal["light", "dark"] = "light") -> "go.Figure":
    """Recovered share by layer and position; a cross marks p ≤ 0.05, corrected over the map."""
    import plotly.graph_objects as go

    words = [f"{at} {found.corrupted_tokens[at]!r}" for at in found.positions]
    layers = [str(layer) for layer in found.layers]
    most = float(np.abs(found.recovered).max()) or 1.0
    drawn = go.Figure(
        go.Heatmap(
            z=found.recovered, x=words, y=layers, zmin=-most, zmax=most, zmid=0, colorscale="RdBu_r",
            customdata=found.p, colorbar={"title": {"text": "recovered"}},
            hovertemplate="layer %{y}, %{x}<br>recovered %{z:.2f}, p %{customdata:.2f}<extra></extra>",
        )
    )  # fmt: skip
    i, j = np.nonzero(found.p <= 0.05)
    drawn.add_scatter(
        x=[words[at] for at in j], y=[layers[at] for at in i], mode="markers", name="p ≤ 0.05 over the map",
        marker={"symbol": "x-thin", "size": 8, "line": {"width": 1.5, "color": "#000000"}}, hoverinfo="skip",
        showlegend=bool(len(i)),
    )  # fmt: skip
    drawn.update_layout(
        xaxis={"title": {"text": "position and corrupted token"}, "type": "category"},
        yaxis={"title": {"text": "depth" if found.site == "resid" else "layer"}, "type": "category"},
    )
    title = f"What the clean {found.site} brings back of the answer {found.answer!r}"
    return themed(Figure("patching", title, "1 is the clean prompt, 0 the corrupted one.", drawn), theme)
