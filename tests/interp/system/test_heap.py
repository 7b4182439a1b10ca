"""Memory that nobody uses goes back to the system once a process has grown, where the C library can be told so."""

import platform

import pytest
import torch

from interp.system import heap as allocator
from interp.system.heap import bound_heap


def test_the_heap_is_bounded_with_glibc_and_nowhere_else():
    assert bound_heap() == (platform.libc_ver()[0] == "glibc")
    assert bound_heap() == bound_heap(), "asking again changes nothing"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_what_is_freed_between_blocks_in_use_goes_back_once_it_is_much(monkeypatch):
    heap = allocator._heap()
    monkeypatch.setattr(heap, "_least", 0)
    bound_heap()  # whatever earlier tests have left free
    before = allocator._private_bytes()
    blocks = [torch.zeros(1 << 18) for _ in range(128)]  # 1 MiB each, of the heap
    del blocks[::2]  # every hole lies between blocks that stay
    assert allocator._private_bytes() > before + (100 << 20)
    bound_heap()
    after = allocator._private_bytes()
    assert before + (60 << 20) < after < before + (80 << 20)
    assert len(blocks) == 64


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_a_process_that_has_not_grown_is_left_alone(monkeypatch):
    heap = allocator._heap()
    assert heap is not None
    heap.give_back()
    trimmed = []
    monkeypatch.setattr(heap, "_libc", type("Libc", (), {"malloc_trim": staticmethod(trimmed.append)}))
    now = allocator._private_bytes()
    monkeypatch.setattr(heap, "_least", now)
    monkeypatch.setattr(allocator, "_private_bytes", lambda: now + allocator._GROWTH)
    heap.give_back()
    assert trimmed == []
    monkeypatch.setattr(allocator, "_private_bytes", lambda: now + allocator._GROWTH + 4096)
    heap.give_back()
    assert trimmed == [0]
    heap.give_back()
    assert trimmed == [0], "what stays after giving back is in use"
    monkeypatch.setattr(allocator, "_private_bytes", lambda: now)
    heap.give_back()
    assert heap._least == now, "a process that has shrunk may grow from there"
