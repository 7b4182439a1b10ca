"""Figures on their way to the page: nothing of the data is read as markup, long traces are thinned and say so."""

import base64
import re
import warnings
from importlib.metadata import version

import numpy as np
import plotly.graph_objects as go
import pytest
from interp.reports.page.render import PLOTLY
from interp.reports.plotly.prepare import N_POINTS, TRACE_TYPES, prepare, themed, undrawable
from interp.reports.plotly.theme import SCHEMES
from plotly.subplots import make_subplots

from interp.probe import Figure
from tests.paths import ROOT

MARKUP = "<b>bold</b> & <a href='http://x.example'>x</a>"
SHOWN = "&lt;b&gt;bold&lt;/b&gt; &amp; &lt;a href='http://x.example'&gt;x&lt;/a&gt;"


def decoded(array) -> np.ndarray:
    """A typed array as plotly.js reads it."""
    assert set(array) <= {"dtype", "bdata", "shape"}
    flat = np.frombuffer(base64.b64decode(array["bdata"]), dtype={"f4": "<f4", "i4": "<i4"}[array["dtype"]])
    return flat.reshape([int(n) for n in array["shape"].split(", ")]) if "shape" in array else flat


def test_numbers_and_ticks_arrive_as_the_bundle_draws_them():
    bundled = set(re.findall(r'moduleType:"trace",name:"([a-z0-9]+)"', PLOTLY.read_text()))
    assert bundled == TRACE_TYPES
    for values in (np.array([2**40, 3]), np.array([1.5, np.nan, -3.0]), np.arange(5), np.arange(6.0).reshape(2, 3)):
        trace = go.Heatmap(z=values) if values.ndim == 2 else go.Scatter(y=values)
        found = prepare(go.Figure(trace)).content["data"][0]
        np.testing.assert_allclose(decoded(found["z" if values.ndim == 2 else "y"]), values, rtol=1e-7)
    with np.errstate(over="raise"), warnings.catch_warnings(action="error"):
        beyond = prepare(go.Figure(go.Scatter(y=np.array([1e200, 1.0])))).content["data"][0]["y"]
    assert decoded(beyond).tolist() == [np.inf, 1.0]
    assert prepare(go.Figure(go.Scatter(y=[1.0, float("nan")]))).content["data"][0]["y"] == [1.0, None]
    layout = {"xaxis": {"title": {"text": "layer"}}, "yaxis": {"title": {"text": "head"}}}
    made = prepare(go.Figure(go.Heatmap(z=np.zeros((30, 4))), layout=layout)).content["layout"]
    assert made["xaxis"]["dtick"] == 1 and "dtick" not in made["yaxis"]


@pytest.mark.skipif(
    f"plotly=={version('plotly')}\n" not in (ROOT / "constraints.txt").read_text(),
    reason="plotly is not of the pinned version, which the bundle is taken from",
)
def test_the_vendored_bundle_is_the_plotly_js_of_the_python_library():
    from plotly.offline import get_plotlyjs_version

    found = re.search(r"plotly.js \(cartesian - minified\) v([\d.]+)", PLOTLY.read_text()[:300])
    assert found is not None and found[1] == get_plotlyjs_version() and found[1] in PLOTLY.name
    assert (PLOTLY.parent / "plotly-LICENSE.txt").read_text().startswith("MIT License")


@pytest.mark.parametrize("trace", [go.Scatter3d(), go.Scattergl(), go.Surface()])
def test_a_trace_beyond_the_bundle_is_named(trace):
    assert f"traces of the kind {trace.type};" in (undrawable(go.Figure(trace)) or "")
    assert trace.type in (undrawable(go.Figure(frames=[go.Frame(data=[trace])])) or "")
    assert undrawable(go.Figure([go.Scatter(), go.Heatmap(), go.Bar()])) is None


@pytest.mark.parametrize(
    "trace",
    [go.Scatter(x=[0, 1], y=[np.nan, np.nan]), go.Scatter(x=[], y=[]), go.Bar(x=["a"], y=[None]), go.Box(y=[np.inf]),
     go.Heatmap(z=np.full((2, 2), np.nan)), go.Pie(labels=["a"], values=[np.nan])],
)  # fmt: skip
def test_a_figure_without_a_value_says_so_on_the_page_and_in_a_notebook(trace):
    said, known = "None of its values is a finite number.", go.Scatter(x=["a"], y=[1.0])
    for plot in (go.Figure(trace), go.Figure(frames=[go.Frame(data=[trace])])):
        assert undrawable(plot) == said
        assert [a.text for a in themed(Figure("f", "F", "", plot), "dark").layout.annotations] == [said]
    for plot in (go.Figure([trace, known]), go.Figure(trace, frames=[go.Frame(data=[known])])):
        assert undrawable(plot) is None and not themed(Figure("f", "F", "", plot), "dark").layout.annotations


