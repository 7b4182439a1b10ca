"""Records, unfinished work and trainings after kills and power cuts at every call: whole, or as before."""

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

from interp.prompt import Prompt, PromptSet
from interp.records.record import finished_record, open_run, written
from interp.records.unfinished import PARTIAL, Unfinished
from tests.faulty_disk import Died, Disk
from tests.interp.records.test_record import small_record
from tests.tiny_models import fresh_model


def disk_in(tmp_path: Path, **faults: int) -> Disk:
    folder = tmp_path / f"disk{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    return Disk(folder, **faults)


def full_record():
    record = small_record()
    found = {name: replace(f, arrays={"a": np.arange(3.0)}) for name, f in record.findings.items()}
    return replace(record, findings=found, spec={**record.spec, "edits": [{"kind": "bypass", "layer": 0}]})


def what_lies_in(out: Path) -> list[str]:
    """The numbers of every record that somebody finds, each of which has to be whole."""
    found = []
    for file in sorted(out.glob("[!.]*/run.json")):
        record = open_run(file)
        assert json.loads((file.parent / "edits.json").read_text())["edits"]
        assert all(list(f.arrays) == ["a"] for f in record.findings.values())
        found.append(record.to_frame().to_json())
    assert len(found) == len(list(out.glob("[!.]*")))
    return found


def test_a_record_survives_kills_and_power_cuts_at_any_call(tmp_path):
    record = full_record()
    numbers = record.to_frame().to_json()
    step, outcomes = -1, set()
    while True:
        step += 1
        with disk_in(tmp_path, die_at=step) as disk:
            try:
                written(record, disk.folder / "runs", "model")
                is_done = True
            except Died:
                is_done = False
            for state in disk.states(tmp_path / "state"):
                lies = what_lies_in(state / "runs")
                assert lies == [numbers] if is_done else lies in ([], [numbers]), disk.steps[-1]
                outcomes.add(len(lies))
        if is_done:
            break
    assert step > 10 and outcomes == {0, 1}


def stage_in(folder: Path):
    prompts = PromptSet("p", [Prompt(token_ids=(1, 2))])
    return Unfinished(folder / PARTIAL / "s", "s", began=-1e6).stage(
        "capture", fresh_model("llama"), prompts, [np.array([1, 2])]
    )


def test_unfinished_work_survives_kills_and_power_cuts_at_any_call(tmp_path):
    def keep(folder, n):
        stage_in(folder)._write(n, 3, "batches", [(("a", 0), np.full(100, n))])

    step, seen = -1, set()
    while True:
        step += 1
        with disk_in(tmp_path, die_at=step) as disk, warnings.catch_warnings():
            warnings.simplefilter("error")  # damaged work is left aside with a warning
            is_done, n_kept = False, 0
            try:
                for n in (1, 2):
                    keep(disk.folder, n)
                    n_kept = n
                is_done = True
            except Died:
                pass
            for state in disk.states(tmp_path / "state"):
                kept = stage_in(state).load()
                n_done = kept.n_done if kept else 0
                seen.add(n_done)
                assert n_kept <= n_done <= n_kept + 1, disk.steps[-1]
                assert kept is None or kept.arrays["a", 0].tolist() == [n_done] * 100
        if is_done:
            break
    assert step > 8 and seen == {0, 1, 2}


def test_a_finished_record_is_found_after_the_clock_was_set_back(tmp_path, monkeypatch):
    import interp.records.record as module

    class Clock(module.datetime):
        year_now = 2030

        @classmethod
        def now(cls, zone=None):
            return cls(cls.year_now, 1, 1, tzinfo=zone)

    monkeypatch.setattr(module, "datetime", Clock)
    record = replace(full_record(), status="done")
    folders = []
    for year in (2030, 2030, 1970, 2030):
        Clock.year_now = year
        folders.append(written(record, tmp_path, "model").path)
        assert finished_record(record.spec_hash, tmp_path) is not None
    assert len({*folders}) == 4 and len(what_lies_in(tmp_path)) == 4
