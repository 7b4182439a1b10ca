"""Two real processes on one run, study or ledger in one folder: one record, nothing mixed, no traceback."""

import json
import subprocess
import sys
import time
from pathlib import Path

import filelock
import pytest

import interp
from interp.records.record import open_run
from interp.records.unfinished import PARTIAL

SLOW = """
import sys, time
from pathlib import Path
from interp import cli
from interp.running import run, study
from interp.records import record, unfinished

unfinished.SECONDS, unfinished.SHARE = 0.0, float("inf")  # short runs keep what is done as long ones do
begun, go = Path(sys.argv[1]), Path(sys.argv[2])

def held(write):
    def later(*given):
        begun.touch()
        while not go.exists():
            time.sleep(0.05)
        return write(*given)
    return later

run.written, study.written = held(record.written), held(record.written)
sys.argv = ["interp", *sys.argv[3:]]
cli.main()
"""
RUN = ["run", "-p", "orthogonality", "--n-pool", "20"]
STUDY = ["study", "tunnel_training", "--set", "settings=n_steps=20,d_model=8,n_heads=2,n_layers=1,batch=8,n_warmup=2"]
CERTIFICATE = ["certify", "orthogonality", "--scale", "smoke"]


def start(words: list[str], out: Path, *launcher: object) -> subprocess.Popen:
    call = [sys.executable, *map(str, launcher or ("-m", "interp")), *words, "--out", str(out)]
    return subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def start_slow(words: list[str], tmp_path: Path) -> subprocess.Popen:
    """A process that has measured and holds its record back until `go` is there."""
    process = start(words, tmp_path / "runs", "-c", SLOW, tmp_path / "begun", tmp_path / "go")
    while not (tmp_path / "begun").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    return process


def heard(process: subprocess.Popen, words: str) -> str:
    """What a process says on standard error up to these words."""
    said = ""
    for line in process.stderr:
        said += line
        if words in line:
            return said
    raise AssertionError(said)


def test_a_run_that_waited_finds_the_record_of_the_other(tmp_path, monkeypatch):
    """In one process: while it asks for the lock that another has, that other one does the same run."""
    asked = {"probes": "orthogonality", "n_pool": 20, "out": tmp_path, "quiet": True, "report": False}
    acquire, done = filelock.FileLock.acquire, []

    def held_at_first(self, timeout=None, **more):
        if timeout == 0 and not done:
            done.append("begun")
            done.append(interp.run(**asked))
            raise filelock.Timeout(self.lock_file)
        return acquire(self, timeout=timeout, **more)

    monkeypatch.setattr(filelock.FileLock, "acquire", held_at_first)
    with pytest.warns(RuntimeWarning, match="waiting: another process is measuring the same of tunnel:bijection"):
        found = interp.run(**asked)
    assert found.path == done[1].path and len([*tmp_path.glob("[!.]*")]) == 1
    assert not [*tmp_path.glob(".*.lock")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "what"),
    [
        (RUN, "measuring the same of tunnel:bijection-gpt-neox"),
        (STUDY, "carrying out tunnel_training"),
        (CERTIFICATE, "carrying out certificate"),
    ],
    ids=["run", "study", "certificate"],
)
@pytest.mark.parametrize("is_killed", [False, True], ids=["waits", "takes over"])
def test_the_second_of_two_processes_waits_and_finds_the_record_or_takes_over(tmp_path, words, what, is_killed):
    first = start_slow(words, tmp_path)
    second = start(words, tmp_path / "runs")
    assert "Traceback" not in heard(second, f"waiting: another process is {what} into")
    if is_killed:
        first.kill()
    else:
        (tmp_path / "go").touch()
        assert first.wait(timeout=120) == 0
    said, complained = second.communicate(timeout=300)
    assert second.returncode == 0 and "Traceback" not in complained
    (folder,) = (tmp_path / "runs").glob("[!.]*")
    assert open_run(folder).findings and (folder / "report.html").is_file()
    assert folder.name in said, "both are told the same"
    left = [path.name for path in (tmp_path / "runs").iterdir() if path != folder]
    assert not [name for name in left if name != PARTIAL], "no lock stays"
    first.communicate()


@pytest.mark.slow
def test_a_run_again_is_a_record_of_its_own_and_other_runs_do_not_wait(tmp_path):
    first = start_slow(RUN, tmp_path)
    other = start([*RUN, "--seed", "1"], tmp_path / "runs")
    _, complained = other.communicate(timeout=120)
    assert other.returncode == 0 and "waiting" not in complained
    (tmp_path / "go").touch()
    assert first.wait(timeout=120) == 0
    again = start(RUN, tmp_path / "runs")
    _, complained = again.communicate(timeout=120)
    assert again.returncode == 0 and "waiting" not in complained
    assert len([*(tmp_path / "runs").glob("[!.]*/run.json")]) == 3
    first.communicate()


@pytest.mark.slow
def test_two_ledgers_of_one_paper_in_one_folder_measure_each_source_once(tmp_path):
    words = ["replicate", "paper2", "--scale", "tiny", "-q"]
    both = [start(words, tmp_path) for _ in range(2)]
    said = [process.communicate(timeout=600) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    records = [open_run(file) for file in tmp_path.glob("[!.]*/run.json")]
    (ledger,) = tmp_path.glob("ledger-*")
    sources = json.loads((ledger / "ledger.json").read_text(encoding="utf-8"))["papers"][0]["sources"]
    done = [source for source in sources if source["record"]]
    assert done and all((ledger / source["record"]).exists() for source in done)
    assert len({record.spec_hash for record in records}) == len(records)
    assert not [*tmp_path.glob(".*.lock")]
