"""Memory that a pass is done with is used again, and goes back to the system where that fails.

Left alone, the C library of Linux gives the top of its heap back after nearly every large tensor, maps those over
32 MiB afresh, and faults their pages in again for the next one: at 4,096 tokens of Pythia-410M 2.5 to 5 GB a pass,
3 to 8 % of its time. So during passes every tensor comes from the heap and stays in it. What was freed between two
small arrays is too narrow, by the few bytes of an alignment, for a tensor of the same size: when the process has grown
by more than a layer needs, free pages are given back.
"""

import ctypes
import mmap
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
"""Names of the settings in `malloc.h`."""

_MAPPED = 1 << 16
"""How many large arrays the library may map outside its heap, as it is by itself."""

_GROWTH = 32 << 20
"""Bytes that the process may grow by, over what it has from layer to layer, before free pages are given back."""


class _Heap:
    """That of glibc. Pages of files (weights that are mapped) are not counted: they are no part of it."""

    def __init__(self, libc: ctypes.CDLL) -> None:
        self._libc = libc
        self._bound: int | None = None  # unknown until a layer has taken again what was given back
        self.n_passing = 0
        self._counting = threading.Lock()
        libc.mallopt(_MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(_TRIM_THRESHOLD, 256 << 20)

    def give_back(self) -> None:
        now = _private_bytes()
        if self._bound is None:
            self._bound = now + _GROWTH
        elif now > self._bound:
            self.give_back_all()

    def give_back_all(self) -> None:
        self._libc.malloc_trim(0)
        self._bound = None

    def passing(self, one_more: int) -> None:
        """Passes begin (1) or end (-1); they may be nested, and more than one model may be read at a time."""
        with self._counting:
            self.n_passing += one_more
            self._bound = None  # other passes take other memory
            self._libc.mallopt(_MMAP_MAX, 0 if self.n_passing else _MAPPED)


def bound_heap() -> None:
    """Give free pages back if the process has grown, on Linux with glibc; cheap enough to be asked at every layer."""
    heap = _heap()
    if heap is not None:
        heap.give_back()


@contextmanager
def reused_heap() -> Iterator[None]:
    """While passes are run, tensors of any size take memory that is there already; elsewhere nothing is done."""
    heap = _heap()
    if heap is None:
        yield
        return
    before = _private_bytes()
    heap.passing(1)
    try:
        yield
    finally:
        heap.passing(-1)
        if not heap.n_passing and _private_bytes() > before + _GROWTH:
            heap.give_back_all()


@cache
def _heap() -> _Heap | None:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return _Heap(libc) if hasattr(libc, "gnu_get_libc_version") else None


def _private_bytes() -> int:
    resident, shared = Path("/proc/self/statm").read_text(encoding="ascii").split()[1:3]
    return (int(resident) - int(shared)) * mmap.PAGESIZE
