"""Studies: what was asked is hashed and repeats itself as a command; a record and a page are left and reopen."""

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar, Literal

import filelock
import numpy as np
import pytest
from interp.reports.page.render import render
from typer.testing import CliRunner

from interp import registry
from interp.cli.app import app
from interp.errors import UnknownName, UsageError
from interp.findings import Findings, Scalar
from interp.probe import Figure
from interp.records.record import open_run
from interp.running.spec import make_study
from interp.running.study import run_study
from interp.settings import split_settings
from interp.study import Study
from interp.table import Table


@dataclass(frozen=True)
class Toy(Study):
    """Counts how often it was called, in the folder of its unfinished work."""

    count: int = 3
    level: float = 0.5
    names: tuple[str, ...] = ("a",)
    sizes: tuple[int, ...] = (1, 2)
    way: Literal["one", "other"] = "one"
    model: str | None = None
    is_on: bool = False
    only: str | None = "x"

    name: ClassVar[str] = "toy"
    question: ClassVar[str] = "Is one one?"

    def measure(self, work: Path, progress: Callable[[int, int], None]) -> Findings:
        work.mkdir(parents=True, exist_ok=True)
        calls = len(list(work.iterdir())) + 1
        (work / str(calls)).touch()
        for i in range(self.count):
            progress(i + 1, self.count)
        one = Scalar(1.0, "1", interval_reason="exact", null_reason="exact", n=self.count, n_unit="call", meaning="one")
        called = replace(one, value=float(calls))
        table = Table({"x": np.arange(3), "y": np.arange(3) ** 2}, {"x": "1", "y": "bits"})
        return Findings(self.name, {"one": one, "calls": called}, {"squares": table}, headline=("one",))

    def figures(self, findings: Findings) -> tuple[Figure, ...]:
        import plotly.graph_objects as go

        drawn = go.Figure(go.Scatter(x=findings.tables["squares"]["x"], y=findings.tables["squares"]["y"]))
        return (Figure("squares", "Squares of numbers", "They grow.", drawn, "squares"),)


@pytest.fixture(autouse=True)
def toy_study(monkeypatch):
    """The toy is registered the way every study is, as an entry point."""
    known = registry.entries
    entry = EntryPoint("toy", f"{__name__}:Toy", "interp.studies")
    monkeypatch.setattr(registry, "entries", lambda kind: {"toy": entry} if kind == "study" else known(kind))


