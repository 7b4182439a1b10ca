"""A program that is told to stop: it ends between two things and not in the middle of one, says what it has kept, soon.

The command line listens for Ctrl-C (SIGINT) and SIGTERM. Either raises `Stopped` as soon as nothing is half done (see
`whole`); who keeps unfinished work writes it down then. What lasts longer than `SECONDS_TO_END` is ended where it is,
be it inside a library that does not listen, and what was kept last stands.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

SECONDS_TO_END = 1.2
"""From the signal to the end of the process, whatever it is doing."""


class Stopped(BaseException):
    """The user, or the system, wants the program to end. Not an `Exception`: nothing that goes on after faults does."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.exit_code = 128 + signum


@dataclass
class _State:
    """Of this process: how many blocks are not to be cut, the signal that waits for them, the one that ends it, and
    what is kept in words."""

    n_whole: int = 0
    waiting: int | None = None
    ending: int | None = None
    kept: str = ""


_here = _State()
_leaving = threading.Lock()


@contextmanager
def whole() -> Iterator[None]:
    """Let the block come to its end before the program is stopped: what it changes is never left half changed."""
    _here.n_whole += 1
    try:
        yield
    finally:
        _here.n_whole -= 1
        if _here.waiting is not None and not _here.n_whole:
            _end(_here.waiting)


def remember(kept: str) -> None:
    """Note in words what lies on the disk of the work that is going on, to be told if it is stopped; "" for nothing."""
    _here.kept = kept


@contextmanager
def handling_signals() -> Iterator[None]:
    """Inside the block SIGINT and SIGTERM end the program in the way described above; in the main thread alone.

    A signal that is ignored stays so (`nohup`). A block that was stopped is not left: the process ends with 128 plus
    the number of the signal.
    """
    caught = [s for s in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(s) is not signal.SIG_IGN]
    before = {s: signal.signal(s, _on_signal) for s in caught}
    ear, bell = socket.socketpair()
    bell.setblocking(False)
    bell_before = signal.set_wakeup_fd(bell.fileno(), warn_on_full_buffer=False)
    watcher = threading.Thread(target=_watch, args=(ear, caught), daemon=True)
    watcher.start()
    report = sys.unraisablehook  # what a library's `__del__` makes of a stop is no fault: `_watch` carries that out
    sys.unraisablehook = lambda fault: report(fault) if _here.ending is None else None
    try:
        yield
    except (Stopped, Exception):
        if _here.ending is None:
            raise
        _leave(128 + _here.ending)  # also where a library, cut in two, raises an error of its own in place of the stop
    finally:
        sys.unraisablehook = report
        signal.set_wakeup_fd(bell_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        bell.close()
        watcher.join()
        ear.close()


def _on_signal(signum: int, frame: FrameType | None) -> None:
    if _here.n_whole:
        _here.waiting = signum
    elif _here.ending is None:
        _end(signum)


def _end(signum: int) -> None:
    _here.waiting, _here.ending = None, signum
    raise Stopped(signum)


def _watch(ear: socket.socket, caught: Sequence[int]) -> None:
    """In a thread of its own: the bell rings at the signal itself, even while the main thread is deep in a library."""
    while rung := ear.recv(1):
        if rung[0] in caught:
            time.sleep(SECONDS_TO_END)
            _leave(128 + rung[0])


def _leave(exit_code: int) -> None:
    """Say what was kept and end, without waiting for threads of libraries."""
    from interp.system.processes import name_of_process

    _leaving.acquire()  # for good: one of the two threads says it
    end = (
        f"{_here.kept}; the same command goes on from there"
        if _here.kept
        else "nothing was saved; the same command starts over"
    )
    with suppress(OSError, ValueError):  # whoever listened may be gone
        print(f"interp{name_of_process()}: stopped: {end}", file=sys.stderr, flush=True)
        sys.stdout.flush()
    os._exit(exit_code)
