"""How long passes take: their arithmetic, counted from the configuration, over the rate at which this machine computes.

The rate is that of a block of PyTorch's own of the model's width, and of an exponential. Both are measured in the
processor time of one thread, which other work on the machine leaves alone; a pass has the threads that it is worth, as
in a run, and all are taken to be as fast. On a GPU it is the time that passes.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import numpy as np
import torch

from interp.hooks.pattern_sites import CONTRASTS, NULL_SITES
from interp.reading.forward import TOKENS_PER_BATCH
from interp.running.meta_model import MetaModel
from interp.running.passes import Passes
from interp.system.heap import reused_heap
from interp.system.threads import one_thread, threads_worth

SECONDS = 0.1
"""How long each rate is measured."""

WIDEST = 1024
"""Blocks are not measured wider: the rate grows no further."""

PER_CONDITION = 0.01
"""Seconds in which edits are made ready and what a probe keeps of a condition is worked out."""

PER_FEATURE, PER_LOGIT, PER_WEIGHT, PER_CONTRAST = 8.0, 8.0, 6.0, 45.0
"""Exponentials that take as long as what is done with a feature of a token beside the arithmetic of a block (rotary
embedding, listening), with a logit, with an attention weight that is summed up, and with one that is sorted."""


PER_READING = 0.0004
"""Seconds that reading one thing in one layer takes in every batch, whatever its size."""


@dataclass(frozen=True)
class Rates:
    """Seconds that an addition or multiplication inside a block takes one thread, and an exponential."""

    operation: float
    exponential: float


@dataclass(frozen=True)
class Work:
    """What passes compute: additions and multiplications, exponentials or what takes as long, and how often is read."""

    operations: float
    exponentials: float = 0.0
    readings: float = 0.0

    def seconds(self, rates: Rates) -> float:
        computing = self.operations * rates.operation + self.exponentials * rates.exponential
        return computing + self.readings * PER_READING


def measure_rates(meta: MetaModel) -> Rates:
    """The rates of this machine at the width of the model, on the device where it would be put."""
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
    numbers = torch.zeros(1 << 18, device=device)
    n_operations = TOKENS_PER_BATCH * (2 * (4 * width**2 + 2 * width * wider) + 4 * width * length)
    with torch.inference_mode(), one_thread(), reused_heap():  # as in a pass
        return Rates(
            _seconds(lambda: block(x, src_mask=mask, is_causal=True), device) / n_operations,
            _seconds(lambda: torch.exp(numbers), device) / len(numbers),
        )


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


def threads_of(p: Passes, meta: MetaModel) -> int:
    """How many threads one of these passes has; conditions that share passes are taken to fill them."""
    if meta.placement.device != "cpu":
        return 1
    n_tokens = min(TOKENS_PER_BATCH, p.n_tokens * (p.n if p.is_edited else 1))
    return threads_worth(2 * n_tokens * n_block_weights(meta))


def n_block_weights(meta: MetaModel) -> int:
    """The weights of a block."""
    return sum(weight.numel() for weight in meta.model.family.layer_modules(meta.model.module)[0].parameters())


def work_of(p: Passes, meta: MetaModel) -> Work:
    """What one of these passes computes: its blocks, the head at the scored rows, and what is read."""
    info, family = meta.model.info, meta.model.family
    blocks = family.layer_modules(meta.model.module)[p.first_layer :]
    n_weights = sum(weight.numel() for block in blocks for weight in block.parameters())
    length = float(np.square(p.text.lengths).sum() / p.text.lengths.sum())  # of the text that a token stands in
    attending = 4 * info.n_heads * info.d_head * length * len(blocks)
    n_features = len(blocks) * (info.d_model + 2 * info.n_heads * info.d_head)
    parts = [
        Work(
            operations=p.n_tokens * (2 * n_weights + attending),
            exponentials=p.n_tokens * n_features * PER_FEATURE,
            readings=len(blocks) * len(p.needs) * p.n_tokens / TOKENS_PER_BATCH,
        ),
        *_reading(p, meta, length, len(blocks)),
    ]
    return Work(*(sum(getattr(part, f.name) for part in parts) for f in fields(Work)))


def _reading(p: Passes, meta: MetaModel, length: float, n_blocks: int) -> Iterator[Work]:
    """The output head, and what the needs ask for beyond the pass."""
    info, share = meta.model.info, p.n_prompts / len(p.text.ids)

    def decoded(at: str, times: int) -> Work:
        n = len(p.text.rows(at)) * share * info.vocab_size * times
        return Work(2 * n * info.d_model, n * PER_LOGIT)

    sources = {need.described.source for need in p.needs}
    yield decoded("scored", 1)
    if "lens" in sources:
        yield decoded("scored", n_blocks + 1)
    for at in {need.at for need in p.needs if need.described.source == "text"}:
        yield decoded(at, 1)
    kinds = {(n.at, n.site in NULL_SITES, n.site.removesuffix("_null") in CONTRASTS) for n in p.needs
             if n.described.source == "pattern"}  # fmt: skip
    for at, _, is_contrast in kinds:
        n = len(p.text.rows(at)) * share * length * info.n_heads * n_blocks
        yield Work(2 * n * info.d_head, n * (PER_CONTRAST if is_contrast else PER_WEIGHT))
