"""Figures and tables of a record as files for a paper."""

import pathlib
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pandas
import pytest
from interp.reports.export import export

import interp
from interp.errors import UsageError


@pytest.fixture(scope="module")
def record():
    return interp.run(probes="orthogonality,attention_entropy", n_pool=40, out=None, quiet=True)


def test_tables_hold_every_number_and_the_headlines_as_latex(record, tmp_path):
    files = export(record, tmp_path / "new" / "folder", figures=(), tables=("csv", "latex"))
    assert sorted(files) == sorted((tmp_path / "new" / "folder").glob("[!.]*"))
    found = record.findings["orthogonality"]
    frame = pandas.read_csv(tmp_path / "new" / "folder" / "orthogonality.csv")
    assert frame["name"].tolist() == list(found.scalars)
    np.testing.assert_allclose(frame["value"], [s.value for s in found.scalars.values()])
    latex = (tmp_path / "new" / "folder" / "orthogonality.tex").read_text()
    assert latex.count(r" \\") == 1 + len(found.headline)
    units = pandas.read_csv(tmp_path / "new" / "folder" / "orthogonality.units.csv").set_index(["file", "column"])[
        "unit"
    ]
    for name, table in found.tables.items():
        assert units[f"orthogonality-{name}.csv"].to_dict() == dict(table.units)
    name, table = next(iter(found.tables.items()))
    assert len(pandas.read_csv(tmp_path / "new" / "folder" / f"orthogonality-{name}.csv")) == table.n_rows


def test_unknown_formats_are_refused(record, tmp_path):
    with pytest.raises(UsageError, match="figures as gif"):
        export(record, tmp_path, figures=("gif",))
    with pytest.raises(UsageError, match="tables as docx"):
        export(record, tmp_path, tables=("docx",))
    assert not list(tmp_path.glob("[!.]*"))


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("columns, inches", [(1, 3.4), (2, 7.0)])
def test_a_figure_is_as_wide_as_the_columns_of_a_paper(record, tmp_path, chromium_file, monkeypatch, columns, inches):
    monkeypatch.setenv("BROWSER_PATH", chromium_file)
    one = replace(record, findings={"orthogonality": record.findings["orthogonality"]})
    files = export(one, tmp_path, figures=("svg",), tables=(), columns=columns)
    assert files
    for file in files:
        width = re.search(r'<svg[^>]* width="([\d.]+)"', file.read_text())
        assert width and float(width[1]) == pytest.approx(inches * 96, abs=1.0)


def test_a_picture_is_there_whole_or_not_at_all(record, tmp_path, monkeypatch):
    """A browser that dies in the middle leaves what was there, and no half of a file."""
    one = replace(record, findings={"orthogonality": record.findings["orthogonality"]})

    def draw(plots, files, format, dies=False, **_):
        for n, (_, file) in enumerate(zip(plots, files, strict=True)):
            pathlib.Path(file).write_text(f"<svg>{format}", encoding="utf-8")
            if dies and n == 1:
                raise RuntimeError("the browser died")

    monkeypatch.setattr("plotly.io.write_images", draw)
    files = export(one, tmp_path, figures=("svg",), tables=())
    assert len(files) > 2 and all(file.read_text() == "<svg>svg" for file in files)
    assert sorted(tmp_path.glob("[!.]*")) == sorted(files)
    files[0].write_text("earlier")
    files[1].unlink()
    monkeypatch.setattr("plotly.io.write_images", partial(draw, dies=True))
    with pytest.raises(UsageError, match="the browser died"):
        export(one, tmp_path, figures=("svg",), tables=())
    assert files[0].read_text() == "earlier" and sorted(tmp_path.glob("[!.]*")) == sorted({*files} - {files[1]})


@pytest.mark.browser
def test_a_missing_chrome_is_said_in_words(record, tmp_path, monkeypatch):
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "no-browser"))
    with pytest.raises(UsageError, match="Chrome") as caught:
        export(record, tmp_path, figures=("svg",), tables=())
    assert "BROWSER_PATH" in str(caught.value)
