"""A bar on a terminal and in a notebook, plain lines in a log, nothing where quiet was asked for."""

import io
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from interp.system import progress
from interp.system.progress import announce, reporting, stage

CELL = """
import warnings
from tqdm import TqdmWarning
from interp.system.progress import reporting, stage
warnings.simplefilter("error", TqdmWarning)
with stage("run 2 of 3"), reporting("reading a model") as report:
    for done in range(1, 6):
        report(done, 5)
"""


@pytest.mark.slow
def test_a_notebook_shows_a_bar_and_keeps_it():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = "".join(str(output) for output in notebook.cells[0].outputs)
    assert "run 2 of 3, reading a model" in shown and ("5/5" in shown or "widget-view" in shown)


@pytest.fixture
def now(monkeypatch) -> list[float]:
    """The time, which passes where a test says so."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: 5000.0 + now[0])
    return now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_a_bar_and_is_left_empty(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with reporting("reading a model") as report:
        report(2, 8)
        report(8, 8)
    shown = terminal.getvalue()
    assert "reading a model:   0%" in shown and "0/8" in shown
    assert not shown.split("\r")[-1].strip()


def test_a_log_has_a_line_at_the_start_and_at_the_end_and_few_between(capsys, now):
    with reporting("reading a model") as report:
        for done, now[0] in enumerate([10.0, 11.0, 12.0, 21.0, 22.0]):
            report(2 * done, 8)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "reading a model: 0 of 8 after 10 s",
        "reading a model: 6 of 8 after 21 s, about 4 s left",
        "reading a model: 8 of 8 after 22 s",
    ]


def test_time_left_is_told_by_the_work_since_the_first_report_of_each_count(capsys, now):
    """Conditions that share a pass are reported together; what comes before the first pass comes once."""
    with reporting("conditions") as report:
        for done in range(1, 17):  # 100 s of preparation, then four at once every 20 s
            now[0] = 100.0 + 20 * ((done - 1) // 4)
            report(done, 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "conditions: 1 of 100 after 100 s"
    assert lines[1:4] == [
        f"conditions: {done} of 100 after {spent} s, about {5 * (100 - done)} s left"
        for done, spent in ((5, 120), (9, 140), (13, 160))
    ]
    with reporting("conditions") as report:
        for now[0], done, total in ((200.0, 1, 2), (220.0, 2, 2), (240.0, 1, 11), (260.0, 6, 11)):
            report(done, total)
    assert capsys.readouterr().err.splitlines()[-1].endswith(", about 20 s left")
    with reporting("reading a model", quiet=True) as report:
        report(1, 1)
    assert capsys.readouterr() == ("", "")


def test_stages_are_named_around_what_they_hold(capsys, monkeypatch):
    with stage("paper3, 4 of 9"), stage("run 1 of 2"):
        announce("loading and checking a model")
    announce("after them")
    assert capsys.readouterr().err.splitlines() == [
        "paper3, 4 of 9, run 1 of 2, loading and checking a model",
        "after them",
    ]
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with stage("run 1 of 2"), reporting("reading a model") as report:
        report(2, 8)
    assert "run 1 of 2, reading a model:" in terminal.getvalue()


def test_a_log_of_a_thousand_short_parts_has_a_line_in_ten_seconds(capsys, now):
    """A stage of 100 parts of five reports each, a report a tenth of a second: 50 s, so at most five lines."""
    with stage("run 1 of 2"):
        for part in range(100):
            with reporting(f"part {part}") as report:
                for done in range(1, 6):
                    now[0] += 0.1
                    report(done, 5)
    lines = capsys.readouterr().err.splitlines()
    assert 4 <= len(lines) <= 5 and all(line.startswith("run 1 of 2, part ") for line in lines)
