"""Work of many small steps goes on one thread: more would wait for one another for most of the time."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from threadpoolctl import threadpool_limits

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
