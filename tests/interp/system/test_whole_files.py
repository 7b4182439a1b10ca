"""Files and folders that are there whole or not at all; faults and power cuts are in `tests/test_disk_errors.py`."""

import errno
import os
import sys
import time
import types
from pathlib import Path

import pytest

from interp.system import whole_files
from interp.system.locks import one_at_a_time
from interp.system.whole_files import file_names, hidden_folder, is_hidden, make_folder, move, shortened, writing
from tests.faulty_disk import Disk


@pytest.mark.parametrize("fault", [OSError, KeyboardInterrupt, FileNotFoundError])
def test_the_file_is_the_old_one_until_the_new_one_is_whole_and_stays_where_it_failed(tmp_path, fault):
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(fault), writing(path) as draft:
        if fault is not FileNotFoundError:  # a block that writes nothing
            draft.write_text("ne")
            raise fault
    assert (path.read_text(), [*tmp_path.iterdir()]) == ("old", [path])
    with writing(path) as draft:
        draft.write_text("new")
        assert path.read_text() == "old"
        assert draft.parent.parent == tmp_path and is_hidden(draft.parent), "a name that is ignored"
    assert (path.read_text(), [*tmp_path.iterdir()]) == ("new", [path])


def test_a_folder_is_there_whole_and_takes_the_place_of_none(tmp_path):
    with writing(tmp_path / "above" / "run") as draft:
        (draft / "tables").mkdir(parents=True)
        (draft / "tables" / "a").write_text("1")
        assert not (tmp_path / "above" / "run").exists()
    for make in (Path.mkdir, Path.touch):
        with pytest.raises(FileExistsError), writing(tmp_path / "above" / "run") as draft:
            make(draft)
    assert [path.name for path in (tmp_path / "above").rglob("*")] == ["run", "tables", "a"]


def left_by_a_kill(folder: Path, age: float = 0.0) -> Path:
    """A hidden folder as a killed process leaves it, `age` seconds ago."""
    with hidden_folder(folder / "elsewhere") as made:
        (made / "half").write_text("of something long")
        left = made.rename(folder / made.name)
    (folder / "elsewhere").rmdir()
    for path in (*left.iterdir(), left):
        os.utime(path, (time.time() - age,) * 2)
    return left


def test_drafts_that_were_left_are_removed_and_writers_have_their_own(tmp_path):
    left = [left_by_a_kill(tmp_path, age) for age in (90_000, 3600, 90_000)]
    (left[2] / "half").touch()  # begun long ago, and still written
    with writing(tmp_path / "a.json") as draft:
        draft.write_text("new")
    assert {*tmp_path.iterdir()} == {tmp_path / "a.json", *left[1:]}, "the others may be going on"
    with writing(tmp_path / "a.json") as one, writing(tmp_path / "a.json") as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
    assert (tmp_path / "a.json").read_text() == "one", "the last to be whole"


def test_a_folder_is_moved_without_the_drafts_that_were_cut_off_in_it(tmp_path):
    make_folder(tmp_path / "work" / "steps")
    left_by_a_kill(tmp_path / "work" / "steps")
    (tmp_path / "work" / "steps" / "4").write_text("whole")
    move(tmp_path / "work", tmp_path / "done")
    assert [path.name for path in tmp_path.rglob("*")] == ["done", "steps", "4"]


def test_names_as_long_as_a_file_system_takes_are_cut_between_letters(tmp_path):
    for name in ("x" * 255, "\N{SLIGHTLY SMILING FACE}" * 63):
        with writing(tmp_path / name) as draft:
            draft.write_text("new")
    assert len(list(tmp_path.iterdir())) == 2
    assert shortened("日本語", 7) == "日本" and shortened("abc", 2) == "ab" and shortened("abc") == "abc"


def whole_folder(folder: Path) -> None:
    with writing(folder / "runs" / "run") as draft:
        (draft / "tables").mkdir(parents=True)
        for name in ("run.json", "tables/a", "tables/b"):
            (draft / name).write_bytes(b"new" * 100)


def is_whole(folder: Path) -> bool:
    files = [folder / "runs" / "run" / name for name in ("run.json", "tables/a", "tables/b")]
    return all(file.exists() and file.read_bytes() == b"new" * 100 for file in files)


