"""Every figure of every probe says how to read it, has its data as a table, and shows its null or says why not."""

import numpy as np
import plotly.graph_objects as go
import pytest

from interp.findings import Findings
from interp.plotting import Chart, places
from interp.probe import Figure
from interp.registry import load_entry
from interp.table import Table, number_columns
from tests.probes.test_degenerate import READ_UNEDITED, noise, small
from tests.read_back import not_in_tables
from tests.reports.everything import small_run

COMPUTED = {*(f"map: {i} entropy axis" for i in (4, 5, 6)), "among_controls: 0 null: matched directions"}
"""What a figure works out from its points, a regression, which its own test holds; and what it draws in millionths."""


def null_is_shown_or_explained(figure) -> bool:
    """A trace (or the numbers written in it) is named a null, or the reading says where it is."""
    drawn = [str(trace.name) for trace in figure.plot.data] + [
        str(getattr(trace, "text", "")) for trace in figure.plot.data
    ]
    return any("null" in words for words in drawn) or "null" in figure.reading


def check(record) -> int:
    seen = 0
    for name, findings in record.findings.items():
        figures = load_entry("probe", name)(**record.parameters[name]).figures(findings)
        assert set(not_in_tables(findings, figures)) <= COMPUTED, name
        for figure in figures:
            what = f"{name}.{figure.name}"
            assert len(figure.reading.split()) >= 8 and figure.reading.rstrip().endswith("."), what
            assert figure.title and figure.table in findings.tables, what
            assert null_is_shown_or_explained(figure), what
            axes = figure.plot.layout
            assert axes.xaxis.title.text is not None and axes.yaxis.title.text is not None, what
            seen += 1
    return seen


def test_the_figures_of_the_quick_probes_are_read_with_their_null_and_their_table(tmp_path):
    assert check(small_run(tmp_path, "attention_entropy", "orthogonality", "components")) >= 12


@pytest.mark.slow
def test_the_figures_of_every_probe_are_read_with_their_null_and_their_table(tmp_path):
    assert check(small_run(tmp_path)) >= 45


@pytest.mark.parametrize("name", READ_UNEDITED)
def test_what_a_figure_draws_stands_in_its_tables(name):
    probe = small(name)
    findings = probe.analyse(noise(probe), {})
    assert set(not_in_tables(findings, probe.figures(findings))) <= COMPUTED


def test_what_stands_in_no_table_is_found():
    def drawn(table):
        chart = Chart(table, "layer", "layer", "x").profile("x")
        chart.dots("x", "dots")
        return [Figure("f", "title", "reading", chart.plot, "t")]

    low, high = np.array([0.0, 0.5, 0.2]), np.array([2.0, 2.5, 3.5])
    columns = {"layer": np.arange(3), **number_columns("x", high - 1, (low, high), (low - 1, low - 2, low))}
    table = Table(columns, {"layer": "layer", "x": "1"})
    findings = Findings("p", tables={"t": table})
    assert not_in_tables(findings, drawn(table)) == []
    faults = {
        "x": ["f: 3 measured", "f: 4 dots"], "x_low": ["f: 2 None", "f: 4 dots"], "x_high": ["f: 2 None", "f: 4 dots"],
        "x_null": ["f: 1 null"], "x_null_low": ["f: 0 None"], "x_null_high": ["f: 0 None"],
    }  # fmt: skip
    for column, found in faults.items():
        changed = table.with_column(column, table[column] + 0.001, "1")
        assert not_in_tables(findings, drawn(changed)) == found, column


def test_the_check_can_fail():
    bare = Figure("bare", "Bare", "A line that goes from here to there.", go.Figure(go.Scatter(y=[1, 2], name="line")))
    assert not null_is_shown_or_explained(bare)


def test_a_null_that_was_not_measured_is_not_in_the_legend():
    names = ("x", "x_low", "x_high", "x_null", "x_null_low", "x_null_high")
    columns = {"layer": np.arange(3)} | {n: np.full(3, np.nan if "null" in n else 1.0) for n in names}
    chart = Chart(Table(columns, dict.fromkeys(columns, "1")), "layer", "layer", "x").profile("x")
    assert [trace.name for trace in chart.plot.data if trace.name] == ["measured"]


def test_points_of_texts_are_named_by_them_and_others_by_sequence_and_position():
    columns = {"prompt": np.array([4, 7]), "position": np.array([0, 3])}
    units = dict.fromkeys(columns, "index")
    assert places(Table(columns, units)) == ["sequence 4, position 0", "sequence 7, position 3"]
    assert places(Table({**columns, "text": np.array(["a", "b"])}, {**units, "text": "label"})) == ["a", "b"]
