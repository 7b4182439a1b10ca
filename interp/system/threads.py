"""Work of many small steps goes on one thread: more would wait for one another. Separate pieces go side by side."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from threadpoolctl import threadpool_limits

Item = TypeVar("Item")
Found = TypeVar("Found")

AT_ONCE = 4
"""Pieces of an analysis that go side by side at most: each holds copies of its rows, and their Python takes turns."""

_OUTSIDE: ContextVar[int | None] = ContextVar("threads outside of one_thread", default=None)


@contextmanager
def one_thread() -> Iterator[None]:
    """torch and the linear algebra of numpy on one thread for the length of the block."""
    import torch

    before = torch.get_num_threads()
    token = _OUTSIDE.set(n_workers())
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)
        _OUTSIDE.reset(token)


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