@pytest.mark.parametrize("without", ["of a file", "of a folder", "of names above"])
def test_the_disk_finds_a_write_that_is_not_synced(tmp_path, monkeypatch, without):
    """The faults that `writing` is there for: the layer has to show each of them."""
    real = whole_files._sync

    def careless(path: Path) -> None:
        is_above = path.is_dir() and not any(is_hidden(part) for part in (path, *path.parents))
        kind = "of names above" if is_above else "of a folder" if path.is_dir() else "of a file"
        if kind != without:
            real(path)

    monkeypatch.setattr(whole_files, "_sync", careless)
    (tmp_path / "disk").mkdir()
    with Disk(tmp_path / "disk") as disk:
        whole_folder(disk.folder)
        assert not all(map(is_whole, disk.states(tmp_path / "state")))


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_that_cannot_sync_is_written_all_the_same(tmp_path, monkeypatch, number):
    def refuse(descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    whole_folder(tmp_path)
    assert is_whole(tmp_path)


def test_macos_empties_the_cache_of_the_drive_where_it_can_and_windows_syncs_no_folder(tmp_path, monkeypatch):
    asked, real = [], os.open
    (tmp_path / "a").touch()

    def full_sync(number, what):
        asked.append(what)
        if len(asked) > 1:
            raise OSError(errno.ENOTSUP, "not here")

    with monkeypatch.context() as macos:
        macos.setattr(sys, "platform", "darwin")
        macos.setattr(os, "fsync", lambda number: asked.append("fsync"))
        macos.setitem(sys.modules, "fcntl", types.SimpleNamespace(F_FULLFSYNC=51, fcntl=full_sync))
        whole_files._sync(tmp_path), whole_files._sync(tmp_path)
    assert asked == [51, 51, "fsync"]
    with monkeypatch.context() as windows:
        windows.setattr(os, "open", lambda path, flags: asked.append((path, flags)) or real(path, flags))
        windows.setattr(whole_files.os, "name", "nt")
        whole_files._sync(tmp_path / ""), whole_files._sync(file := tmp_path / "a")
    assert asked[3:] == [(file, os.O_RDWR)]


def test_a_lock_whose_file_is_removed_while_it_is_taken_is_taken_again(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl", reason="the lock of Unix")
    lock, flock, taken = tmp_path / "work.lock", fcntl.flock, []

    def late(number, operation):
        if not lock.exists():
            return flock(number, operation)  # whether the folder can lock is tried on a file of its own
        if not taken:
            lock.unlink()  # the one before is done, between our opening and our locking
        taken.append(operation)
        return flock(number, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.warns(RuntimeWarning, match="waiting"), one_at_a_time(lock, "counting"):
        assert len(taken) > 1 and lock.is_file(), "a third process meets the same file"
    assert not lock.exists()


def test_a_lock_file_that_stays_as_on_windows_is_no_error_and_is_free(tmp_path, monkeypatch):
    def refused(self, missing_ok=False):
        raise PermissionError(errno.EACCES, "the file is in use", str(self))

    lock, n_inside = tmp_path / "work.lock", 0
    with pytest.raises(ZeroDivisionError), one_at_a_time(lock, "counting"):
        raise ZeroDivisionError
    assert not lock.exists(), "work that failed leaves no lock"
    monkeypatch.setattr(Path, "unlink", refused)
    for _ in range(2):
        with one_at_a_time(lock, "counting"):
            n_inside += 1
    assert n_inside == 2 and lock.is_file()


def test_names_become_names_that_every_system_takes_and_others_stay():
    plain = ["scored", "last", "by layer", "größe", "a.b", "x" * 100]
    assert file_names(plain) == {name: name for name in plain}
    odd = [*["end:pos", "end?pos", "a/b", "a\\b", "Pos", "pos", "dot."], "blank ", "", "x" * 101, "日" * 99, "a\nb"]
    files = file_names(odd)
    assert len({file.casefold() for file in files.values()}) == len(odd)
    for name, file in files.items():
        assert file != name and not set(file) & set('<>:"/\\|?*\n') and len(file.encode()) <= 100
        assert file_names([name])[name] == file or name in ("Pos", "pos"), "another name does not change it"


def test_what_lay_in_a_folder_that_another_process_removes_at_once_is_moved(tmp_path, monkeypatch):
    (tmp_path / "partial" / "work").mkdir(parents=True)
    renamed = Path.replace

    def replace(self, target):
        renamed(self, target)
        self.parent.rmdir()

    monkeypatch.setattr(Path, "replace", replace)
    move(tmp_path / "partial" / "work", tmp_path / "done")
    assert [path.name for path in tmp_path.iterdir()] == ["done"]
