"""The page on two real models: its figures are drawn from what is shipped, and it quotes what was measured."""

import csv
import importlib

import numpy as np
import pytest
from interp.reports.plotly.prepare import undrawable

import interp
from tests.paths import ROOT
from tests.quick import quick

PAGE = (ROOT / "docs" / "gallery" / "two-models.md").read_text(encoding="utf-8").replace("−", "-")
FINDINGS = interp.open_run(ROOT / "examples" / "two-models" / "comparison").findings["comparison"]


@pytest.mark.parametrize("name", quick(["windows"], ["pair", "lengths", "windows"]))
def test_every_figure_of_the_page_is_drawn(monkeypatch, name):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_hooks"))
    hook = importlib.import_module("two_models")
    assert f"[[two models: {name}]]" in PAGE
    figure = hook.FIGURES[name]()
    assert undrawable(figure.plot) is None and len(figure.plot.data) > 3
    assert hook.drawn(name).startswith("\n<figure") or "<figure" in hook.drawn(name)


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("reduction_no_first", (".22 [.20, .23]", "-.02 [-.05, .01]")),
        ("pc1_correlation", (".36 [.29, .42]", "-.00 [-.10, .09]")),
        ("content_sharpening_no_first", (".12 [.07, .18]", ".27 [.23, .30]")),
    ],
)
def test_the_page_quotes_the_record(name, quoted):
    table = FINDINGS.tables["differences"]
    mine = table.where(table["name"] == name)
    for value, low, high, said in zip(mine["value"], mine["low"], mine["high"], quoted, strict=True):
        assert f"{value:.2f} [{low:.2f}, {high:.2f}]".replace("0.", ".") == said and said in PAGE


@pytest.mark.parametrize(("model", "tokens", "kind", "fall"), [
    ("SmolLM2-135M", 20, "full", 0.21), ("SmolLM2-135M", 1500, "full", 0.40),
    ("Gemma-3-270M", 20, "sliding", 0.07), ("Gemma-3-270M", 60, "sliding", 0.24),
    ("Gemma-3-270M", 600, "sliding", 0.52), ("Gemma-3-270M", 1500, "sliding", 0.46),
    ("Gemma-3-270M", 60, "full", -0.17), ("Gemma-3-270M", 600, "full", -0.30),
])  # fmt: skip
def test_the_page_quotes_the_fall_of_entropy_between_the_ends_of_each_kind(model, tokens, kind, fall):
    with (ROOT / "examples" / "two-models" / "attention.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if (row["model"], int(row["tokens"])) == (model, tokens)]
    bits = np.array([float(row["bits"]) for row in rows if row["kind"] == kind and not row["change"]])
    assert 1 - bits[-1] / bits[0] == pytest.approx(fall, abs=0.05)  # the page has the mean of falls, this is of means
    assert f"{abs(fall):.2f} [".removeprefix("0") in PAGE
