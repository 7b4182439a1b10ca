"""Time and peak memory of a stretch of work, on a processor or on a GPU."""

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
    """`settle` frees what nobody uses; between `start` and `stop` a stretch is measured: (seconds, peak bytes)."""

    unit: str

    def settle(self) -> int: ...

    def start(self) -> None: ...

    def stop(self) -> tuple[float, int]: ...


class ProcessorMeter:
    """Seconds of CPU time of all threads of this process, and the most memory that was resident (Linux)."""

    unit = "s CPU"

    def settle(self) -> int:
        gc.collect()
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)
        return _status("VmRSS")

    def start(self) -> None:
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak starts again at what is resident now
        self._began = time.process_time()

    def stop(self) -> tuple[float, int]:
        return time.process_time() - self._began, _status("VmHWM")


class GPUMeter:
    """Seconds until the GPU has done what it was given, and the most memory that PyTorch had allocated there."""

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
    """The cores that this process may use; empty where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def stay_on(cores: Sequence[int]) -> None:
    """Keep this thread, and processes it starts, on these cores; nothing for none.

    Cores differ in speed, by what else their machine does: what is compared has to run on the same one.
    """
    if cores:
        os.sched_setaffinity(0, cores)


def _status(field: str) -> int:
    """Bytes, from what the kernel says of this process."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise OSError(f"/proc/self/status has no {field}: memory is measured on Linux alone")
