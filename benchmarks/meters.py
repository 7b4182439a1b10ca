"""Time and peak memory of some work, on a processor or on a GPU."""

import ctypes
import gc
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch

MIB = 2**20


@runtime_checkable
class Meter(Protocol):
    """`settle` frees unused memory; `stop` returns seconds and peak bytes since `start`."""

    unit: str

    def settle(self) -> int: ...

    def start(self) -> None: ...

    def stop(self) -> tuple[float, int]: ...


class ProcessorMeter:
    """CPU seconds of all threads of this process, and peak resident memory (Linux)."""

    unit = "s CPU"

    def settle(self) -> int:
        gc.collect()
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)
        return _status("VmRSS")

    def start(self) -> None:
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # reset the peak
        self._began = time.process_time()

    def stop(self) -> tuple[float, int]:
        return time.process_time() - self._began, _status("VmHWM")


class GPUMeter:
    """Seconds until the GPU is done, and the peak memory that PyTorch allocated."""

    unit = "s"

    def settle(self) -> int:
        gc.collect()
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    def start(self) -> None:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        self._began = time.perf_counter()

    def stop(self) -> tuple[float, int]:
        torch.cuda.synchronize()
        return time.perf_counter() - self._began, torch.cuda.max_memory_allocated()


def meter_for(device: str) -> Meter:
    return GPUMeter() if device.startswith("cuda") else ProcessorMeter()


def own_cores() -> list[int]:
    """The cores that this process may use; empty if unknown."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def stay_on(cores: Sequence[int]) -> None:
    """Keep this thread, and processes it starts, on these cores, if any: cores differ in speed."""
    if cores:
        os.sched_setaffinity(0, cores)


def _status(field: str) -> int:
    """A field of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise OSError(f"/proc/self/status has no {field}: memory is measured on Linux alone")
