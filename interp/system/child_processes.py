"""Long pieces of work side by side, each in a process of one core: as threads their Python would take turns.

joblib's loky starts the processes. Unlike multiprocessing it does not import the user's script again, so that this
works from notebooks and from scripts without a guard. They stay for the next pieces, and end with the process that
started them, however that ends.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from typing import TypeVar

import psutil

from interp.errors import InterpError

from .threads import n_workers

Item = TypeVar("Item")
Found = TypeVar("Found")


def in_processes(
    work: Callable[[Item], Found], items: Sequence[Item], asked: str, at_once: int | None = None
) -> Iterator[tuple[int, Found]]:
    """The number of each item, from 0, with what `work` makes of it, as it is done, by `n_workers` processes at most.

    `at_once` stands for that number. One at a time they are done in this process, in their order. Ctrl-C and SIGTERM
    are heard by this process alone; the others then end where they are, so that a piece has to keep on the disk what
    is not to be lost. An error of a piece arrives as itself and ends the rest. Raises `InterpError` for what was
    `asked` where a process is killed.
    """
    n = min(at_once or n_workers(), len(items))
    if n < 2:
        yield from enumerate(map(work, items))
        return
    from joblib import Parallel, delayed, parallel_config

    with parallel_config("loky", inner_max_num_threads=1):
        pool = Parallel(n, batch_size=1, max_nbytes=None, return_as="generator_unordered")
    try:
        yield from pool(delayed(_of_child)(os.getpid(), work, *numbered) for numbered in enumerate(items))
    except BrokenProcessPool as error:
        raise InterpError(
            asked=asked,
            found=f"one of {n} processes was ended from outside, perhaps because memory ran out",
            fix="The same command goes on from what was kept; with OMP_NUM_THREADS=1 one is done after the other.",
        ) from error


def _of_child(parent: int, work: Callable[[Item], Found], number: int, item: Item) -> tuple[int, Found]:
    if os.getpid() != parent:
        _end_with(parent)
    return number, work(item)


@cache
def _end_with(parent: int) -> None:
    """Once in a child: leave Ctrl-C to the parent, and go on no longer than that does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_wait_for, args=(parent,), daemon=True).start()


def _wait_for(parent: int) -> None:
    while os.getppid() == parent and psutil.pid_exists(parent):  # Windows keeps the number of one that is gone
        time.sleep(0.5)
    os._exit(1)
