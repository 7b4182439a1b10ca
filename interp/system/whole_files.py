"""A file or folder is there whole or not at all, whatever stops the program that writes it, a power cut included.

What is written goes into a draft, in a hidden folder beside its place. The draft is brought to the disk (`fsync`),
takes its place by a rename, and the folder that now names it is brought to the disk too: without the first a power cut
may leave an empty file under the new name, without the second the name may be gone.

What is removed from a folder of the user's was made here: a hidden folder has a name that nobody else chooses and a
mark inside, kept work has names that its owner tells, and a file is replaced only where `is_ours` knows it.
"""

import errno
import os
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

from interp.errors import RecordError

_HIDDEN = re.compile(r"\.interp-[0-9a-f]{32}\.writing")
_MARK = ".made-by-interp"
"""What a hidden folder of ours is called, and the file in it that says so."""

LONGEST_NAME = 255
"""Bytes of the name of a file or folder, on every usual file system."""

_PORTABLE = re.compile(r"\w([\w. -]*[\w-])?")
"""A name of characters that every system takes in names of files."""

_LONGEST_PART = 100
"""Bytes of a user's own name in the name of a file, which has other parts."""

_ABANDONED = 24 * 3600
"""Seconds without a change after which a hidden folder belongs to nobody: the process that wrote it was killed."""

_AGAIN = 10
"""Times that a folder is made, where others remove empty ones above it."""

_NEVER_SYNCED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
"""What file systems answer that cannot bring something to the disk: some over a network, and some in memory."""

_FAULTS = (
    "ENOSPC", "EDQUOT", "EROFS", "EACCES", "EPERM", "ENAMETOOLONG", "EIO", "EFBIG", "ESTALE", "EMFILE", "ENFILE",
)  # fmt: skip
FAULTS = {getattr(errno, name) for name in _FAULTS if hasattr(errno, name)}
"""What a system answers that no program of ours can mend: the user can."""

_FIX = "Check free space and permissions there, or choose another folder."

TAKEN, ELSEWHERE = "a file or folder of this name exists", "Choose another name, or move the old one away."
"""What is found where a name is taken, and what to do."""


