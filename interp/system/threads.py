"""Threads: one for work of many small steps, several for separate pieces, and as many as a block of a pass is worth."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

from threadpoolctl import threadpool_limits

Item = TypeVar("Item")
Found = TypeVar("Found")

AT_ONCE = 4
"""Most pieces of an analysis that run in parallel: each holds copies of its rows."""

PER_THREAD = 10**9
"""Multiplications and additions of a block that are worth a thread: some 20 ms of one core. Threads synchronise several
times in a block, which takes milliseconds on a busy machine."""

OWN_SETTING = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables in which a user sets the number of threads, which is then not changed."""

_OUTSIDE: ContextVar[int | None] = ContextVar("threads outside of one_thread", default=None)


def threads_worth(n_operations: int) -> int:
    """The number of torch threads that a block of so many operations is worth, at most those allowed."""
    import torch

    allowed = torch.get_num_threads()
    is_set = any(name in os.environ for name in OWN_SETTING)
    return allowed if is_set else min(allowed, max(1, n_operations // PER_THREAD))


@contextmanager
def during(variable: ContextVar[Item], value: Item) -> Iterator[None]:
    """Set a context variable for the length of the block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def torch_on(n_threads: int) -> Iterator[None]:
    """Limit torch to so many threads for the length of the block."""
    import torch

    allowed = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(allowed)


def blas_on_one_thread() -> AbstractContextManager[object]:
    """Limit the linear algebra of numpy to one thread for the length of the block."""
    return threadpool_limits(1, user_api="blas")


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch and the linear algebra of numpy to one thread for the length of the block."""
    with during(_OUTSIDE, n_workers()), torch_on(1), blas_on_one_thread():
        yield


def n_workers() -> int:
    """The number of pieces that may run in parallel: the threads of torch outside of `one_thread`."""
    import torch

    return _OUTSIDE.get() or torch.get_num_threads()


def side_by_side(work: Callable[[Item], Found], items: Iterable[Item], at_once: int = AT_ONCE) -> list[Found]:
    """The results of `work` on each item, in order, by up to `at_once` of `n_workers` threads of one core each.

    For independent pieces that spend their time in numpy or torch. Work inside a piece runs on its thread.
    """
    with one_thread():
        n = min(at_once, n_workers())
        if n == 1:
            return [work(item) for item in items]
        with ThreadPoolExecutor(n, initializer=_alone) as pool:
            return list(pool.map(work, items))


def _alone() -> None:
    """Limit a new thread to one core."""
    import torch

    torch.set_num_threads(1)
    _OUTSIDE.set(1)
