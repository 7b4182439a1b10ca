"""Ctrl-C (SIGINT) and SIGTERM on the command line.

Either raises `Stopped` outside of blocks that must not be cut (`whole`), so that unfinished work is saved. A process
that takes longer than `SECONDS_TO_END` is ended, even inside a library, and the last saved work stays.
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
"""From the signal to the end of the process."""


class Stopped(BaseException):
    """The program has to end. Not an `Exception`, so that no handler of errors continues."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.exit_code = 128 + signum


@dataclass
class _State:
    """Of this process: the number of blocks that must not be cut, the signal that waits for them, the one that ends it,
    and a description of the saved work."""

    n_whole: int = 0
    waiting: int | None = None
    ending: int | None = None
    kept: str = ""


_here = _State()
_leaving = threading.Lock()


@contextmanager
def whole() -> Iterator[None]:
    """Let the block end before the program is stopped."""
    _here.n_whole += 1
    try:
        yield
    finally:
        _here.n_whole -= 1
        if _here.waiting is not None and not _here.n_whole:
            _end(_here.waiting)


def remember(kept: str) -> None:
    """Set the description of the saved work, which is printed if the program is stopped."""
    _here.kept = kept


@contextmanager
def handling_signals() -> Iterator[None]:
    """Let SIGINT and SIGTERM end the program inside the block, with exit code 128 plus the number of the signal.

    Only for the main thread. A signal that is ignored stays so (`nohup`).
    """
    caught = [s for s in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(s) is not signal.SIG_IGN]
    before = {s: signal.signal(s, _on_signal) for s in caught}
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    fd_before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    watcher = threading.Thread(target=_watch, args=(receiver, caught), daemon=True)
    watcher.start()
    report = sys.unraisablehook  # silences a stop inside a library's `__del__`; `_watch` ends the process
    sys.unraisablehook = lambda fault: report(fault) if _here.ending is None else None
    try:
        yield
    except (Stopped, Exception):
        if _here.ending is None:
            raise
        _leave(128 + _here.ending)  # also if a library raises an error of its own because of the stop
    finally:
        sys.unraisablehook = report
        signal.set_wakeup_fd(fd_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        sender.close()
        watcher.join()
        receiver.close()


def _on_signal(signum: int, frame: FrameType | None) -> None:
    if _here.n_whole:
        _here.waiting = signum
    elif _here.ending is None:
        _end(signum)


def _end(signum: int) -> None:
    _here.waiting, _here.ending = None, signum
    raise Stopped(signum)


def _watch(receiver: socket.socket, caught: Sequence[int]) -> None:
    """Run in a thread, which the signal wakes even while the main thread is inside a library."""
    while received := receiver.recv(1):
        if received[0] in caught:
            time.sleep(SECONDS_TO_END)
            _leave(128 + received[0])


def _leave(exit_code: int) -> None:
    """Print what was saved and end, without waiting for threads of libraries."""
    from interp.system.processes import name_of_process

    _leaving.acquire()  # never released: only one of the two threads prints
    end = (
        f"{_here.kept}; the same command goes on from there"
        if _here.kept
        else "nothing was saved; the same command starts over"
    )
    with suppress(OSError, ValueError):  # the reader may be gone
        print(f"interp{name_of_process()}: stopped: {end}", file=sys.stderr, flush=True)
        sys.stdout.flush()
    os._exit(exit_code)