def test_data_is_shown_to_the_letter_wherever_it_stands():
    figure = go.Figure(
        go.Scatter(
            x=[MARKUP], y=[1], name=MARKUP, customdata=[[MARKUP, 1.0]], text=[MARKUP], hovertext=[MARKUP],
            hovertemplate=[MARKUP],
        )
    )  # fmt: skip
    figure.update_layout(xaxis={"ticktext": [MARKUP], "tickvals": [0], "categoryarray": [MARKUP]})
    content = prepare(figure).content
    trace = content["data"][0]
    assert trace["x"] == [SHOWN] and trace["name"] == SHOWN and trace["customdata"] == [[SHOWN, 1.0]]
    assert trace["text"] == [SHOWN] and trace["hovertext"] == [SHOWN] and trace["hovertemplate"] == [SHOWN]
    assert content["layout"]["xaxis"]["ticktext"] == [SHOWN] == content["layout"]["xaxis"]["categoryarray"]


def test_words_of_probes_keep_bare_tags_line_breaks_and_signs():
    figure = go.Figure(go.Scatter(y=[1], hovertemplate="<b>%{y}</b><br><a href='x'>y</a><extra></extra>"))
    figure.update_layout(xaxis_title="H<sub>2</sub><script>", annotations=[{"text": "<i>n</i><img src=x>"}])
    content = prepare(figure).content
    assert content["data"][0]["hovertemplate"] == "<b>%{y}</b><br>&lt;a href='x'&gt;y&lt;/a&gt;<extra></extra>"
    assert content["layout"]["xaxis"]["title"]["text"] == "H<sub>2</sub>&lt;script&gt;"
    assert content["layout"]["annotations"][0]["text"] == "<i>n</i>&lt;img src=x&gt;"
    figure = go.Figure(go.Scatter(y=[1], text=["&lt;b&gt; &amp;amp;<br>2 bits <u>"]))
    assert prepare(figure).content["data"][0]["text"] == ["&lt;b&gt; &amp;amp;<br>2 bits &lt;u&gt;"]
    figure = go.Figure(go.Scatter(y=[1], hoverinfo="y"), layout={"yaxis": {"tickformat": ">5.1f"}})
    assert prepare(figure).content["layout"]["yaxis"]["tickformat"] == ">5.1f"
    figure = go.Figure(go.Scatter(y=[1]), frames=[go.Frame(name=MARKUP, data=[go.Scatter(customdata=[MARKUP])])])
    frame = prepare(figure).content["frames"][0]
    assert frame["data"][0]["customdata"] == [SHOWN] and frame["name"] == SHOWN


def test_long_prompts_and_traces_are_cut_evenly():
    prompt = " ".join(f"word{i}" for i in range(200))
    (shown,) = prepare(go.Figure(go.Scatter(y=[1], customdata=[prompt]))).content["data"][0]["customdata"]
    lines = shown.split("<br>")
    assert len(lines) == 6 and max(map(len, lines)) <= 64 and shown.startswith("word0 word1") and shown.endswith("…")
    positions = np.tile(np.arange(12), 500)  # every third row would be positions 0, 3, 6 and 9 alone
    plot = prepare(go.Figure(go.Scatter(x=positions, y=positions, mode="markers")))
    counts = np.bincount(decoded(plot.content["data"][0]["x"]), minlength=12)
    share = N_POINTS / 6000  # hypergeometric: of 6,000 with 500 of a kind
    deviation = np.sqrt(500 * share * (1 - share) * (1 - 500 / 6000))
    assert np.all(np.abs(counts - 500 * share) < 5 * deviation)
    y = np.arange(9 * N_POINTS)
    kept = decoded(prepare(go.Figure(go.Scatter(y=y, mode="lines"))).content["data"][0]["y"])
    assert kept[0] == 0 and kept[-1] == len(y) - 1 and set(np.diff(kept)) <= {8, 9, 10}
    figure = go.Figure([go.Scatter(y=np.zeros(N_POINTS)), go.Histogram(x=np.zeros(3 * N_POINTS))])
    plot = prepare(figure)
    assert plot.thinned == () and len(decoded(plot.content["data"][1]["x"])) == 3 * N_POINTS


def test_markers_are_thinned_together_with_everything_that_belongs_to_them():
    n = 5 * N_POINTS
    order = np.arange(n)
    trace = go.Scatter(
        x=order, y=order, mode="markers", name="rows", customdata=[str(i) for i in order],
        marker={"color": order.astype(float), "size": 4},
    )  # fmt: skip
    plot = prepare(go.Figure(trace))
    drawn = plot.content["data"][0]
    kept = decoded(drawn["x"])
    assert len(kept) == N_POINTS == len(set(kept)) and np.all(np.diff(kept) > 0)
    assert drawn["customdata"] == [str(i) for i in kept]
    np.testing.assert_array_equal(decoded(drawn["marker"]["color"]), kept)
    assert drawn["marker"]["size"] == 4
    assert plot.thinned == (f"{N_POINTS:,} of the {n:,} points of “rows” are drawn; the table holds them all.",)


