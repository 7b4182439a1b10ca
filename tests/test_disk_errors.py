"""Every kind of writer on a disk that fails, or is cut off, at each call: told in words, the earlier file whole.

Here a writer meets the errors in turn at twenty of its calls; in `make stress` it meets each at every call, or at a
hundred where it makes more, and a whole training all of them in turn.
"""

import errno
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from interp.reports.export import export
from interp.reports.page.render import GENERATOR, write_page
from interp.wind_tunnels.networks.weights import weights_fingerprint
from interp.wind_tunnels.plans.sweep import _write as write_sweep
from interp.wind_tunnels.plans.train_tunnel import make_plan, train_tunnel
from interp.wind_tunnels.programs.noise import Noise, write_noisy
from interp.wind_tunnels.tasks.coin import Coin
from interp.wind_tunnels.training.loop import STATE_NAME, _save, initial_state

import interp
from interp.errors import InterpError
from interp.ledger.ledger import LedgerFile, write_ledger
from interp.prompt import Prompt, PromptSet
from interp.records.capture_files import open_capture
from interp.records.record import open_run
from interp.records.unfinished import PARTIAL, Unfinished
from interp.system.whole_files import make_folder, move, telling
from tests.faulty_disk import Died, Disk
from tests.hostile_files import whole_record
from tests.interp.cli.test_habits import answer
from tests.quick import quick
from tests.tiny_models import fresh_model

NUMBERS = tuple(
    getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EROFS", "EACCES", "EPERM", "ENAMETOOLONG", "EIO")
)
COIN = {"n_tosses": 3, "n_steps": 2, "batch": 4, "n_copies": 2, "n_warmup": 1, "d_model": 8, "n_heads": 2,
        "n_layers": 1}  # fmt: skip


@dataclass(frozen=True)
class Writer:
    """`write(folder, n)` writes the n-th content, `read(folder)` gives what lies there, each in a form of its own.

    A writer that `replaces` writes over what it wrote before. One `in_passing` warns and goes on.
    """

    write: Callable[[Path, int], object]
    read: Callable[[Path], object]
    replaces: bool = True
    in_passing: bool = False


