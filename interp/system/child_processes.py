"""Long pieces of work in parallel, each in a process of one core.

joblib's loky starts the processes. Unlike multiprocessing it does not import the user's script again, so this works in
notebooks and scripts without a guard. The processes are reused, and end with their parent.
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
    """The number of each item, from 0, and the result of `work`, in order of completion, by `n_workers` processes.

    `at_once` limits their number; one process is this one. Only this process handles Ctrl-C and SIGTERM; the others
    then end at once, so a piece has to save what must not be lost. An error of a piece is raised and ends the rest.
    Raises `InterpError` if a process is killed.
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
    """Once in a child: leave Ctrl-C to the parent, and end when it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_wait_for, args=(parent,), daemon=True).start()


def _wait_for(parent: int) -> None:
    while os.getppid() == parent and psutil.pid_exists(parent):  # on Windows the parent's id stays after its end
        time.sleep(0.5)
    os._exit(1)
