"""Memory that a pass is done with is used again, and goes back to the system where that fails.

Left alone, the C library of Linux gives the top of its heap back after nearly every large tensor and faults its pages
in again for the next one, while what was freed between two small arrays is too narrow, by the few bytes of an
alignment, for a tensor of the same size: the heap grows by hundreds of megabytes that nobody uses. So its thresholds
are fixed at the largest that it would choose by itself, and free pages are given back when the process has grown.
"""

import ctypes
import mmap
import sys
from functools import cache
from pathlib import Path

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Names of the two settings in `malloc.h`."""

_GROWTH = 32 << 20
"""Bytes that the process may grow by before free pages are given back."""


class _Heap:
    """That of glibc. Pages of files (weights that are mapped) are not counted: they are no part of it."""

    def __init__(self, libc: ctypes.CDLL) -> None:
        self._libc = libc
        self._least = _private_bytes()
        libc.mallopt(_MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(_TRIM_THRESHOLD, 256 << 20)

    def give_back(self) -> None:
        now = _private_bytes()
        if now > self._least + _GROWTH:
            self._libc.malloc_trim(0)
            self._least = now = _private_bytes()
        self._least = min(self._least, now)


def bound_heap() -> bool:
    """Give free pages back if the process has grown; cheap enough to be asked at every layer.

    False elsewhere than on Linux with glibc, where nothing is done.
    """
    heap = _heap()
    if heap is not None:
        heap.give_back()
    return heap is not None


@cache
def _heap() -> _Heap | None:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return _Heap(libc) if hasattr(libc, "gnu_get_libc_version") else None


def _private_bytes() -> int:
    resident, shared = Path("/proc/self/statm").read_text(encoding="ascii").split()[1:3]
    return (int(resident) - int(shared)) * mmap.PAGESIZE
