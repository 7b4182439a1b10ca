"""Processes that would do the same thing into the same folder take turns, and one that died is not waited for."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from interp.errors import UsageError

from .whole_files import make_folder


@contextmanager
def one_at_a_time(lock: Path, what: str) -> Iterator[bool]:
    """Only one process is inside the block; others wait, and a warning says for `what`. Gives whether this one did.

    The system holds the lock, so that it ends with its process however that ends. On file systems that have no such
    locks (some over a network) the file of the lock is one as long as it is there; that of a process which died on
    this machine is removed, and for another machine's the warning names the file. Raises `UsageError` where the file
    cannot be made.
    """
    from filelock import FileLock, Timeout

    held, waited = FileLock(lock), False
    try:
        make_folder(lock.parent)
        try:
            held.acquire(timeout=0)
        except Timeout:
            words = f"waiting: another process is {what} (the lock is {lock})"
            warnings.warn(words, RuntimeWarning, stacklevel=_level_of_caller())
            held.acquire()
            waited = True
    except OSError as error:
        raise UsageError(
            asked=f"making sure that no other process is {what}",
            found=f"the lock {lock} cannot be taken ({error.strerror or error})",
            fix="Check the permissions there, or choose another folder with --out.",
        ) from error
    try:
        yield waited
    finally:
        with suppress(OSError):  # Windows keeps a file that is open; filelock removes it there, after the release
            if lock.stat().st_size == 0:  # a lock without the system's help holds a number, and is removed by filelock
                lock.unlink()
        held.release()


def _level_of_caller() -> int:
    """The `stacklevel` by which a warning of the function that calls this names the line that called the toolkit."""
    ours = ("interp", "contextlib")
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ours:
        level, frame = level + 1, frame.f_back
    return level
