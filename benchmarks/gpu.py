"""The measured limits of a GPU, of which the speed of a run is a share."""

import time
from dataclasses import dataclass
from typing import Any

import torch

_SIZE, _BYTES, _REPEATS = 8192, 1 << 30, 10


@dataclass(frozen=True)
class Limits:
    """Operations per second of a large matrix product, and bytes per second of memory (read and written)."""

    flops: float
    bandwidth: float


def limits(device: str, dtype: torch.dtype, size: int = _SIZE, n_bytes: int = _BYTES) -> Limits:
    a = torch.randn(size, size, device=device).to(dtype)
    source = torch.zeros(n_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    product = _seconds(lambda: a @ a, device)
    moving = _seconds(lambda: target.copy_(source), device)
    return Limits(2 * size**3 / product, 2 * n_bytes / moving)


def least_seconds(module: Any, batch: int, length: int, most: Limits) -> float:
    """The least time of a forward pass: of its arithmetic or of reading the weights once, whichever is longer.

    It counts products with every weight but the embeddings, the output head at one position per prompt, and the causal
    half of attention.
    """
    config = module.config
    head, embedding = module.get_output_embeddings().weight, module.get_input_embeddings().weight
    blocks = sum(p.numel() for p in module.parameters()) - embedding.numel()
    blocks -= head.numel() if head is not embedding else 0
    tokens = batch * length
    attention = 2 * tokens * length * config.hidden_size * config.num_hidden_layers
    flops = 2 * blocks * tokens + 2 * head.numel() * batch + attention
    n_bytes = (blocks + head.numel()) * head.element_size()
    return max(flops / most.flops, n_bytes / most.bandwidth)


def _seconds(work: Any, device: str) -> float:
    """Mean time of a repeat, after a first one."""
    work()
    _wait(device)
    began = time.perf_counter()
    for _ in range(_REPEATS):
        work()
    _wait(device)
    return (time.perf_counter() - began) / _REPEATS


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
