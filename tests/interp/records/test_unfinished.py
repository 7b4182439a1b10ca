"""Runs that were stopped go on from what was kept, to the very same bytes; what cannot be used is left aside."""

import copy
import errno
import signal
import subprocess
import sys
import warnings
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from interp.probes.causal.prompt_sample import PromptSample

from interp.editing.conditions import read_conditions
from interp.edits import AblateHeads
from interp.errors import UsageError
from interp.findings import Findings
from interp.loading.load import load
from interp.need import Need
from interp.probe import Condition, Probe
from interp.reading import forward
from interp.reading.forward import capture
from interp.records import unfinished
from interp.records.unfinished import PARTIAL, Unfinished, refuse_unwritable
from interp.reductions import PromptMean
from interp.running.run import run
from interp.system import signals as stopping
from interp.system.signals import Stopped
from interp.table import Table
from tests.captures import assert_captures_agree
from tests.interp.editing.test_conditions import many, token_run
from tests.interp.running.test_several_models import by_model
from tests.interp.system.test_processes import sequences
from tests.paths import ROOT
from tests.quick import quick
from tests.tiny_models import fresh_model

NEEDS = [
    Need("v"), Need("resid", at="all"), Need("q_pre", at="last"), Need("mlp_out", PromptMean()),
    Need("z", PromptMean(), "all"), Need("k", PromptSample(5), "all"), Need("next_log_prob"),
    Need("pattern_entropy_null"), Need("lens_kl"), Need("next_loss", at="followed"),
]  # fmt: skip


@pytest.fixture
def at_once(monkeypatch):
    """Everything is kept as soon as it is done."""
    monkeypatch.setattr(unfinished, "SECONDS", 0.0)
    monkeypatch.setattr(unfinished, "SHARE", np.inf)


@pytest.fixture
def stop_in(monkeypatch):
    """`stop_in(n)`: the program is told to stop in the middle of the n-th pass from now; returns the passes so far."""
    passes = []
    whole_pass = forward.run_batch

    def stop_in(n: int) -> list[int]:
        passes.clear()

        def one_pass(*given):
            passes.append(n)
            if len(passes) == n:
                stopping._on_signal(signal.SIGINT, None)
            whole_pass(*given)

        monkeypatch.setattr(forward, "run_batch", one_pass)
        monkeypatch.setattr(stopping, "_here", stopping._State())
        return passes

    return stop_in


def of(folder: Path, **more) -> Unfinished:
    return Unfinished(folder / PARTIAL / "spec", "spec", **more)


@pytest.mark.parametrize("family", quick(["llama"], ["llama", "gpt_neox"]))
@pytest.mark.parametrize("n", [1, 4, 9])
def test_a_pass_that_is_stopped_goes_on_from_its_last_batch_to_the_same_bytes(tmp_path, stop_in, family, n):
    model, (prompts, ids) = fresh_model(family), sequences(40)
    asked = {"tokens_per_batch": 24, "name": "capture"}
    alone = capture(model, prompts, ids, NEEDS, tokens_per_batch=24)
    passes = stop_in(n)
    with pytest.raises(Stopped) as stopped:
        capture(model, prompts, ids, NEEDS, unfinished=of(tmp_path), **asked)
    assert stopped.value.exit_code == 130 and len(passes) == n
    assert stopping._here.kept.startswith(f"{n} of ") and str(tmp_path) in stopping._here.kept
    n_batches = int(stopping._here.kept.split()[2])
    passes = stop_in(10**6)
    again = capture(model, prompts, ids, NEEDS, unfinished=of(tmp_path), **asked)
    assert len(passes) == n_batches - n + 1  # one of them lends its keys to the next
    assert_captures_agree(alone, again)


