"""No file of the user's is removed or replaced: every call of the product that could is listed here, and tried.

`REMOVES` has the functions that remove or rename, with what makes sure that it is ours; `WRITES` those that write, with
where to. A function with such a call that is in neither list is a failure, and so is an entry without a call.
"""

import ast
import os
import time
from pathlib import Path

import pytest
from interp.reports.continuations import render as render_continuations
from interp.reports.index import render as render_index
from interp.wind_tunnels.plans.rebuild import rebuild
from interp.wind_tunnels.tasks.bijection import Bijection

from interp.errors import InterpError
from interp.records.index import Listed
from interp.records.unfinished import PARTIAL, Unfinished
from interp.running.generate import Continuations
from interp.system.locks import one_at_a_time
from interp.system.whole_files import hidden_folder, move, writing
from tests.paths import ROOT
from tests.test_disk_errors import WRITERS

OURS = "what it has written itself just now"
REMOVES = {
    "interp/system/locks.py:one_at_a_time": "an empty file with a name of ours",
    "interp/system/whole_files.py:hidden_folder": "its own folder, and marked ones",
    "interp/system/whole_files.py:move": "marked folders; what it replaces was looked at by `writing`",
    "interp/system/whole_files.py:remove_empty": "what is empty",
    "interp/system/whole_files.py:remove_kept": "kept work, by its names",
    "wind_tunnels/plans/rebuild.py:rebuild": OURS,
    "wind_tunnels/plans/train_tunnel.py:_train_into": OURS,
}
IN_DRAFT = "in the draft of `writing`"
IN_HIDDEN = "in a hidden folder, or the draft of `writing`"
SCRATCH = "in a temporary folder"
NEW = "in a folder that training has begun in, or that is new"
WRITES = {
    "interp/capture.py:_write": IN_DRAFT,
    "interp/self_check/witnesses.py:_transformer_lens": SCRATCH,
    "interp/ledger/ledger.py:write_ledger": IN_DRAFT,
    "interp/lens/files.py:save_lens": IN_DRAFT,
    "interp/loading/load.py:_keep": IN_DRAFT,
    "interp/loading/tokenizer.py:_tokenizer_in": SCRATCH,
    "interp/records/record.py:_write_findings": IN_DRAFT,
    "interp/records/record.py:save": IN_DRAFT,
    "interp/records/token_strip.py:write_strips": IN_DRAFT,
    "interp/records/tunnel_card.py:write_card": NEW,
    "interp/records/unfinished.py:_write_zip": IN_DRAFT,
    "interp/system/array_files.py:__init__": IN_HIDDEN,
    "interp/system/array_files.py:put": IN_HIDDEN,
    "interp/system/whole_files.py:hidden_folder": "in its own folder",
    "reports/export.py:_claim": IN_DRAFT,
    "reports/export.py:_draw": IN_DRAFT,
    "reports/export.py:export": IN_DRAFT,
    "reports/page/render.py:write_page": IN_DRAFT,
    "wind_tunnels/evaluation/checkpoint.py:_write_curve": NEW,
    "wind_tunnels/plans/sweep.py:_write": IN_DRAFT,
    "wind_tunnels/programs/compiling.py:write_program": SCRATCH,
    "wind_tunnels/programs/noise.py:write_noisy": IN_DRAFT,
    "wind_tunnels/networks/weights.py:save_weights": NEW,
    "wind_tunnels/training/loop.py:_save": IN_DRAFT,
}
PRODUCT = ("interp", "probes", "reports", "prompts", "wind_tunnels")
REMOVING = {"unlink", "rmtree", "rmdir", "removedirs", "rename", "renames"}
WRITING = {"write_text", "write_bytes", "touch", "truncate", "save_pretrained", "save_file", "to_parquet",
           "write_table", "write_images", "symlink_to", "hardlink_to", "copyfile", "copy2", "copytree"}  # fmt: skip


WRITE_MODES = ("w", "a", "x", "r+", "w+", "a+")


def kind_of(call: ast.Call) -> str | None:
    """Whether a call removes or writes files, by its name and what it is given."""
    on = call.func.value if isinstance(call.func, ast.Attribute) else None
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    is_of = isinstance(on, ast.Name) and on.id
    modes = [a.value for a in (*call.args, *(k.value for k in call.keywords)) if isinstance(a, ast.Constant)]
    renames = name == "replace" and on is not None and len(call.args) == 1 and not call.keywords
    of_columns = any(k.arg == "columns" for k in call.keywords)  # of a frame
    if (name in REMOVING and not of_columns) or renames or (name == "remove" and is_of == "os"):
        return "removes"
    opens = name in ("open", "ZipFile") and any(isinstance(m, str) and m.strip("bt") in WRITE_MODES for m in modes)
    return "writes" if name in WRITING or opens else None


