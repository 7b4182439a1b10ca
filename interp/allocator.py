"""Memory that passes are done with goes back to the system.

The C library of Linux raises, as it goes, the size from which an allocation gets pages of its own; what lies below is
taken from a heap that small long-lived arrays (rows kept of every batch) then keep from shrinking. Fixing that size
keeps the tensors of a pass out of the heap.
"""

import ctypes
import sys
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Names of the two settings in `malloc.h`."""


@cache
def return_large_blocks() -> bool:
    """Fix the thresholds, once a process; elsewhere than on Linux with glibc nothing is done. Whether it was."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, 256 << 10) and mallopt(_TRIM_THRESHOLD, 16 << 20))
