"""Binding, elimination, refinement in one figure: the tables' own numbers, each over its own null."""

from dataclasses import replace

import numpy as np
import pytest
from interp.reports.page.calibration import the_tunnel
from interp.reports.page.render import html
from interp.reports.page.story import courses, story_figure

from tests.reports.everything import small_run
from tests.reports.parsed import parse

HOLDING = ("attention_entropy", "orthogonality", "qk_alignment", "manifold", "value_axis")


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("story"), *HOLDING)


def test_the_courses_are_the_columns_of_the_probes_tables(record):
    table = courses(record)
    found = {name: table.where(table["measure"] == name) for name in dict.fromkeys(table["measure"].tolist())}
    shares = record.findings["manifold"].tables["by_layer"]
    mine = found["refinement: PC1's share of value variance"]
    for name, column in {"value": "", "low": "_low", "null": "_null", "null_high": "_null_high"}.items():
        np.testing.assert_array_equal(mine[name], shares[f"pc1_share{column}"])
    told = record.findings["value_axis"].to_frame("by_layer")
    told = told.query("site == 'v' and axis == 'ridge' and target == 'next_entropy_bits' and nuisances == 'kept'")
    np.testing.assert_array_equal(found["refinement: R² of entropy from values"]["value"], told["r2"])
    attended = record.findings["attention_entropy"].to_frame("by_layer").query("positions == 'all'")
    np.testing.assert_array_equal(found["elimination: attention entropy (bits)"]["null"], attended["other_keys"])
    assert all(part["depth"].tolist() == [0, 0.5, 1] for part in found.values()) and len(found) == 5


def test_without_one_of_the_probes_there_is_no_figure(record):
    for missing in HOLDING:
        less = replace(record, findings={k: v for k, v in record.findings.items() if k != missing})
        assert courses(less) is None
    assert "page-story" not in html(less)


def test_each_panel_holds_the_model_over_its_null_and_the_tunnel_dashed(record):
    figure = story_figure(courses(record), "some model", the_tunnel().courses)
    drawn = list(figure.plot.data)
    for axis in ("y", "y2", "y3", "y4", "y5"):
        names = [trace.name for trace in drawn if trace.yaxis == axis and trace.name]
        assert names == ["null, shipped tunnel", "shipped tunnel", "null, 95 %", "null", "this model"]
    assert sum(trace.showlegend is not False and trace.name is not None for trace in drawn) == 5
    assert "some model" in figure.reading and "Orange is the shipped tunnel" in figure.reading
    alone = story_figure(courses(record), "tunnel", None)
    assert "Orange" not in alone.reading and "shipped tunnel" not in {trace.name for trace in alone.plot.data}


def test_the_page_of_another_model_shows_it_first_with_its_table(record):
    other = replace(record, model={**record.model, "name": "<i>other</i>", "fingerprint": "another"})
    page = parse(html(other))
    figures = [e.attributes["id"] for e in page.all("figure")]
    assert figures[0] == "page-story" and "table-page-story" in [e.attributes.get("id") for e in page.all("details")]
    assert "Blue is <i>other</i>" in page.text
    assert page.text.count("tunnel:bijection-gpt-neox binding: mean |cos| of columns of W_K") == 3
    own = parse(html(record))
    assert "page-story" in [e.attributes["id"] for e in own.all("figure")] and "Orange is" not in own.text
