"""Work of many small steps goes on one thread: more would wait for one another. Separate pieces go side by side.

Passes take as many threads as a block of theirs is worth; the numbers change by rounding alone.
"""

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
"""Pieces of an analysis that go side by side at most: each holds copies of its rows, and their Python takes turns."""

PER_THREAD = 10**9
"""Operations of a block of a pass (multiplications and additions) that are worth a thread: some 20 ms of one core.

Threads meet several times in a block. Where a core is busy with other work, each time costs milliseconds.
"""

OWN_SETTING = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Where a user says in the environment how many threads there are to be; that stands, whatever the work."""

_OUTSIDE: ContextVar[int | None] = ContextVar("threads outside of one_thread", default=None)


def threads_worth(n_operations: int) -> int:
    """How many threads of torch a block of so many operations is worth, of those that it may use."""
    import torch

    allowed = torch.get_num_threads()
    is_set = any(name in os.environ for name in OWN_SETTING)
    return allowed if is_set else min(allowed, max(1, n_operations // PER_THREAD))


@contextmanager
def during(variable: ContextVar[Item], value: Item) -> Iterator[None]:
    """A value that a variable of this thread has for the length of the block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def torch_on(n_threads: int) -> Iterator[None]:
    """torch on so many threads for the length of the block."""
    import torch

    allowed = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(allowed)


def blas_on_one_thread() -> AbstractContextManager[object]:
    """The linear algebra of numpy on one thread for the length of the block; torch is left as it is."""
    return threadpool_limits(1, user_api="blas")


@contextmanager
def one_thread() -> Iterator[None]:
    """torch and the linear algebra of numpy on one thread for the length of the block."""
    with during(_OUTSIDE, n_workers()), torch_on(1), blas_on_one_thread():
        yield


def n_workers() -> int:
    """How many pieces of such work may go side by side: as many as torch may use threads outside of the block."""
    import torch

    return _OUTSIDE.get() or torch.get_num_threads()


def side_by_side(work: Callable[[Item], Found], items: Iterable[Item], at_once: int = AT_ONCE) -> list[Found]:
    """What `work` makes of each item, in their order, by up to `at_once` of `n_workers` threads of one core each.

    For pieces that share nothing they change and spend their time in numpy or torch, where others run meanwhile.
    Work inside such a piece is not spread any further.
    """
    with one_thread():
        n = min(at_once, n_workers())
        if n == 1:
            return [work(item) for item in items]
        with ThreadPoolExecutor(n, initializer=_alone) as pool:
            return list(pool.map(work, items))


def _alone() -> None:
    """A new thread is one core's, whatever it calls."""
    import torch

    torch.set_num_threads(1)
    _OUTSIDE.set(1)