def test_a_pass_that_is_killed_goes_on_from_what_was_kept_last(tmp_path, at_once, stop_in):
    model, (prompts, ids) = fresh_model("llama"), sequences(40)
    needs = [Need("v"), Need("q_pre", PromptMean())]

    def die(done, total):
        if done > 20:
            raise SystemError  # nothing of ours hears of it, as of SIGKILL

    with pytest.raises(SystemError):
        capture(model, prompts, ids, needs, tokens_per_batch=24, unfinished=of(tmp_path), name="c", progress=die)
    passes = stop_in(10**6)
    again = capture(model, prompts, ids, needs, tokens_per_batch=24, unfinished=of(tmp_path), name="c")
    assert 0 < len(passes) < 12
    assert_captures_agree(capture(model, prompts, ids, needs, tokens_per_batch=24), again)


def test_conditions_that_are_done_are_not_read_again(tmp_path, at_once):
    model, source = fresh_model("llama"), token_run((9, 6, 9, 4, 7, 8))
    conditions = many(24)
    asked = {"tokens_per_pass": 120, "name": "conditions"}
    alone = read_conditions(model, source, conditions, tokens_per_pass=120)

    def stop(done, total):
        if done == 5:
            raise Stopped(signal.SIGTERM)

    with pytest.raises(Stopped):
        read_conditions(model, source, conditions, unfinished=of(tmp_path), progress=stop, **asked)
    assert stopping._here.kept.startswith(f"5 of {len(conditions)} conditions")
    read = []

    def counting(condition):
        return replace(condition, read=lambda under: read.append(condition.name) or condition.read(under))

    again = read_conditions(model, source, list(map(counting, conditions)), unfinished=of(tmp_path), **asked)
    assert 0 < len(read) < len(conditions)
    for name, readout in alone.items():
        for what, array in readout.items():
            assert again[name][what].tobytes() == np.asarray(array).tobytes(), (name, what)


@pytest.mark.parametrize("change", [
    "other weights", "other prompts and tokens", "other weights and precision", "other .*versions", "other .*needs",
    "other .*batches",
])  # fmt: skip
def test_what_was_kept_of_something_else_is_left_aside(tmp_path, stop_in, monkeypatch, change):
    model, (prompts, ids), needs, tokens = fresh_model("llama"), sequences(40), NEEDS[:1], 24
    stop_in(3)
    with pytest.raises(Stopped):
        capture(model, prompts, ids, needs, tokens_per_batch=tokens, unfinished=of(tmp_path), name="c")
    stop_in(10**6)
    module = copy.deepcopy(model.module)
    match change.split()[-1]:
        case "weights":
            next(module.parameters()).data[0, 0] += 1.0
            model = replace(model, module=module)
        case "tokens":
            prompts, ids = sequences(40, seed=1)
        case "precision":
            model = replace(model, module=module.to(torch.bfloat16), info=replace(model.info, dtype="bfloat16"))
        case ".*versions":
            monkeypatch.setattr(unfinished, "_versions", lambda: {"versions": {"torch": "0"}})
        case ".*needs":
            needs = NEEDS[:2]
        case _:
            tokens = 30
    with pytest.warns(RuntimeWarning, match=f"belongs to {change}"):
        found = capture(model, prompts, ids, needs, tokens_per_batch=tokens, unfinished=of(tmp_path), name="c")
    assert_captures_agree(capture(model, prompts, ids, needs, tokens_per_batch=tokens), found)


