"""The page over all records: what stands in it, what is left out and why, and that names stay text."""

import json
import shutil
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import interp
from interp.cli.app import app
from interp.errors import RecordError, UsageError
from interp.records.answers import answers
from interp.records.index import DEEPEST, list_records
from tests.reports.pictures import made_record

NAME = "<img src=x onerror=window.hurt=1>"


@pytest.fixture
def runs(tmp_path):
    """Two good records (one with a hostile name, one nested), two bad ones, a foreign folder and hidden work."""
    folder = tmp_path / "runs"
    first = replace(made_record(), created="2026-01-01T10:00:00+00:00")
    hostile = first.model | {"name": NAME}
    folder.mkdir()
    replace(first, model=hostile).write(folder / "first #1").show()
    (folder / "deep").mkdir()
    replace(first, created="2026-02-01T10:00:00+00:00").write(folder / "deep" / "second")
    shutil.copytree(folder / "first #1", folder / "cut")
    (folder / "cut" / "run.json").write_text((folder / "cut" / "run.json").read_text()[:500])
    shutil.copytree(folder / "first #1", folder / "newer")
    content = json.loads((folder / "newer" / "run.json").read_text()) | {"format": 99}
    (folder / "newer" / "run.json").write_text(json.dumps(content))
    (folder / "holiday" / "pictures").mkdir(parents=True)
    (folder / ".partial" / "abc").mkdir(parents=True)
    return folder


def test_records_are_listed_newest_first_as_text_with_links_to_their_pages(runs):
    listed = list_records(runs)
    assert [entry.path for entry in listed.entries] == ["deep/second", "first #1"]
    left_out = dict(listed.left_out)
    assert set(left_out) == {"cut", "newer", "holiday"}
    assert "cannot be read" in left_out["cut"] and "format 99" in left_out["newer"]
    assert left_out["holiday"] == "there is no run.json in it" and listed.n_unfinished == 1
    second, first = listed.entries
    assert second.page is None and first.page == "first #1/report.html"
    assert second.n_bytes == sum(f.stat().st_size for f in (runs / "deep" / "second").rglob("*") if f.is_file())
    assert [said for _, said in first.answers] == [answer.said for answer in answers(first.record, "the model")]
    page = interp.index_runs(runs)
    text = page.read_text(encoding="utf-8")
    assert "<img src=x" not in text and "&lt;img src=x" in text
    assert 'href="./first%20%231/report.html"' in text
    assert interp.index_runs(runs).read_text(encoding="utf-8") == text


@pytest.mark.parametrize("depth", [DEEPEST, DEEPEST + 1])
def test_records_are_found_so_deep_and_no_deeper(tmp_path, depth):
    made_record().write(tmp_path.joinpath(*"abcdef"[:depth]))
    assert len(list_records(tmp_path).entries) == (depth <= DEEPEST)


@pytest.mark.slow
def test_a_comparison_and_its_runs_link_to_each_other(tmp_path):
    out = tmp_path / "runs"
    for seed in (0, 1):
        interp.run(probes="orthogonality", n_pool=20, seed=seed, out=out, report=False, quiet=True)
    runs = sorted(out.iterdir())
    compared = interp.compare(runs, out=out, quiet=True)
    listed = {entry.path: entry for entry in list_records(out).entries}
    assert listed[compared.path.name].compares == tuple(run.name for run in runs)
    assert all(listed[run.name].compared_in == (compared.path.name,) for run in runs)
    page = interp.index_runs(out).read_text()
    assert f'href="#./{compared.path.name}"' in page


def test_what_cannot_be_listed_is_refused_in_words(tmp_path, runs):
    (tmp_path / "empty").mkdir()
    for folder, words in (("empty", "has a record"), ("missing", "no such folder"), ("runs/cut/run.json", "a file")):
        with pytest.raises(UsageError, match=words):
            interp.index_runs(tmp_path / folder)
    (runs / "index.html").write_text("<html>my own</html>")
    with pytest.raises(RecordError, match="did not write"):
        interp.index_runs(runs)
    assert (runs / "index.html").read_text() == "<html>my own</html>"


def test_view_opens_the_page_of_a_run_or_the_index_of_a_folder(runs, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    for asked, page in ((runs, "index.html"), (runs / "deep" / "second", "report.html")):
        result = CliRunner().invoke(app, ["view", str(asked)])
        assert result.exit_code == 0 and result.output.strip().endswith(page) and (asked / page).is_file()
        assert opened[-1] == (asked / page).resolve().as_uri()
    assert CliRunner().invoke(app, ["view", str(runs), "--no-browser"]).exit_code == 0 and len(opened) == 2


def test_the_filter_keeps_the_records_that_hold_every_word(look, runs):
    seen = look(interp.index_runs(runs))
    rows = seen.page.locator("table.index tbody tr")
    seen.page.locator("#filter input").fill("2026-02 deep")
    assert [row.is_visible() for row in rows.all()] == [True, False]
    assert seen.page.locator("#filter [role=status]").inner_text() == "1 of 2"


def test_chosen_records_stand_side_by_side_with_the_command_that_compares_them(look, runs):
    seen = look(interp.index_runs(runs))
    boxes = seen.page.locator(".index input[type=checkbox]")
    beside = seen.page.locator("#beside")
    assert boxes.count() == 2 and not beside.is_visible()
    boxes.nth(0).check()
    assert beside.is_visible() and not beside.locator("code").is_visible()
    boxes.nth(1).check()
    heads = [cell.inner_text() for cell in beside.locator("thead th").all()]
    first, second = (entry.record for entry in list_records(runs).entries)
    assert heads == ["question", first.model["name"], NAME]
    row = [cell.inner_text() for cell in beside.locator("tbody tr").first.locator("th, td").all()]
    asked = answers(second, "the model")[0]
    assert row == [asked.question, answers(first, "the model")[0].said, asked.said]
    assert beside.locator("code").inner_text() == f"interp compare {runs}/deep/second '{runs}/first #1'"
    assert seen.page.evaluate("window.hurt") is None and seen.overflow() <= 0
