"""A disk that loses what was not brought to it: a layer over `os` for tests of what survives.

Inside `Disk(folder)` every call that changes something under the folder, or brings it to the disk, is a step. At a step
that is named the disk can fail (`OSError`) or the program can die: from then on nothing it does has any effect, as
after SIGKILL. `states` lays out every folder that somebody might find after a power cut at this moment:

- a file that was never synced is empty or cut off, one that was changed since has its old content or half of the new;
- in a folder that was not synced since it changed, names are as they are or as they were; a rename from one folder to
  another happens in both or in neither, as in the journal of a file system.

Libraries that write past Python's `os` (pyarrow, safetensors, torch) need no watching: only what was synced counts.
"""

import builtins
import hashlib
import io
import os
import shutil
from collections.abc import Iterator
from itertools import chain, combinations
from pathlib import Path


class Died(BaseException):
    """The process was killed here."""


CHANGING = ("replace", "rename", "mkdir", "unlink", "remove", "rmdir")


class _Watched(io.FileIO):
    """A file each of whose writes is a step; what Python holds back is written when it is full, flushed or closed."""

    def __init__(self, disk: "Disk", path: str, mode: str):
        super().__init__(path, mode)
        self.disk, self.path = disk, path

    def write(self, data: bytes) -> int:  # pyrefly: ignore[bad-override]
        self.disk._step("write", self.path)
        return super().write(data)


