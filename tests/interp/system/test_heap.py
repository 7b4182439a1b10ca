"""Memory that nobody uses goes back to the system once a process has grown, where the C library can be told so."""

import ctypes
import platform
import subprocess
import sys

import pytest

from interp.system import heap as allocator


def test_the_heap_is_bounded_with_glibc_and_nowhere_else():
    assert (allocator._heap() is not None) == (platform.libc_ver()[0] == "glibc")


GLIBC = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")


_HOLES = """
import torch
from interp.system import heap
heap.bound_heap()
before = heap._private_bytes()
blocks = [torch.zeros(1 << 18) for _ in range(256)]  # 1 MiB each, of the heap
del blocks[::2]  # every hole lies between blocks that stay
full = heap._private_bytes()
heap.bound_heap()
print(full - before >> 20, heap._private_bytes() - before >> 20)
"""


@pytest.mark.slow
@GLIBC
def test_what_is_freed_between_blocks_in_use_goes_back_once_it_is_much():
    """In a fresh process: in this one blocks may lie in what earlier tests have left free."""
    done = subprocess.run([sys.executable, "-c", _HOLES], capture_output=True, text=True, check=True)
    full, after = map(int, done.stdout.split())
    assert full > 200 and 120 < after < 145


@pytest.mark.slow
@GLIBC
def test_large_tensors_are_faulted_in_once_while_passes_run_and_go_back_afterwards():
    code = """
import resource
import torch
from interp.system import heap
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        torch.zeros(1 << 24)  # 64 MiB, more than the C library takes from its heap by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
pages, before = (64 << 20) // 4096, heap._private_bytes()
with heap.reused_heap():
    with heap.reused_heap():
        faults(), faults()  # the library first sets a few pieces aside that lie between
    inside = faults()
    kept = heap._private_bytes() - before
print(inside < pages / 8, kept > 60 << 20, heap._private_bytes() - before < 8 << 20)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "True True True\n", done.stdout + done.stderr


@GLIBC
def test_memory_goes_back_when_the_process_has_grown_over_what_a_layer_needs(monkeypatch):
    trimmed: list[int] = []
    told: list[tuple[int, int]] = []
    heap = allocator._Heap(ctypes.CDLL(None))
    libc = {"malloc_trim": staticmethod(trimmed.append), "mallopt": staticmethod(lambda *setting: told.append(setting))}
    monkeypatch.setattr(heap, "_libc", type("Libc", (), libc)())

    def grown(by: int) -> int:
        monkeypatch.setattr(allocator, "_private_bytes", lambda: (1 << 30) + by)
        heap.give_back()
        return len(trimmed)

    assert grown(0) == 0, "the first layer tells what there is"
    assert grown(allocator._GROWTH) == 0
    assert grown(allocator._GROWTH + 4096) == 1
    assert grown(allocator._GROWTH // 2) == 1, "what the next layer takes again is the new measure"
    assert grown(allocator._GROWTH * 3 // 2) == 1
    assert grown(allocator._GROWTH * 3 // 2 + 4096) == 2
    heap.passing(1)
    assert grown(-(1 << 29)) == 2
    assert grown(allocator._GROWTH - (1 << 29) + 4096) == 3, "a process that has shrunk may grow from there"
    heap.passing(1)
    heap.passing(-1)
    assert {value for _, value in told} == {0}, "nothing is mapped outside the heap while any pass runs"
    heap.passing(-1)
    assert told[-1] == (allocator._MMAP_MAX, allocator._MAPPED), "afterwards it is as the library has it"