@pytest.mark.parametrize("step", quick([17], [1, 17]))
def test_kept_work_that_is_damaged_at_any_bit_is_read_as_it_was_or_left_aside(tmp_path, step):
    model, prompts = fresh_model("llama"), sequences(4)[0]
    stage = of(tmp_path).stage("c", model, prompts, [np.array([1, 2])])
    array = np.arange(6.0)
    stage._write(3, 9, "batches", [(("v", 0), array)])
    whole, words = stage.path.read_bytes(), set()

    def load():
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            kept = stage.load()
        words.update(str(each.message) for each in warned if "is left aside: it is damaged (" in str(each.message))
        assert (kept is None) == bool(warned)
        return kept

    for place in range(0, 8 * len(whole), step):
        i, bit = divmod(place, 8)
        stage.path.write_bytes(whole[:i] + bytes([whole[i] ^ 1 << bit]) + whole[i + 1 :])
        kept = load()
        assert kept is None or (kept.n_done == 3 and kept.arrays["v", 0].tobytes() == array.tobytes())
    assert step > 1 or any("encrypted" in each for each in words)
    assert any("checksum" in each.lower() or "CRC" in each for each in words)
    with zipfile.ZipFile(tmp_path / "unsaid", "w") as opened:
        opened.writestr("said.json", "[]")
    for content in (whole[: len(whole) // 2], b"", b"no zip", (tmp_path / "unsaid").read_bytes()):
        stage.path.write_bytes(content)
        assert load() is None


def test_a_short_run_never_writes_and_a_long_one_stays_in_its_share():
    now, written = 0.0, []
    work = Unfinished(Path("nowhere"), "spec", began=0.0)
    clock = pytest.MonkeyPatch()
    clock.setattr(unfinished.time, "monotonic", lambda: now)
    try:
        for now in np.arange(0.0, 3600.0, 0.25).tolist():
            if work.may_write(is_whole=False):
                written.append(now)
                work.wrote(2.0)
    finally:
        clock.undo()
    assert written[0] == 10.0 and 0.9 * 36 < 2.0 * len(written) <= 36 + 2.0


def test_a_full_disk_ends_the_keeping_and_not_the_run(tmp_path, at_once, monkeypatch):
    model, (prompts, ids) = fresh_model("llama"), sequences(40)

    def full(path, said, arrays):
        path.write_bytes(b"some of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(unfinished, "_write_zip", full)
    with pytest.warns(RuntimeWarning, match="No space left on device.*continues without") as warned:
        found = capture(model, prompts, ids, NEEDS[:1], tokens_per_batch=24, unfinished=of(tmp_path), name="c")
    assert len(warned) == 1 and not any((tmp_path / PARTIAL / "spec").iterdir())
    assert_captures_agree(capture(model, prompts, ids, NEEDS[:1], tokens_per_batch=24), found)


@dataclass(frozen=True)
class Sums(Probe):
    """A probe whose analysis costs nothing: sums over everything it read."""

    name: ClassVar[str] = "sums"
    question: ClassVar[str] = "What was read?"

    @property
    def needs(self):
        return (Need("v"), Need("resid", PromptMean()), Need("next_log_prob"))

    def analyse(self, base, under):
        found = {f"{need.site}_{name}": float(array.sum()) for need in self.needs
                 for name, array in base.reduced(need).items()}  # fmt: skip
        values = np.array(list(found.values()))
        return Findings(self.name, tables={"sums": Table({"sum": values}, {"sum": "1"})}, notes=tuple(found))


def test_a_run_that_is_stopped_and_repeated_leaves_the_record_of_one_that_was_not(tmp_path, stop_in):
    model = load("tunnel:bijection-gpt-neox")
    asked = {"probes": [Sums()], "n_pool": 600, "report": False, "quiet": True}
    for n in (1, 2):
        stop_in(n)
        with pytest.raises(Stopped):
            run(model, **asked, out=tmp_path / "a")
        assert not list((tmp_path / "a").glob("*/run.json"))
        assert stopping._here.kept.startswith(f"{1 if n == 1 else 3} of ")
    n_batches = int(stopping._here.kept.split()[2])
    passes = stop_in(10**6)
    run(model, **asked, out=tmp_path / "a")
    assert 0 < len(passes) == n_batches - 3
    run(model, **asked, out=tmp_path / "b")
    assert not (tmp_path / "a" / PARTIAL).exists() and not (tmp_path / "b" / PARTIAL).exists()
    assert by_model(tmp_path / "a") == by_model(tmp_path / "b")


@dataclass(frozen=True)
class Ablations(Probe):
    """What the heads of each layer do to the prediction, `times` as much."""

    name: ClassVar[str] = "ablations"
    question: ClassVar[str] = "What do heads do?"
    edits_model: ClassVar[bool] = True
    needs = (Need("v"),)
    times: ClassVar[int] = 1

    def conditions(self, base):
        def read(under):
            return {"sum": self.times * np.array([under["next_log_prob"].sum()])}

        return [Condition(f"{i}", (AblateHeads(i, 0),), (Need("next_log_prob"),), read) for i in range(3)]

    def analyse(self, base, under):
        return Findings(self.name, notes=tuple(str(readout["sum"][0]) for readout in under.values()))


def test_conditions_of_a_probe_whose_code_was_mended_are_read_again(tmp_path, at_once, monkeypatch):
    """A record must not mix what two versions of a probe read."""

    def stop(*given):
        raise Stopped(signal.SIGTERM)

    asked = {"n_pool": 20, "report": False, "quiet": True}
    with monkeypatch.context() as patched, pytest.raises(Stopped):
        patched.setattr(Ablations, "analyse", stop)
        run("tunnel:bijection-gpt-neox", probes=[Ablations()], out=tmp_path, **asked)
    monkeypatch.setattr("interp.running.run.code_hash", lambda probe: "mended")
    monkeypatch.setattr(Ablations, "times", 2)
    with pytest.warns(RuntimeWarning, match="left aside: it belongs to other code of the probe"):
        found = run("tunnel:bijection-gpt-neox", probes=[Ablations()], out=tmp_path, **asked)
    assert found["ablations"] == run("tunnel:bijection-gpt-neox", probes=[Ablations()], out=None, **asked)["ablations"]


def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="cannot be written"):  # as the system itself says
        refuse_unwritable(Path("/proc/runs"))
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for name, said in (("file", "Not a directory"), ("link", r"link \(a link to .*gone\) cannot be written")):
        with pytest.raises(UsageError, match=said):
            run("tunnel:bijection-gpt-neox", out=tmp_path / name / "runs")
    monkeypatch.setattr("interp.running.run.load_as_asked", None)  # nothing was loaded for it
    for number in (errno.ENOSPC, errno.EROFS, errno.EACCES):

        def refuse(number=number, **_):
            raise OSError(number, "as the system says")

        monkeypatch.setattr("tempfile.TemporaryFile", refuse)
        with pytest.raises(UsageError, match=r"cannot be written \(as the system says\)"):
            run("tunnel:bijection-gpt-neox", out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


TAKING_TURNS = """
import sys, warnings
from pathlib import Path
import numpy as np
from interp.prompt import Prompt, PromptSet
from interp.records.unfinished import PARTIAL, Unfinished
from tests.tiny_models import fresh_model

warnings.simplefilter("error")
model, prompts = fresh_model("llama"), PromptSet("p", [Prompt(token_ids=(1, 2))])
whole = 0
print("ready", flush=True)
sys.stdin.readline()
for i in range(100):
    run = Unfinished(Path(sys.argv[1]) / PARTIAL / sys.argv[2], sys.argv[2], began=-1e6)
    stage = run.stage("capture", model, prompts, [np.array([1, 2])])
    warnings.filterwarnings("ignore", "unfinished work cannot be kept")  # the other one removed the folder meanwhile
    stage._write(i, 100, "batches", [(("a", 0), np.full(100, i))])
    kept = stage.load()
    if kept is not None:
        assert kept.arrays["a", 0].tolist() == [kept.n_done] * 100
        whole += 1
    run.remove()
print(whole)
"""


@pytest.mark.slow
@pytest.mark.parametrize("specs", ["ss", "st"], ids=["one run", "two runs"])
def test_two_processes_that_keep_and_remove_unfinished_work_never_mix_it(tmp_path, specs):
    both = [subprocess.Popen([sys.executable, "-c", TAKING_TURNS, str(tmp_path), spec], cwd=ROOT, text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for spec in specs]  # fmt: skip
    assert [process.stdout.readline() for process in both] == ["ready\n"] * 2
    for process in both:
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert all(int(whole) > 0 for whole, _ in said) and not (tmp_path / PARTIAL).exists()
