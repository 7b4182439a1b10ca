"""How long passes take: their arithmetic, counted from the configuration, over the rate at which this machine computes.

The rate is that of one batch through a block of PyTorch's own of the model's width, in the processor time of one
thread, which other work on the machine leaves alone; on a GPU it is the time that passes.
"""

import math
import time
from collections.abc import Callable

import numpy as np
import torch

from interp.reading.forward import TOKENS_PER_BATCH
from interp.running.meta_model import MetaModel
from interp.running.passes import Passes
from interp.system.heap import reused_heap
from interp.system.threads import one_thread, threads_worth

SECONDS = 0.1
"""How long the batch is timed."""

WIDEST = 1024
"""Blocks are not measured wider: the rate grows no further."""

PER_FEATURE = 1.5e-8
"""Seconds that a feature of a token takes in a block beside the products: rotary embedding, hooks, sums of weights."""

PER_CONDITION = 0.008
"""Seconds in which edits are made ready and what a probe keeps of a condition is worked out."""


def seconds_per_operation(meta: MetaModel) -> float:
    """Seconds of an addition or multiplication inside a block, on one thread of the device where the model would be."""
    info, place = meta.model.info, meta.placement
    dtype, device = getattr(torch, place.dtype), torch.device(place.device)
    width = min(info.d_model, WIDEST)
    wider = round(meta.feed_forward_width * width / info.d_model)
    n_heads = math.gcd(width, max(1, info.n_heads))
    block = torch.nn.TransformerEncoderLayer(
        width, n_heads, wider, dropout=0.0, batch_first=True, norm_first=True, dtype=dtype, device=device
    ).eval()
    length = 32
    x = torch.randn(TOKENS_PER_BATCH // length, length, width, dtype=dtype, device=device)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(length, device=device, dtype=dtype)
    n_operations = TOKENS_PER_BATCH * (2 * (4 * width**2 + 2 * width * wider) + 4 * width * length)
    with torch.inference_mode(), one_thread(), reused_heap():  # as in a pass
        return _seconds(lambda: block(x, src_mask=mask, is_causal=True), device) / n_operations


def _seconds(act: Callable[[], object], device: torch.device) -> float:
    """The shortest time that it takes."""
    found: list[float] = []
    act()
    while not found or sum(found) < SECONDS:
        began = _clock(device)
        act()
        found.append(max(_clock(device) - began, 1e-9))
    return min(found)


def _clock(device: torch.device) -> float:
    if device.type == "cpu":
        return time.process_time()
    torch.accelerator.synchronize(device)
    return time.perf_counter()


def pass_seconds(p: Passes, meta: MetaModel, per_operation: float) -> float:
    """How long one of these passes takes, on the threads that it has in a run."""
    info, blocks = meta.model.info, meta.model.family.layer_modules(meta.model.module)
    n_weights = sum(weight.numel() for weight in blocks[0].parameters())
    n_threads = 1
    if meta.placement.device == "cpu":  # conditions share passes
        n_threads = threads_worth(2 * min(TOKENS_PER_BATCH, p.n_tokens * (p.n if p.is_edited else 1)) * n_weights)
    n_features = (len(blocks) - p.first_layer) * (info.d_model + 2 * info.n_heads * info.d_head)
    computing = (operations_of(p, meta) * per_operation + p.n_tokens * n_features * PER_FEATURE) / n_threads
    return computing + (PER_CONDITION if p.is_edited else 0.0)


def operations_of(p: Passes, meta: MetaModel) -> float:
    """Additions and multiplications of one of these passes: its blocks, and the output head wherever it is read."""
    info = meta.model.info
    blocks = meta.model.family.layer_modules(meta.model.module)[p.first_layer :]
    n_weights = sum(weight.numel() for block in blocks for weight in block.parameters())
    length = float(np.square(p.text.lengths).sum() / p.text.lengths.sum())  # of the text that a token stands in
    attending = 4 * info.n_heads * info.d_head * length * len(blocks)
    decoded = p.text.n_rows("scored")
    for source, at in {(need.described.source, need.at) for need in p.needs}:
        if source == "lens":
            decoded += p.text.n_rows("scored") * (len(blocks) + 1)
        elif source == "text":
            decoded += p.text.n_rows(at)
    logits = 2 * info.d_model * info.vocab_size * decoded * p.n_prompts / p.text.n
    return p.n_tokens * (2 * n_weights + attending) + logits