def test_layouts_titles_menus_and_panels_are_those_of_the_page():
    figure = go.Figure(go.Scatter(y=[1]))
    figure.update_layout(
        paper_bgcolor="white", plot_bgcolor="white", margin={"l": 90}, title_text="t", height=300,
        legend={"x": 1.1, "y": 0, "title": {"text": "which"}},
    )  # fmt: skip
    layout = prepare(figure).content["layout"]
    assert layout == {"title": {"text": "t"}, "height": 300, "legend": {"title": {"text": "which"}}}
    figure = go.Figure(go.Scatter(y=[1]), layout={"yaxis": {"title": {"text": "correlation " * 5}}})
    title = prepare(figure).content["layout"]["yaxis"]["title"]["text"]
    assert title == "correlation correlation correlation<br>correlation correlation"
    assert prepare(make_subplots(2, 3)).n_columns == 3
    assert prepare(go.Figure(go.Scatter(y=[1]))).n_columns == 1


def test_sliders_and_menus_leave_the_layout_and_keep_their_calls():
    steps = [
        {"label": f"<{i}>", "method": "restyle", "args": [{"visible": np.array([True, False])}, [0]]} for i in "ab"
    ]
    slider = {"active": 1, "currentvalue": {"prefix": "layer: "}, "steps": steps}
    figure = go.Figure(
        go.Scatter(y=[1]), layout={"sliders": [slider], "updatemenus": [{"name": "number", "buttons": steps}]}
    )
    content = prepare(figure).content
    assert not {"sliders", "updatemenus"} & set(content["layout"])
    first, second = content["controls"]
    assert (first["kind"], first["label"], first["active"]) == ("slider", "layer", 1)
    assert first["steps"][0] == {"label": "<a>", "method": "restyle", "args": [{"visible": "10"}, [0]]}
    assert (second["kind"], second["label"]) == ("menu", "number") and len(second["steps"]) == 2


@pytest.mark.parametrize(
    ("x", "expected"),
    [(np.arange(6), 1), (np.arange(40), None), (np.arange(6) / 2, None), (np.array(["a", "b"]), None)],
)
def test_only_a_few_whole_numbers_get_a_tick_each(x, expected):
    figure = go.Figure(go.Scatter(x=x, y=np.ones(len(x))), layout={"xaxis": {"title": {"text": "layer"}}})
    assert prepare(figure).content["layout"]["xaxis"].get("dtick") == expected


@pytest.mark.parametrize(("y", "expected"), [([0.02, 0.3, 5.0], "D2"), ([1e-4, 0.0, np.nan, 9.0], 1), ([0.0], "D2")])
def test_a_logarithmic_axis_writes_whole_numbers_and_not_more_than_fit(y, expected):
    figure = go.Figure(go.Scatter(y=y), layout={"yaxis": {"type": "log"}})
    axis = prepare(figure).content["layout"]["yaxis"]
    assert axis["dtick"] == expected and axis["tickformat"] == "~g"
    chosen = {"type": "log", "tickvals": [1, 2], "ticktext": ["a", "b"]}
    assert "dtick" not in prepare(go.Figure(go.Scatter(y=y), layout={"yaxis": chosen})).content["layout"]["yaxis"]


def test_notebooks_have_the_colours_of_their_theme_and_escape_as_the_page():
    from interp.plotting import PALETTE, faded

    trace = go.Scatter(y=[1], line={"color": PALETTE[1]}, fillcolor=faded(PALETTE[1], 0.18), name=PALETTE[1])
    for theme, scheme in SCHEMES.items():
        (shown,) = themed(Figure("f", "F", "Read it so.", go.Figure(trace)), theme).data
        assert shown.line.color == scheme.series[1] and shown.name == PALETTE[1]
        assert shown.fillcolor == faded(scheme.series[1], 0.18)
    layout = {
        "updatemenus": [{"buttons": [{"args": [{"visible": [True]}, {"yaxis.title.text": "<b>&lt;i&gt;</b><a>"}]}]}],
    }
    content = prepare(go.Figure(go.Scatter(y=[1]), layout=layout)).content
    (step,) = content["controls"][0]["steps"]
    assert step["args"] == [{"visible": "1"}, {"yaxis.title.text": "<b>&lt;i&gt;</b>&lt;a&gt;"}]
    x = np.arange(3, dtype=np.float64) / 3
    drawn = themed(Figure("f", "a <b>title</b>", "", go.Figure(go.Scatter(x=x, y=[MARKUP] * 3, name=MARKUP))), "light")
    assert drawn.data[0].name == SHOWN and drawn.data[0].y[0] == SHOWN
    assert drawn.layout.title.text == "a &lt;b&gt;title&lt;/b&gt;"
    np.testing.assert_array_equal(drawn.data[0].x, x)