def from_command(command: str) -> Study:
    """The study that a command line asks for, read as `interp study` reads it."""
    words = shlex.split(command)
    assert words[:2] == ["interp", "study"]
    assert words[3::2] == ["--set"] * (len(words[3:]) // 2)
    return make_study(words[2], split_settings(words[4::2], [words[2]])[words[2]])


CHANGED = [
    {}, {"count": 7}, {"level": 1e-05}, {"names": ("b", "c d")}, {"names": ()}, {"names": ("a,b", "c")},
    {"sizes": (5,)}, {"sizes": ()}, {"way": "other", "is_on": True, "model": "tunnel:bijection-gpt-neox@64"},
    {"model": "it's a model"}, {"only": None},
]  # fmt: skip


@pytest.mark.parametrize("changes", CHANGED)
def test_the_command_asks_for_the_same_study_and_the_hash_is_of_everything_asked(changes):
    study = Toy(**changes)
    assert from_command(study.command) == study
    assert from_command(study.command).hash == study.hash == Toy(**changes).hash
    assert (study.hash == Toy().hash) == (not changes)
    assert len(study.hash) == 16 and int(study.hash, 16) >= 0


def test_a_study_tells_what_was_asked_by_its_command_and_suggests_names():
    assert Toy().command == "interp study toy"
    assert Toy(sizes=(5, 6), count=3).command == "interp study toy --set sizes=5,6"
    spec = Toy(names=("b", "c")).spec
    assert json.loads(json.dumps(spec)) == spec
    assert spec["study"] == "toy" and spec["parameters"]["names"] == ["b", "c"]
    with pytest.raises(UnknownName, match="Did you mean toy"):
        make_study("tory", {})
    with pytest.raises(UnknownName, match="Did you mean count"):
        make_study("toy", {"counts": 3})


def test_a_record_is_left_and_reopens_and_its_page_speaks_of_no_model_and_outlives_it(tmp_path, monkeypatch):
    study = Toy(names=("b", "c"), sizes=(4,))
    record = run_study(study, out=tmp_path, quiet=True)
    assert record.path is not None and record.path.parent == tmp_path and record.path.name.startswith("toy-")
    again = open_run(record.path)
    assert (again.spec, again.spec_hash) == (record.spec, study.hash)
    assert again.findings["toy"]["one"] == record.findings["toy"]["one"]
    assert again.findings["toy"].tables["squares"]["y"].tolist() == [0, 1, 4]
    assert from_command(again.spec["command"]) == study
    assert again.environment["packages"]["numpy"] == np.__version__ and again.timings["study"] >= 0
    page = (record.path / "report.html").read_text()
    for words in ("<h1>toy</h1>", "Squares of numbers", "They grow.", "--set names=b,c"):
        assert words in page, words
    for words in ("unnamed model", "no prompts", "cannot draw these findings", ">None<"):
        assert words not in page, words
    assert again.show().read_text() == page
    monkeypatch.setattr(registry, "entries", lambda kind: {})
    assert "The installed study “toy” cannot draw these findings" in render(open_run(record.path)).read_text()


def test_studies_go_on_unless_others_and_tell_progress(tmp_path, capsys):
    first, second = (run_study(Toy(), out=tmp_path, quiet=True) for _ in range(2))
    other = run_study(Toy(count=4), out=tmp_path, quiet=True)
    assert [r.findings["toy"]["calls"].value for r in (first, second, other)] == [1.0, 2.0, 1.0]
    assert first.path != second.path and (first.path / "run.json").exists()
    run_study(Toy(), out=tmp_path)
    assert "toy: 3 of 3" in capsys.readouterr().err
    run_study(Toy(), out=tmp_path, quiet=True)
    assert capsys.readouterr().err == ""


def test_a_study_that_fails_or_has_no_folder_leaves_no_record(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record = run_study(Toy(), out=None, quiet=True)
    assert record.path is None and record.findings["toy"]["one"].value == 1.0
    assert [p.name for p in tmp_path.rglob("run.json")] == []

    class Failing(Toy):
        def measure(self, work: Path, progress: Callable[[int, int], None]) -> Findings:
            raise UsageError(asked="this", found="that", fix="Do not.")

    with pytest.raises(UsageError):
        run_study(Failing(), out=tmp_path, quiet=True)
    assert list(tmp_path.rglob("run.json")) == []


def test_a_study_that_waited_takes_no_record_that_is_not_the_same(tmp_path, monkeypatch):
    """In one process: while it asks for the lock that another has, that other one carries out the same."""
    acquire, done = filelock.FileLock.acquire, []

    def held_at_first(self, timeout=None, **more):
        if timeout == 0 and not done:
            done.append("begun")
            done.append(run_study(Toy(), out=tmp_path, quiet=True))
            raise filelock.Timeout(self.lock_file)
        return acquire(self, timeout=timeout, **more)

    monkeypatch.setattr(filelock.FileLock, "acquire", held_at_first)
    with pytest.warns(RuntimeWarning, match="waiting: another process is carrying out toy"):
        found = run_study(Toy(), out=tmp_path, is_same=lambda record: False, quiet=True)
    assert found.path != done[1].path


def test_the_command_line_carries_out_a_study(tmp_path):
    done = CliRunner().invoke(app, ["study", "toy", "--set", "sizes=3,4", "--out", str(tmp_path), "--quiet"])
    assert done.exit_code == 0, done.output
    page = Path(done.stdout.strip().splitlines()[-1])
    assert page.name == "report.html" and page.exists()
    assert open_run(page.parent).spec["parameters"]["sizes"] == [3, 4]


def test_every_registered_study_can_be_asked_by_its_own_command(monkeypatch):
    monkeypatch.undo()
    found = registry.entries("study")
    assert {"sticky_chain", "gradient_laws"} <= set(found)
    for name, entry in found.items():
        if entry.value.startswith(("probes.", "wind_tunnels.", "interp.", "reports.")):
            study = entry.load()()
            assert study.name == name and study.question.endswith("?")
            if type(study).command is Study.command:  # a study with a command of its own names it there
                assert from_command(study.command) == study