def texts(folder: Path) -> dict[str, bytes]:
    """What lies there, but for drafts that could not be removed, which are nobody's."""
    found = [path for path in folder.rglob("[!.]*") if path.is_file() and ".writing/" not in path.as_posix()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def write_ledger_file(folder: Path, n: int) -> None:
    ledger = LedgerFile(
        created=f"202{n}-01-01", scale="tiny", command="interp replicate", papers=[], environment={"packages": {}}
    )
    write_ledger(ledger, folder / "runs" / "ledger")


def read_ledger_file(folder: Path) -> object:
    file = folder / "runs" / "ledger" / "ledger.json"
    return json.loads(file.read_text(encoding="utf-8"))["created"] if file.exists() else None


def export_record(folder: Path, n: int) -> None:
    export(whole_record(), folder / "paper", figures=(), tables=("csv", "latex")[:n])


def stage_in(folder: Path):
    prompts = PromptSet("p", [Prompt(token_ids=(1, 2))])
    run = Unfinished(folder / PARTIAL / "s", "s", began=-1e6)
    return run.stage("capture", fresh_model("llama"), prompts, [np.array([1, 2])])


def read_stage(folder: Path) -> int:
    kept = stage_in(folder).load()
    return kept.n_done if kept else 0


def program_of(folder: Path) -> list[str] | None:
    """The files, once it can be loaded as a model: its configuration comes last."""
    home = folder / "program"
    return sorted(path.name for path in home.glob("[!.]*")) if (home / "config.json").exists() else None


def state_of_training(folder: Path) -> int | None:
    file = folder / STATE_NAME
    return torch.load(file, weights_only=False)["step"] if file.exists() else None


def save_state(folder: Path, n: int) -> None:
    plan = make_plan(Coin, COIN)
    state = initial_state(plan)
    state.step = n
    _save(state, plan, folder)


@cache
def small_capture():
    model = interp.load("tunnel:bijection-gpt-neox")
    return interp.collect(model, interp.sampled_prompts(model.task, 4), ["v"])


def digest_of_capture(folder: Path) -> str | None:
    return str(open_capture(folder / "c")["v"].sum()) if (folder / "c").exists() else None


def read_run(folder: Path) -> str | None:
    home = folder / "runs" / "r"
    if not home.exists():
        return None
    record = open_run(home)
    arrays = {name: {key: array.tolist() for key, array in f.arrays.items()} for name, f in record.findings.items()}
    return f"{record.to_frame().to_json()} {arrays} {(home / 'edits.json').read_text(encoding='utf-8')}"


def move_folder(folder: Path, n: int) -> None:
    """As a training, which is moved from unfinished work to its place."""
    work = folder / "runs" / PARTIAL / "work"
    with telling("moving"):
        make_folder(work / "steps")
        for name in ("card", "steps/1"):
            (work / name).write_bytes(b"new" * 100)
        move(work, folder / "runs" / "tunnel")


WRITERS = {
    "record with tables": Writer(lambda at, n: whole_record().write(at / "runs" / "r"), read_run, replaces=False),
    "capture": Writer(lambda at, n: small_capture().save(at / "c"), digest_of_capture, replaces=False),
    "tables for a paper": Writer(export_record, texts),
    "page": Writer(lambda at, n: write_page(at / "deep" / "report.html", GENERATOR + f"page {n}" * 5000), texts),
    "ledger": Writer(write_ledger_file, read_ledger_file),
    "program with noise": Writer(
        lambda at, n: write_noisy("chain", Noise(rotate=True, seed=n), at / "program"), program_of, replaces=False
    ),
    "moved folder": Writer(move_folder, lambda at: texts(at / "runs" / "tunnel"), replaces=False),
    "sweep": Writer(lambda at, n: write_sweep(f"task {n}", [], at), texts),
    "state of a training": Writer(save_state, state_of_training),
    "unfinished run": Writer(
        lambda at, n: stage_in(at)._write(n, 3, "batches", [(("a", 0), np.full(9, n))]), read_stage, in_passing=True
    ),
}


@contextmanager
def files_of_at_most(n_bytes: int) -> Iterator[None]:
    """The kernel lets no file grow further, whoever writes it."""
    resource = pytest.importorskip("resource", reason="this system limits no files")
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


def written_again(folder: Path, writer: Writer, faulty: AbstractContextManager) -> tuple[object, str]:
    """The second content, written over the first where something is faulty: what lay there, and what was told."""
    if writer.replaces:
        writer.write(folder, 1)
    before, told = writer.read(folder), ""
    with faulty, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            writer.write(folder, 2)
        except InterpError as error:
            assert error.asked and error.fix
            told = error.found
    assert not warned or writer.in_passing, warned[0].message
    return before, told + " ".join(str(warning.message) for warning in warned)


def written_to(folder: Path, writer: Writer, **faults: int) -> tuple[Disk, object, str]:
    """By a disk with faults: the disk, what lay there, and what was told."""
    folder.mkdir()
    disk = Disk(folder, **faults)
    return disk, *written_again(folder, writer, disk)


def failures(writer: Writer, tmp_path: Path, numbers: tuple[int, ...], at_most: int) -> set[str]:
    """A writer on disks that fail at a call each, at most so many, with the `numbers` in turn; the calls it told of."""
    disk, before, told = written_to(tmp_path / "none", writer)
    after, n_steps, told_of = writer.read(disk.folder), len(disk.steps), set()
    assert not told and after != before
    for i, step in enumerate(range(0, n_steps, -(-n_steps // at_most))):
        number = numbers[i % len(numbers)]
        disk, before, told = written_to(tmp_path / f"disk{step}", writer, fail_at=step, error=number)
        found, left = writer.read(disk.folder), {path.suffix for path in disk.folder.rglob("*")}
        where = disk.steps[step], os.strerror(number)
        assert os.strerror(number) in told or found == after, (where, told)
        assert found in (before, after), where
        assert not {".writing", ".lock"} & left or disk.steps[step].startswith(("unlink", "rmdir")), where
        if found == before:  # once the fault is mended
            writer.write(disk.folder, 2)
            assert writer.read(disk.folder) == after, where
        told_of |= {disk.steps[step].split()[0]} if told else set()
    return told_of


LONG = ("tables for a paper", "program with noise")


@pytest.mark.parametrize("name", quick([name for name in WRITERS if name not in LONG], WRITERS))
def test_a_writer_tells_of_a_fault_at_any_call_and_loses_nothing(tmp_path, name):
    told_of = failures(WRITERS[name], tmp_path, NUMBERS, at_most=20)
    assert {"fsync", "replace"} & told_of


@pytest.mark.stress
@pytest.mark.parametrize("number", NUMBERS, ids=errno.errorcode.get)
@pytest.mark.parametrize("name", WRITERS)
def test_a_writer_tells_of_each_error_at_any_call(tmp_path, name, number):
    at_most = 10_000 if number == errno.ENOSPC else 100  # a capture makes four hundred calls, most of them writes
    assert {"fsync", "replace"} & failures(WRITERS[name], tmp_path, (number,), at_most)


@pytest.mark.parametrize(
    "name", ["record with tables", "unfinished run", "ledger", "moved folder", "state of a training"]
)
def test_what_is_written_survives_kills_and_power_cuts_at_any_call(tmp_path, name):
    writer, seen = WRITERS[name], set()
    contents = (1, 2) if writer.replaces else (2,)
    (tmp_path / "whole").mkdir()
    wanted = [writer.read(tmp_path / "whole")]
    for n in contents:
        writer.write(tmp_path / "whole", n)
        wanted.append(writer.read(tmp_path / "whole"))
    for step in count():
        n_written, folder = 0, tmp_path / f"disk{step}"
        folder.mkdir()
        with Disk(folder, die_at=step) as disk, warnings.catch_warnings():
            warnings.simplefilter("error")  # damaged work is left aside with a warning
            with suppress(Died):
                for n in contents:
                    writer.write(folder, n)
                    n_written += 1
            found = [wanted.index(writer.read(state)) for state in disk.states(tmp_path / "state")]
        assert {*found} <= {n_written, n_written + 1}, disk.steps[-1]
        seen |= {*found}
        if not disk.is_dead:
            break
    assert step > 8 and seen == {*range(len(wanted))}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_the_kernel_cuts_off_is_told_whichever_library_writes_it(tmp_path, name):
    """Also pyarrow, safetensors and torch, which write past `os`. Of several files each is whole by itself."""
    writer, n_told = WRITERS[name], 0
    written_to(tmp_path / "whole", writer)
    whole = writer.read(tmp_path / "whole")
    for n_bytes in (0, 1 << 8, 1 << 13):
        folder = tmp_path / str(n_bytes)
        folder.mkdir()
        before, told = written_again(folder, writer, files_of_at_most(n_bytes))
        found, n_told = writer.read(folder), n_told + bool(told)
        is_whole = isinstance(whole, dict) and found.items() <= {*before.items(), *whole.items()}
        assert found == whole or (os.strerror(errno.EFBIG) in told and (found == before or is_whole)), told
        assert not [path for path in folder.rglob("*") if path.suffix == ".writing"]
        if told:
            writer.write(folder, 2)
        assert writer.read(folder) == whole
    assert n_told


@pytest.mark.stress
def test_a_training_tells_of_errors_at_every_call_and_resumes(tmp_path, monkeypatch):
    monkeypatch.setattr("interp.wind_tunnels.evaluation.checkpoint.N_EVAL", 20)
    plan = make_plan(Coin, COIN, keep=(0,))

    def weights(folder: Path) -> str | None:
        return weights_fingerprint(folder / "runs" / plan.name) if (folder / "runs" / plan.name).exists() else None

    training = Writer(lambda at, n: train_tunnel(plan, at / "runs"), weights, replaces=False)
    assert failures(training, tmp_path, NUMBERS, at_most=10_000) >= {"fsync", "replace"}


FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")


def call(*words: str, **named: object) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, "-m", "interp", *words]
    return subprocess.run(run, stderr=subprocess.PIPE, text=True, timeout=120, **named)  # pyrefly: ignore


@FULL
@pytest.mark.parametrize("words", quick([["--help"]], [["--help"], ["list", "probes"]]), ids=str)
def test_an_output_that_takes_no_more_is_told_in_a_sentence(words):
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = call(*words, stdout=full)
    assert done.returncode == 1
    assert done.stderr.startswith(f"interp: interp {' '.join(words)}: No space left on device\n  Check free space")
    assert done.stderr.count("\n") == 2


def test_a_reader_that_leaves_early_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    done = call("--help", stdout=writing)
    os.close(writing)
    assert done.stderr == "" and done.returncode in (0, 1)


LONG = "x" * 300
COMMANDS = (
    ["run", "-p", "orthogonality", "--n-pool", "20", "--out", LONG],
    ["study", "tunnel_training", "--out", LONG],
    ["certify", "orthogonality", "--scale", "smoke", "--out", LONG],
    ["replicate", "paper2", "--scale", "tiny", "--out", LONG],
    ["tunnel", "train", "coin", "--out", LONG],
    ["tunnel", "train", "coin", "--variant", LONG],
    ["report", LONG],
    ["export", LONG],
    ["view", LONG, "--no-browser"],
    ["diff", LONG, LONG],
    ["run", "--from", LONG],
    ["run", "--model", LONG],
    ["run", "--prompts", LONG],
    ["tunnel", "eval", LONG],
)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words).replace(LONG, "LONG"))
def test_a_name_that_is_too_long_is_told_in_words(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    code, said = answer(monkeypatch, capsys, " ".join(words))
    assert code in (1, 2) and said
    left = [*tmp_path.rglob("*")]
    assert not (left if "--variant" in words else [path for path in left if not path.is_dir()])


@pytest.mark.skipif(os.name != "posix", reason="a shell that closes streams")
def test_closed_streams_take_nothing_and_end_nothing():
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        done = subprocess.run(
            ["sh", "-c", f"{sys.executable} -m interp list studies {closed}"], capture_output=True, timeout=120
        )
        assert done.returncode == 0 and done.stderr == b"", (closed, done.stderr)


@pytest.mark.skipif(os.name != "posix", reason="a folder that is removed while it is the current one")
def test_a_current_folder_that_was_removed_is_named(tmp_path):
    command = f"cd {tmp_path} && rmdir {tmp_path} && {sys.executable} -m interp run --n-pool 20"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and done.stderr.startswith(
        "interp: interp run --n-pool 20: the current folder has been"
    )
