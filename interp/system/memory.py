"""The free memory of a device, within the limit of a container."""

from pathlib import Path

import psutil
import torch

CONTAINER = Path("/sys/fs/cgroup")
"""Where Linux reports the limits of a container."""


def available_bytes(device: torch.device) -> int:
    """Free memory of a device, in bytes, within the limit of a container."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return min([psutil.virtual_memory().available, *_container_rest()])


def _container_rest() -> list[int]:
    """The free memory of a Linux container (cgroup 2); empty without a limit."""
    try:
        limit = (CONTAINER / "memory.max").read_text(encoding="ascii").strip()
        used = int((CONTAINER / "memory.current").read_text(encoding="ascii"))
        lines = (CONTAINER / "memory.stat").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return []
    if not limit.isdigit():
        return []
    # Cached pages of files count as used, but are freed when memory is needed.
    reclaimable = sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
    return [max(int(limit) - used + reclaimable, 0)]