def places(source: str, file: str) -> dict[str, set[str]]:
    """The functions of a module that remove, and those that write."""
    found: dict[str, set[str]] = {"removes": set(), "writes": set()}

    def walk(node: ast.AST, function: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Call) and (kind := kind_of(child)):
                found[kind].add(f"{file}:{function}")
            walk(child, child.name if isinstance(child, ast.FunctionDef) else function)

    walk(ast.parse(source), "")
    return found


def test_every_call_that_removes_or_writes_is_listed():
    """Those that are listed show that the walk sees such calls."""
    removes: set[str] = set()
    writes: set[str] = set()
    for file in (file for room in PRODUCT for file in (ROOT / room).rglob("*.py")):
        found = places(file.read_text(encoding="utf-8"), file.relative_to(ROOT).as_posix())
        removes, writes = removes | found["removes"], writes | found["writes"]
    assert removes == set(REMOVES)
    assert writes == set(WRITES)


LURES = (
    ".notes.writing/thesis.txt", ".a.0123abcd.writing", ".interp-here-99999999-abc/0.safetensors",
    ".interp-notes/a.txt", f".interp-{'0' * 32}.writing/thesis.txt", f".interp-{'1' * 32}.writing",
    ".poetry.lock", ".work.lock",
    f"{PARTIAL}/notes.txt", f"{PARTIAL}/s/notes.txt", f"{PARTIAL}/s/ab.zip", f"{PARTIAL}/c/again/data.json",
    "training.pt.old", "thesis.tex", "deep/draft",
)  # fmt: skip
"""What users may have beside their runs; all of it as old as can be."""


def laid(folder: Path, *more: str) -> dict[Path, bytes]:
    """A folder full of the user's files, and those files."""
    files = {folder / name: f"mine: {name}".encode() for name in (*LURES, *more)}
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - 1e6,) * 2)
    return files


def assert_whole(files: dict[Path, bytes]) -> None:
    assert {path: path.read_bytes() if path.is_file() else None for path in files} == files


def finished_run(at: Path) -> None:
    run = Unfinished(at / PARTIAL / "s", "s")
    (at / PARTIAL / "s" / "0123abcd.zip").touch()
    run.remove()
    assert not (at / PARTIAL / "s" / "0123abcd.zip").exists()


def moved(at: Path) -> None:
    with writing(at / "work" / "a") as draft:
        draft.write_text("whole")
    (at / "work" / ".notes.writing").write_text("mine")
    move(at / "work", at / "done")
    assert (at / "done" / ".notes.writing").read_text() == "mine"


def in_turns(at: Path) -> None:
    with one_at_a_time(at / ".work.lock", "counting"):
        pass


def streamed(at: Path) -> None:
    with hidden_folder(at):
        pass


@pytest.mark.parametrize("does", [finished_run, moved, in_turns, streamed])
def test_what_removes_leaves_the_users_files(tmp_path, does):
    mine = laid(tmp_path)
    does(tmp_path)
    assert_whole(mine)


WRITERS_OF_NAMES = {
    **{name: each.write for name, each in WRITERS.items() if not each.in_passing and "state" not in name},
    "index": lambda at, n: render_index(Listed(at, (), (), (), 0)),
    "continuations": lambda at, n: render_continuations(Continuations("m", (), "greedy", ()), at / "page.html"),
}
"""Kept work has names that nobody else chooses; the state of a training is read, and refused, before it is written."""


@pytest.mark.parametrize("name", WRITERS_OF_NAMES)
def test_no_writer_replaces_a_file_of_the_users(tmp_path, name):
    first = tmp_path / "first"
    first.mkdir()
    WRITERS_OF_NAMES[name](first, 2)
    made = [path.relative_to(first).as_posix() for path in first.rglob("*") if path.is_file()]
    for i, file in enumerate(made):
        if Path(file).name.startswith(".interp-"):
            continue
        mine = laid(tmp_path / str(i), file)
        with pytest.raises(InterpError, match=r"exists|did not write|no export wrote|another model"):
            WRITERS_OF_NAMES[name](tmp_path / str(i), 2)
        assert_whole(mine)


def test_a_rebuild_leaves_another_checkpoint_alone(tmp_path):
    mine = laid(tmp_path, "model.safetensors")
    with pytest.raises(InterpError, match="something else"):
        rebuild(ROOT / "wind_tunnels" / "checkpoints" / "bijection-gpt-neox", Bijection, tmp_path)
    assert_whole(mine)
