"""Locks between processes that would do the same work in the same folder."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from interp.errors import UsageError

from .whole_files import make_folder


@contextmanager
def one_at_a_time(lock: Path, what: str) -> Iterator[bool]:
    """Let one process at a time into the block; others wait, with a warning. Yields whether this one waited.

    The system releases the lock when its process ends. On file systems without such locks (some over a network) the
    file itself is the lock; that of a dead process of this machine is removed, and the warning names any other. Raises
    `UsageError` if the file cannot be made.
    """
    from filelock import FileLock, Timeout

    held, waited = FileLock(lock), False
    try:
        make_folder(lock.parent)
        try:
            held.acquire(timeout=0)
        except Timeout:
            words = f"waiting: another process is {what} (the lock is {lock})"
            warnings.warn(words, RuntimeWarning, stacklevel=3)  # behind contextlib
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
        with suppress(OSError):  # an open file on Windows, which filelock removes after the release
            if lock.stat().st_size == 0:  # filelock removes a file that is itself the lock and holds a number
                lock.unlink()
        held.release()
