"""Disks that are full or closed while something is written: told in words, nothing half written, earlier work kept."""

from dataclasses import replace

import numpy as np
import pytest

import interp
from interp.errors import RecordError
from interp.records.record import open_run, written


@pytest.fixture(scope="module")
def measured():
    return interp.run(
        "tunnel:bijection-gpt-neox", probes=["attention_entropy"], n_pool=20, out=None, quiet=True, report=False
    )


def test_what_was_measured_is_kept_elsewhere_with_the_rights_of_its_files(tmp_path, monkeypatch, measured):
    (tmp_path / "out").write_text("a file where the folder should be", encoding="utf-8")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    with pytest.raises(RecordError, match=r"what was measured is kept in .*\n.*interp report") as caught:
        written(measured, tmp_path / "out", "model")
    (kept,) = (tmp_path / "temporary").glob("interp-*/model-*")
    assert str(kept) in caught.value.found and open_run(kept).spec_hash == measured.spec_hash
    assert open_run(kept).findings.keys() == measured.findings.keys()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(RecordError, match="Check free space and permissions"):
        written(measured, tmp_path / "out", "model")
    found = {name: replace(f, arrays={"a": np.zeros(3)}) for name, f in measured.findings.items()}
    folder = replace(measured, findings=found).write(tmp_path / "model").path
    modes = {path.stat().st_mode for path in folder.iterdir() if path.is_file()}
    assert len(modes) == 1 and [*folder.glob("arrays.*.safetensors")]


def test_a_model_of_any_name_gives_a_folder_that_every_system_takes(tmp_path, measured):
    for name in ("m" * 400, "日" * 400, "C:\\models\\base", "a:b?c", "org/model"):
        folder = written(measured, tmp_path, name).path
        assert folder.parent == tmp_path and len(folder.name.encode()) <= 150
        assert not set(folder.name) & set('<>:"/\\|?*')
