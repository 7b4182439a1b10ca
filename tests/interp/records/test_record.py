"""Records: read back equal, rejected with a message when damaged; the newest is found whatever the clock says."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interp.errors import RecordError
from interp.findings import Control, Findings, Null, Scalar
from interp.records import record as record_files
from interp.records.record import RunRecord, finished_record, open_run, written
from interp.table import Table


def small_record() -> RunRecord:
    findings = Findings(
        probe="manifold",
        scalars={
            "share": Scalar(
                0.25, "1", interval=(0.2, 0.3), interval_method="jackknife", null=Null("gaussian", 0.04, (0.03, 0.05)),
                p=0.01, n=75, n_distinct_rows=70,
            ),
            "lost": Scalar(math.nan, "bits", interval_reason="no rows", null_reason="no rows"),
        },
        tables={"by_layer": Table({"layer": np.arange(3), "name": np.array(["a", "b", "ü"])},
                                  {"layer": "index", "name": "label"}, "three")},
        arrays={"axis": np.arange(6.0).reshape(2, 3), "layer": np.array(2)},
        notes=("a note",),
        headline=("share",),
        controls={"share": (Control("elsewhere", "lost", essential=False),)},
        facts={"share": "a share is large"},
    )  # fmt: skip
    return RunRecord(
        created="2026-01-01T00:00:00+00:00", spec={"model": "m"}, spec_hash="0" * 16,
        model={"name": "m"}, prompts={"n": 75}, environment={}, selfcheck=({"name": "eager", "value": 1e-7},),
        timings={"load": 0.5}, findings={"manifold": replace(findings, parameters={"layer": -1})},
    )  # fmt: skip


def test_a_record_reads_back_as_it_was_written(tmp_path):
    folder = tmp_path / "seed=3"  # which pyarrow may take for a column
    written, read = small_record().write(folder), open_run(folder)
    ours, theirs = written.findings["manifold"], read.findings["manifold"]
    assert theirs["share"] == ours["share"]
    assert math.isnan(theirs["lost"].value)
    assert theirs.headline == ("share",) and theirs.notes == ("a note",)
    assert theirs.controls == ours.controls and theirs.facts == ours.facts
    assert theirs.to_frame("by_layer").equals(ours.to_frame("by_layer"))
    assert theirs.tables["by_layer"].units == {"layer": "index", "name": "label"}
    for name in ("axis", "layer"):
        np.testing.assert_array_equal(theirs.arrays[name], ours.arrays[name], strict=True)
    assert read.spec == {"model": "m"} and read.parameters == {"manifold": {"layer": -1}}


def test_run_json_has_the_published_shape(tmp_path):
    small_record().write(tmp_path / "run")
    content = json.loads((tmp_path / "run" / "run.json").read_text())
    assert set(content) == {
        "format", "status", "created", "spec", "spec_hash", "model", "prompts", "environment", "selfcheck", "timings",
        "findings",
    }  # fmt: skip
    share = content["findings"]["manifold"]["scalars"]["share"]
    assert share["null"] == {"name": "gaussian", "value": 0.04, "band": [0.03, 0.05], "n_draws": None}
    assert share["interval"] == [0.2, 0.3] and share["n"] == 75 and share["n_distinct_rows"] == 70
    assert content["findings"]["manifold"]["tables"]["by_layer"]["path"] == "tables/manifold.by_layer.parquet"
    assert content["findings"]["manifold"]["scalars"]["lost"]["value"] is None


def test_a_record_that_cannot_be_written_or_is_not_there_is_refused(tmp_path):
    small_record().write(tmp_path / "run")
    with pytest.raises(RecordError, match="exists"):
        small_record().write(tmp_path / "run")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RecordError, match="Check free space and permissions"):
        small_record().write(tmp_path / "file" / "run")
    with pytest.raises(RecordError, match="Give the folder that a run printed"):
        open_run(tmp_path / "nothing")


def test_no_page_is_written_where_the_record_is_not(tmp_path, monkeypatch):
    """A relative path means another folder after `os.chdir`; the page went there in silence."""
    monkeypatch.chdir(tmp_path)
    record = written(small_record(), Path("runs"), "small")
    assert record.page.parent.is_dir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(RecordError, match="was moved, or the working folder"):
        record.show()
    assert not [*Path().iterdir()]


def test_findings_and_tables_that_lack_something_are_refused():
    with pytest.raises(ValueError, match="interval_reason"):
        Scalar(1.0, "1", null_reason="none")
    with pytest.raises(ValueError, match="null_reason"):
        Scalar(1.0, "1", interval_reason="weights only")
    with pytest.raises(ValueError, match="different lengths"):
        Table({"a": np.arange(3), "b": np.arange(2)}, {"a": "1", "b": "1"})


def test_the_newest_whole_record_is_found_after_the_clock_was_set_back(tmp_path, monkeypatch):
    class Clock(record_files.datetime):
        year_now = 2030

        @classmethod
        def now(cls, zone=None):
            return cls(cls.year_now, 1, 1, tzinfo=zone)

    monkeypatch.setattr(record_files, "datetime", Clock)
    found = []
    for Clock.year_now in (2030, 2030, 1970, 2030):
        found.append(written(small_record(), tmp_path, "model").path)
        assert finished_record("0" * 16, tmp_path) is not None
    assert len({*found}) == 4 == len(list(tmp_path.glob("[!.]*/run.json")))
    newest = finished_record("0" * 16, tmp_path).path
    (table,) = (newest / "tables").iterdir()
    table.write_bytes(table.read_bytes()[:40])
    assert finished_record("0" * 16, tmp_path).path in {*found} - {newest}


def test_what_was_measured_is_kept_elsewhere_with_the_rights_of_its_files(tmp_path, monkeypatch):
    (tmp_path / "out").write_text("a file where the folder should be", encoding="utf-8")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    with pytest.raises(RecordError, match=r"what was measured is kept in .*\n.*interp report") as caught:
        written(small_record(), tmp_path / "out", "model")
    (kept,) = (tmp_path / "temporary").glob("interp-*/model-*")
    assert str(kept) in caught.value.found and open_run(kept).spec == small_record().spec
    modes = {path.stat().st_mode for path in kept.iterdir() if path.is_file()}
    assert len(modes) == 1 and [*kept.glob("arrays.*.safetensors")]
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(RecordError, match="Check free space and permissions"):
        written(small_record(), tmp_path / "out", "model")


@pytest.mark.parametrize("name", ["m" * 400, "日" * 400, "C:\\models\\base", "a:b?c", "org/model"])
def test_a_model_of_any_name_gives_a_folder_that_every_system_takes(tmp_path, name):
    folder = written(small_record(), tmp_path, name).path
    assert folder.parent == tmp_path and len(folder.name.encode()) <= 150
    assert not set(folder.name) & set('<>:"/\\|?*')
