"""Atomic writing of files and folders, also under a power cut.

A draft in a hidden folder beside the target is synced (`fsync`) and renamed, and then its folder is synced: without the
first a power cut may leave an empty file, without the second no file. Only files of interp are removed or replaced: a
hidden folder has a unique name and a mark inside, and files are recognised by name or by `is_ours`.
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
"""The name of a hidden folder, and the file in it that marks it."""

LONGEST_NAME = 255
"""Bytes of the name of a file or folder, on every usual file system."""

_PORTABLE = re.compile(r"\w([\w. -]*[\w-])?")
"""A name of characters that every system allows in file names."""

_LONGEST_PART = 100
"""Bytes of a user's name in a file name, which has other parts."""

_ABANDONED = 24 * 3600
"""Seconds without a change after which a hidden folder is abandoned."""

_AGAIN = 10
"""Attempts to make a folder while other processes remove empty ones above it."""

_NEVER_SYNCED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
"""Errors of file systems that cannot sync: some over a network, and some in memory."""

_FAULTS = (
    "ENOSPC", "EDQUOT", "EROFS", "EACCES", "EPERM", "ENAMETOOLONG", "EIO", "EFBIG", "ESTALE", "EMFILE", "ENFILE",
)  # fmt: skip
FAULTS = {getattr(errno, name) for name in _FAULTS if hasattr(errno, name)}
"""Errors of the system that only the user can correct."""

_FIX = "Check free space and permissions there, or choose another folder."

TAKEN, ELSEWHERE = "a file or folder of this name exists", "Choose another name, or move the old one away."
"""The message for a name that is taken."""


@contextmanager
def telling(asked: str, fix: str = _FIX) -> Iterator[None]:
    """Raise an `OSError` of the block as a `RecordError`."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename and str(error.filename) not in asked else ""
        fix = ELSEWHERE if error.strerror == TAKEN else fix
        raise RecordError(asked=asked, found=f"{error.strerror or error}{where}", fix=fix) from error


@contextmanager
def writing(path: Path, is_ours: Callable[[Path], bool] = lambda path: True) -> Iterator[Path]:
    """Yield a draft that becomes the file or folder at the end of the block; a block that fails leaves nothing.

    A file replaces an existing one if `is_ours`; else, and for a folder, `FileExistsError` is raised. If several
    processes write the same file, the last one stays. Missing parent folders are made.
    """
    if path.is_file() and not is_ours(path):
        raise FileExistsError(errno.EEXIST, "interp did not write the file of this name; move it away", str(path))
    with hidden_folder(path.parent) as folder:
        yield folder / "draft"
        move(folder / "draft", path)


def begins_with(words: str) -> Callable[[Path], bool]:
    """A test for `writing`: whether a file begins with these words."""

    def is_so(path: Path) -> bool:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(len(words)) == words

    return is_so


@contextmanager
def hidden_folder(beside: Path) -> Iterator[Path]:
    """A temporary folder for the length of the block; abandoned ones there are removed."""
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
    """Whether this is a folder of `hidden_folder`."""
    if _HIDDEN.fullmatch(path.name) is None or path.is_symlink() or not path.is_dir():
        return False
    return (path / _MARK).is_file() or not any(path.iterdir())


def remove_kept(folder: Path, names: str) -> None:
    """Remove the files of a folder whose whole name matches `names`, and then the folder if it is empty."""
    with suppress(OSError):  # never made, or another process has just removed it
        for path in [*folder.iterdir()]:
            if is_hidden(path):
                shutil.rmtree(path)
            elif path.is_file() and re.fullmatch(names, path.name):
                path.unlink()
        remove_empty(folder)


def remove_empty(folder: Path) -> None:
    """Remove a folder if it is empty."""
    with suppress(OSError):
        folder.rmdir()


def file_names(names: Iterable[str]) -> dict[str, str]:
    """Each name as a part of file names that every system allows, unique if case is ignored.

    A name is unchanged unless it has characters other than letters, digits, `_`, `-`, `.` and blanks, is longer than
    100 bytes, or differs from another only in case: then it is shortened, with a digest.
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
    """The beginning of a name, in at most `n_bytes` of UTF-8."""
    return name.encode("utf-8")[:n_bytes].decode("utf-8", errors="ignore")


def move(source: Path, target: Path) -> None:
    """Rename a file or folder without its hidden folders; sync it before, and its folder after."""
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
    """Sync a file, or a folder with its content."""
    for part in (*path.rglob("*"), path):
        _sync(part)


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents, and sync them."""
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