class Disk:
    """The layer, while its block is open; what lay in the folder before is on the disk."""

    def __init__(self, folder: Path, die_at: int | None = None, fail_at: int | None = None, error: int = 0):
        self.folder, self.attic = folder.resolve(), folder.resolve().with_name(f"{folder.name}.attic")
        self.die_at, self.fail_at, self.error = die_at, fail_at, error
        self.steps: list[str] = []
        self.is_dead = False
        self._descriptors: dict[int, tuple[str, int]] = {}
        self._content: dict[int, bytes] = {}
        self._names: dict[int, dict[str, tuple[int, bool]]] = {}
        self._ties: set[tuple[int, int]] = set()

    def __enter__(self) -> "Disk":
        self.attic.mkdir()
        for path in (self.folder, *self.folder.rglob("*")):
            self._synced(path)
        self._real = {name: getattr(os, name) for name in (*CHANGING, "open", "close", "fsync")}
        self._real_open = io.open
        for name in CHANGING:
            setattr(os, name, lambda *given, _name=name, **named: self._change(_name, *given, **named))
        os.open, os.close, os.fsync = self._os_open, self._os_close, self._fsync
        io.open = builtins.open = self._open
        return self

    def __exit__(self, *error: object) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)
        io.open = builtins.open = self._real_open

    # --- the calls ----------------------------------------------------------------------------------------------------

    def _step(self, what: str, path: str) -> None:
        if self.is_dead:
            raise Died
        self.steps.append(f"{what} {os.path.relpath(path, self.folder)}")
        if self.die_at == len(self.steps) - 1:
            self.is_dead = True
            raise Died
        if self.fail_at == len(self.steps) - 1:
            raise OSError(self.error, os.strerror(self.error), path)

    def _at(self, path: object, dir_fd: int | None = None) -> str | None:
        """The absolute path, if it lies in the folder."""
        if isinstance(path, int):
            return self._opened(path)
        name = os.fspath(path)  # pyrefly: ignore[bad-argument-type]
        above = "" if dir_fd is None else self._opened(dir_fd)
        if above is None:
            return None
        whole = os.path.abspath(os.path.join(above, os.fsdecode(name)))
        return whole if (whole + os.sep).startswith(str(self.folder) + os.sep) else None

    def _opened(self, number: int) -> str | None:
        """What a descriptor was opened for; its number may have been closed in other ways and used again."""
        path, inode = self._descriptors.get(number, ("", None))
        return path if inode == os.fstat(number).st_ino else None

    def _change(self, name: str, path: object, *given: object, **named: object) -> object:
        at = self._at(path, named.get("dir_fd"))  # pyrefly: ignore[bad-argument-type]
        if at is None:
            return self._real[name](path, *given, **named)
        self._step(name, at)
        if name == "mkdir":
            return self._real[name](path, *given, **named)
        if name in ("replace", "rename"):
            target = str(given[0])
            if os.path.isfile(target) and os.path.isfile(at):
                self._bury(target)
            source, goal = os.path.dirname(at), os.path.dirname(os.path.abspath(target))
            if source != goal:
                self._ties.add((os.stat(source).st_ino, os.stat(goal).st_ino))
            return self._real[name](at, target)
        if name == "rmdir" and not os.listdir(at):
            self._real["rename"](at, self.attic / f"folder-{len(self.steps)}")  # its number is not to come again
            return None
        if name in ("unlink", "remove") and os.path.isfile(at):
            self._bury(at)
        return self._real[name](at)

    def _bury(self, path: str) -> None:
        """Keep the number of a file that goes, which a power cut may bring back."""
        os.link(path, self.attic / f"file-{len(self.steps)}")

    def _os_open(self, path: object, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        at = self._at(path, dir_fd)
        if at is not None and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
            self._step("open", at)
        elif self.is_dead and at is not None:
            raise Died
        number = self._real["open"](path, flags, mode, dir_fd=dir_fd)
        if at is not None:
            self._descriptors[number] = at, os.fstat(number).st_ino
        return number

    def _os_close(self, number: int) -> None:
        self._descriptors.pop(number, None)
        self._real["close"](number)

    def _open(self, file: object, mode: str = "r", *given: object, **named: object) -> object:
        at = self._at(file) if not isinstance(file, int) else None
        if at is None or not set(mode) & set("wax+"):
            return self._real_open(file, mode, *given, **named)  # pyrefly: ignore[no-matching-overload]
        self._step("open", at)
        raw = _Watched(self, at, mode.translate({ord("b"): None, ord("t"): None}))
        binary = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return binary if "b" in mode else io.TextIOWrapper(binary, *given[1:], **named)  # pyrefly: ignore

    def _fsync(self, number: int) -> None:
        at = self._opened(number)
        if at is None:
            return
        self._step("fsync", at)
        self._synced(Path(at))

    def _synced(self, path: Path) -> None:
        number = path.stat().st_ino
        if path.is_dir():
            self._names[number] = self._listing(path)
            self._ties = {tie for tie in self._ties if number not in tie}
        else:
            self._content[number] = path.read_bytes()

    @staticmethod
    def _listing(path: Path) -> dict[str, tuple[int, bool]]:
        return {entry.name: (entry.inode(), entry.is_dir()) for entry in os.scandir(path)}

    # --- what a power cut leaves --------------------------------------------------------------------------------------

    def states(self, into: Path) -> Iterator[Path]:
        """Folders, one after the other in the same place: as a killed process leaves it, and after power cuts."""
        seen = set()
        for names, content in self._possible():
            tree = dict(self._laid_out(self.folder.stat().st_ino, names, content, ""))
            mark = hashlib.sha256(repr(sorted(tree.items())).encode()).hexdigest()
            if mark in seen:
                continue
            seen.add(mark)
            shutil.rmtree(into, ignore_errors=True)
            into.mkdir()
            for name, data in tree.items():
                if data is None:
                    (into / name).mkdir(parents=True, exist_ok=True)
                else:
                    (into / name).parent.mkdir(parents=True, exist_ok=True)
                    (into / name).write_bytes(data)
            yield into

    def _possible(self) -> Iterator[tuple[dict, dict]]:
        now: dict[int, dict[str, tuple[int, bool]]] = {}
        written: dict[int, bytes] = {}
        for path in (self.folder, *self.folder.rglob("*")):
            if path.is_dir():
                now[path.stat().st_ino] = self._listing(path)
            else:
                written[path.stat().st_ino] = path.read_bytes()
        yield now, written  # killed, with power
        numbers = {number for listing in (*now.values(), *self._names.values()) for number, _ in listing.values()}
        lost: list[dict[int, bytes]] = [{}, {}]
        for number in numbers & written.keys():
            synced, current = self._content.get(number), written[number]
            is_same = synced is not None and synced == current
            lost[0][number] = current if is_same else (synced or b"")
            lost[1][number] = current if is_same else current[: len(current) // 2]
        changed = [number for number in now if now[number] != self._names.get(number, {})]
        for kept in chain.from_iterable(combinations(changed, n) for n in range(len(changed) + 1)):
            if any((source in kept) != (goal in kept) for source, goal in self._ties if source in changed):
                continue
            names = {**now, **self._names, **{number: now[number] for number in kept}}
            for number in set(changed) - set(kept):
                names[number] = self._names.get(number, {})
            for content in lost:
                yield names, content

    def _laid_out(self, number: int, names: dict, content: dict, at: str) -> Iterator[tuple[str, bytes | None]]:
        for name, (inner, is_folder) in names.get(number, {}).items():
            path = f"{at}{name}"
            if is_folder:
                yield path, None
                yield from self._laid_out(inner, names, content, f"{path}/")
            else:
                yield path, content.get(inner, self._content.get(inner, b""))
