"""A hash of the weights of a model."""

import hashlib
from collections.abc import Iterator
from itertools import chain

import numpy as np
import torch

from interp.system.offload import brought_in

BLOCK_WORDS = 512
_BLOCK_BYTES = 8 * BLOCK_WORDS
_BLOCKS_AT_ONCE = 2048
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio, an odd number: its multiples are spread over all 64 bits."""


def fingerprint(module: torch.nn.Module) -> str:
    """SHA-256 (hex) over one line per parameter and saved buffer, sorted by name: `name dtype shape digest`.

    The digest is the SHA-256 of the tensor's bytes in row order, where each whole block of 4096 bytes is condensed to
    one 64-bit number: the sum of its 8-byte words times (2i + 1) · 0x9E3779B97F4A7C15, i the word's place, modulo 2^64.
    The multipliers are odd, so every change of a single number changes the sum; the rest after the last whole block
    enters as it is. It is fast and does not protect against forgery. A tied tensor counts once.
    """
    buffers = dict(module.named_buffers())
    saved = ((name, buffers[name]) for name in module.state_dict() if name in buffers)  # masks, biases of routers
    lines = sorted(
        f"{name} {str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)} {_digest(tensor)}"
        for name, tensor in chain(each_parameter(module), saved)
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def each_parameter(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and values; offloaded ones are loaded one module at a time."""
    names = dict(module.named_parameters())
    for prefix, part in module.named_modules():
        with brought_in(part, recurse=False):
            for name, parameter in part.named_parameters(prefix, recurse=False):
                if name in names:
                    yield name, parameter.detach()


def _digest(tensor: torch.Tensor) -> str:
    data = tensor.contiguous().flatten().view(torch.uint8)
    if data.storage_offset() % 8:
        data = data.clone()
    n_whole = len(data) - len(data) % _BLOCK_BYTES
    digest = hashlib.sha256()
    multipliers = (2 * np.arange(BLOCK_WORDS, dtype=np.uint64) + 1) * _GOLDEN
    digest.update(_condensed(data[:n_whole].view(torch.int64).view(-1, BLOCK_WORDS), multipliers.view(np.int64)))
    digest.update(data[n_whole:].cpu().numpy().tobytes())
    return digest.hexdigest()


def _condensed(blocks: torch.Tensor, multipliers: np.ndarray) -> bytes:
    """The sum over each block `[block, word]` of words times multipliers."""
    if blocks.device.type == "cpu":  # half the time of a product and a sum, and no product in memory
        return np.einsum("bw,w->b", blocks.numpy(), multipliers).tobytes()
    on_device = torch.from_numpy(multipliers).to(blocks.device)
    parts = [(some * on_device).sum(dim=1) for some in blocks.split(_BLOCKS_AT_ONCE)]
    return torch.cat(parts).cpu().numpy().tobytes() if parts else b""