@contextmanager
def telling(asked: str, fix: str = _FIX) -> Iterator[None]:
    """An `OSError` of the block becomes a `RecordError`, in words."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename and str(error.filename) not in asked else ""
        fix = ELSEWHERE if error.strerror == TAKEN else fix
        raise RecordError(asked=asked, found=f"{error.strerror or error}{where}", fix=fix) from error


@contextmanager
def writing(path: Path, is_ours: Callable[[Path], bool] = lambda path: True) -> Iterator[Path]:
    """A draft that becomes the file or folder at the end of the block; a block that failed leaves nothing.

    A file takes the place of one that was there and `is_ours`; for another, and for a folder, this is a
    `FileExistsError`. Whoever writes the same file at the same time has a draft of its own, and the last one stays.
    Missing folders above are made.
    """
    if path.is_file() and not is_ours(path):
        raise FileExistsError(errno.EEXIST, "interp did not write the file of this name; move it away", str(path))
    with hidden_folder(path.parent) as folder:
        yield folder / "draft"
        move(folder / "draft", path)


def begins_with(words: str) -> Callable[[Path], bool]:
    """Whether a file begins so: what `writing` asks of one that it replaces."""

    def is_so(path: Path) -> bool:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(len(words)) == words

    return is_so


@contextmanager
def hidden_folder(beside: Path) -> Iterator[Path]:
    """A folder for the time of the block; those that killed processes left there long ago are removed."""
    make_folder(beside)
    for left in beside.glob(".interp-*"):
        with suppress(OSError):  # another process may be removing it
            last_change = max(path.lstat().st_mtime for path in (left, *left.rglob("*")))
            if is_hidden(left) and time.time() - last_change > _ABANDONED:
                shutil.rmtree(left)
    folder = beside / f".interp-{token_hex(16)}.writing"
    folder.mkdir()
    try:
        (folder / _MARK).touch()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def is_hidden(path: Path) -> bool:
    """Whether this is a hidden folder of ours: of a write that goes on, or that was cut off."""
    if _HIDDEN.fullmatch(path.name) is None or path.is_symlink() or not path.is_dir():
        return False
    return (path / _MARK).is_file() or not any(path.iterdir())


def remove_kept(folder: Path, names: str) -> None:
    """Remove the files of a folder that are called so, from end to end, and then the folder where nothing is left."""
    with suppress(OSError):  # never made, or another process has just removed it
        for path in [*folder.iterdir()]:
            if is_hidden(path):
                shutil.rmtree(path)
            elif path.is_file() and re.fullmatch(names, path.name):
                path.unlink()
        remove_empty(folder)


def remove_empty(folder: Path) -> None:
    """Remove a folder, unless something is in it or another process was first."""
    with suppress(OSError):
        folder.rmdir()


def file_names(names: Iterable[str]) -> dict[str, str]:
    """Each name as a part of file names that every system takes, no two alike where case does not count.

    A name is itself unless it has other characters than letters, digits, `_`, `-`, `.` and blanks, is longer than 100
    bytes, or differs from another in case only: then it is what can be kept of it, and a digest.
    """
    found = dict.fromkeys(names, "")
    n_alike = Counter(name.casefold() for name in found)
    for name in found:
        is_long = len(name.encode("utf-8", errors="replace")) > _LONGEST_PART
        is_itself = _PORTABLE.fullmatch(name) and not is_long and n_alike[name.casefold()] == 1
        kept = "".join(c if c.isalnum() or c in "-_" else "-" for c in name)
        digest = sha256(name.encode("utf-8", errors="replace")).hexdigest()[:8]
        found[name] = name if is_itself else f"{shortened(kept, 40)}-{digest}"
    return found


def shortened(name: str, n_bytes: int = _LONGEST_PART) -> str:
    """As much of the beginning of a name as so many bytes hold."""
    return name.encode("utf-8")[:n_bytes].decode("utf-8", errors="ignore")


def move(source: Path, target: Path) -> None:
    """Rename a file or folder, whole: all of it is on the disk before, its name after, and no draft comes along."""
    for draft in filter(is_hidden, [*source.rglob(".interp-*")]):
        shutil.rmtree(draft, ignore_errors=True)
    bring_to_disk(source)
    taken = FileExistsError(errno.EEXIST, TAKEN, str(target))
    if (source.is_dir() and target.exists()) or target.is_dir():
        raise taken
    try:
        source.replace(target)
    except OSError as error:
        if source.is_dir() and target.exists():  # just now, by another process
            raise taken from error
        raise
    for folder in {source.parent, target.parent}:
        with suppress(FileNotFoundError):  # it was left empty, and another process has just removed it
            _sync(folder)


def bring_to_disk(path: Path) -> None:
    """Wait until a file, or a folder with everything in it, would survive a power cut."""
    for part in (*path.rglob("*"), path):
        _sync(part)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, and bring their names to the disk."""
    for attempt in range(_AGAIN):
        missing = [above for above in (folder, *folder.parents) if not above.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for made in missing:
                _sync(made.parent)
            return
        except FileNotFoundError:  # one above was empty, and another process has just removed it
            if attempt == _AGAIN - 1:
                raise


def _sync(path: Path) -> None:
    is_folder = path.is_dir()
    if is_folder and os.name == "nt":
        return  # names are in the journal there, and folders cannot be opened
    try:
        number = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
        try:
            _flush(number)
        finally:
            os.close(number)
    except OSError as error:
        may_not_list = is_folder and error.errno == errno.EACCES
        if error.errno not in _NEVER_SYNCED and not may_not_list:
            raise


def _flush(number: int) -> None:
    if sys.platform == "darwin":  # its fsync leaves data in the cache of the drive
        import fcntl

        with suppress(OSError):  # not every file system there can do more
            fcntl.fcntl(number, fcntl.F_FULLFSYNC)
            return
    os.fsync(number)
