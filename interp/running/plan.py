"""The cost of a run, estimated from the configuration of the model alone: `interp plan`.

Passes, tokens, arithmetic, memory and disk are counted, with constants measured in real runs. The speed is that of one
batch in a PyTorch block of the model's width, in processor time of one thread, or elapsed time on a GPU.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
import torch

from interp.capture import ModelInfo
from interp.editing.restart import MEMORY as RESIDUALS
from interp.lens.files import lens_bytes
from interp.loading.placement import free_bytes
from interp.need import Need
from interp.options import RunOptions, by_keyword
from interp.reading.batches import at_most, most_sequences
from interp.reading.collector import LOGITS_AT_ONCE
from interp.reading.forward import TOKENS_PER_BATCH
from interp.reductions import NarrowRows, PromptMean
from interp.running.checkpoints import checkpoints_of
from interp.running.choose_probes import choose_probes, readable_probes
from interp.running.meta_model import MetaModel, meta_model
from interp.running.passes import Passes, TokenisedSet, passes_of
from interp.system.plain_numbers import DTYPES
from interp.system.threads import one_thread, threads_worth

MIB = 1 << 20

INTERPRETER = 400 * MIB
"""Python with PyTorch and transformers imported, and a model without weights."""

LIBRARIES = 150 * MIB
"""What analyses import, and the arrays of an analysis of nothing."""

COPIES = 3
"""Copies of captured numbers in memory during an analysis: one in float32, and the size of two in float64."""

ROW_BYTES = 30_000
"""What an analysis takes for a row beside the captured numbers."""

_LOGITS = 3 * 4 * LOGITS_AT_ONCE
"""Logits are made so many numbers at a time: themselves, their logarithms, their exponentials."""


@dataclass(frozen=True)
class Memory:
    """Bytes: `weights`, `loading` (files mapped meanwhile), `activations` of a batch, `kept` of passes, `analysis`."""

    weights: int
    loading: int
    activations: int
    kept: int
    analysis: int
    is_on_cpu: bool

    @property
    def peak(self) -> int:
        """The largest resident set of the process."""
        inside = self.weights + max(self.loading, self.activations) if self.is_on_cpu else self.loading
        work = LIBRARIES + COPIES * self.kept + self.analysis + (self.activations if self.is_on_cpu else 0)
        weights = self.weights if self.is_on_cpu else 0
        return INTERPRETER + max(inside, weights + work)

    @property
    def on_device(self) -> int:
        """Bytes on the GPU; 0 where the model is on the CPU."""
        return 0 if self.is_on_cpu else self.weights + self.activations


def memory_of(meta: MetaModel, passes: list[Passes], lens: int = 0) -> Memory:
    """The memory of a run: its passes, the weights and `lens` bytes."""
    info = meta.model.info
    itemsize = DTYPES[meta.placement.dtype]
    base = [p for p in passes if not p.is_edited]
    kept = max(sum(kept_bytes(need, info, p.text) for need in p.needs) for p in base)
    edited = [p for p in passes if p.is_edited]
    kept += max((_beside_edits(p, info, itemsize) for p in edited), default=0)
    n_models = 1 + any(probe.exchange_needs for p in base for probe in p.probes)
    return Memory(
        weights=n_models * meta.memory_bytes + lens,
        loading=0 if meta.stored == meta.placement.dtype else meta.file_bytes,
        activations=_activations(meta, passes),
        kept=kept,
        analysis=ROW_BYTES * max(p.text.n_rows("scored") for p in base),
        is_on_cpu=meta.placement.device == "cpu",
    )


def kept_bytes(need: Need, info: ModelInfo, text: TokenisedSet) -> int:
    """The bytes that a capture keeps of one need."""
    described, outcomes = need.described, text.prompts.outcome_ids
    sizes = {
        "head": info.n_heads, "kv_head": info.n_kv_heads, "d_head": info.d_head, "d_model": info.d_model,
        "other_d_model": info.d_model, "outcome": 0 if outcomes is None else outcomes.shape[-1],
        "vocab": info.vocab_size, "key": int(text.lengths.max()), "prompt": text.n,
        "expert": info.n_experts,
    }  # fmt: skip
    width = prod(sizes[axis] for axis in described.axes)
    n_layers = {"layer": info.n_layers, "depth": info.n_layers + 1, "once": 1}[described.layers]
    if described.source in ("weights", "edit"):
        return 4 * n_layers * width
    if need.site == "pattern_log_weight" and not text.prompts.is_tunnel:
        return 0
    if isinstance(need.reduction, PromptMean):
        return n_layers * 8 * text.n * width
    if isinstance(need.reduction, NarrowRows) and width > need.reduction.max_width:
        return 0
    # The field `n` of a reduction is the number of prompts that it samples.
    n_sampled = min(text.n, getattr(need.reduction, "n", text.n))
    return n_layers * 4 * width * text.n_rows(need.at) * n_sampled // text.n


def _beside_edits(p: Passes, info: ModelInfo, itemsize: int) -> int:
    """Bytes of the residual stream, keys and values that passes start from, and of the unedited prediction."""
    stream = min(RESIDUALS, (p.n_tokens + p.n_before) * info.d_model * itemsize) if p.first_layer else 0
    stream += p.n_before * 2 * info.n_kv_heads * info.d_head * itemsize * info.n_layers
    unedited = 4 * p.text.n_rows("scored") * info.vocab_size * p.n_prompts // p.text.n
    return stream + (unedited if any(need.site == "next_kl" for need in p.needs) else 0)


def _activations(meta: MetaModel, passes: list[Passes]) -> int:
    """Bytes of one batch inside one block: residual stream, norms, queries to head outputs, feed-forward."""
    info = meta.model.info
    longest = max(int(p.text.lengths.max()) for p in passes)
    n_tokens = max(longest, min(TOKENS_PER_BATCH, longest * most_sequences(), max(p.n_tokens for p in passes)))
    heads = (2 * info.n_heads + 2 * info.n_kv_heads) * info.d_head
    numbers = n_tokens * (6 * info.d_model + 2 * heads + 3 * meta.feed_forward_width)
    return numbers * DTYPES[meta.placement.dtype] + min(_LOGITS, 3 * 4 * n_tokens * info.vocab_size)


SECONDS = 0.1
"""How long the batch is timed."""

WIDEST = 1024
"""Blocks are not measured wider: the rate grows no further."""

PER_FEATURE = 1.5e-8
"""Seconds that a feature of a token takes in a block beside the products: rotary embedding, hooks, sums of weights."""

PER_CONDITION = 0.008
"""Seconds for preparing the edits of a condition and computing its readout."""


def seconds_per_operation(meta: MetaModel) -> float:
    """Seconds of an addition or multiplication inside a block, on one thread of the model's device."""
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
    with torch.inference_mode(), one_thread():
        return _seconds(lambda: block(x, src_mask=mask, is_causal=True), device) / n_operations


def _seconds(act: Callable[[], object], device: torch.device) -> float:
    """The shortest of several processor times or, on a GPU, elapsed times."""

    def now() -> float:
        if device.type == "cpu":
            return time.process_time()
        torch.accelerator.synchronize(device)
        return time.perf_counter()

    found: list[float] = []
    act()
    while not found or sum(found) < SECONDS:
        began = now()
        act()
        found.append(max(now() - began, 1e-9))
    return min(found)


def pass_seconds(p: Passes, meta: MetaModel, per_operation: float) -> float:
    """Seconds of one of these passes, on the threads that it has in a run."""
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


SPREAD = 2**0.5
"""The range of an estimated time: this factor below and above it."""

STARTING = 5.5
"""Seconds of importing PyTorch, transformers and what analyses need, and of writing the page."""

LOADED_PER_SECOND = 800e6
"""Bytes of weights that one core reads, converts and hashes in a second."""

CHECKED_TOKENS = 150
"""The self-check takes as long as so many tokens of a full batch: four passes, each of which reads all weights."""

PAGE_BYTES, FINDINGS_BYTES, HEAD_BYTES, VECTOR_BYTES = 2_300_000, 110_000, 1_100, 20
"""Measured sizes of what a run writes: a page without probes (the plotting library); for each probe, for each head, and
for each feature of a layer."""


@dataclass(frozen=True)
class PassCost:
    """Passes of one kind: their number, the prompts, tokens and blocks of each, and the seconds of all.

    `analysis_seconds` is the time of the analyses on one core, as the probes estimate it.
    """

    what: str
    n: int
    n_prompts: int
    n_tokens: int
    n_blocks: int
    seconds: float
    analysis_seconds: float


@dataclass(frozen=True)
class Plan:
    """The cost of a run, in bytes and seconds: `disk` is what it writes, `download` at most what it fetches first.

    >>> cost = interp.plan("tunnel:bijection-gpt-neox", probes="manifold")
    >>> cost.n_passes, cost.fits
    (1, True)
    """

    model: ModelInfo
    probes: tuple[str, ...]
    steps: tuple[PassCost, ...]
    memory: Memory
    free: int
    disk: int
    download: int
    loading_seconds: float
    notes: tuple[str, ...] = ()

    @property
    def n_passes(self) -> int:
        """How many forward passes over a prompt set there are, every condition counted."""
        return sum(step.n for step in self.steps)

    @property
    def n_tokens(self) -> int:
        """Tokens that pass through the model, padding and every condition counted."""
        return sum(step.n * step.n_tokens for step in self.steps)

    @property
    def seconds(self) -> tuple[float, float]:
        """The shortest and longest time that the run may take, in seconds."""
        analysing = sum(step.analysis_seconds for step in self.steps)
        total = STARTING + self.loading_seconds + self.reading_seconds + analysing
        return total / SPREAD, total * SPREAD

    @property
    def reading_seconds(self) -> float:
        """Seconds of all forward passes."""
        return sum(step.seconds for step in self.steps)

    @property
    def fits(self) -> bool:
        """Whether the memory at its peak fits into what is free on the device."""
        return (self.memory.peak if self.memory.is_on_cpu else self.memory.on_device) <= self.free


@by_keyword(RunOptions)
def plan(options: RunOptions) -> Plan:
    """Estimate what `interp.run` with the same arguments will cost. No weights are read.

    Returns:
        Forward passes, tokens, memory, disk and time. If memory is short, `Plan.fits` is False.

    Raises:
        UsageError: A name, setting or combination does not fit.
        ModelError: The model's shape cannot be found.

    Examples:
        >>> cost = interp.plan("tunnel:bijection-gpt-neox", probes="manifold", n_pool=50)
        >>> cost.n_tokens > 50
        True
    """
    chosen = choose_probes(options.probes, options.settings)
    meta = meta_model(options, or_known=True)
    probes = readable_probes(meta.model, chosen, options.checkpoints)
    n_earlier = len(checkpoints_of(meta.model, probes, options.checkpoints))
    with at_most(options.batch_size):
        passes = passes_of(meta.model, probes, options, n_earlier, chosen)
        memory = memory_of(meta, passes, lens_bytes(options.lens))
    n_times = 1 + options.n_untrained if options.null == "untrained" else 1
    info, per_operation = meta.model.info, seconds_per_operation(meta)
    checked = 2 * CHECKED_TOKENS * info.n_parameters * per_operation
    is_folder = meta.is_here and info.revision is None  # and its checkpoints are folders
    of_layer = HEAD_BYTES * info.n_heads + VECTOR_BYTES * info.d_model
    steps = []
    for p in passes:
        seconds = p.n * n_times * pass_seconds(p, meta, per_operation)
        analysis = n_times * sum(probe.cost.analysis(info, p.text.n_rows("scored")) for probe in p.probes)
        n_blocks = max(0, info.n_layers - p.first_layer)
        steps.append(PassCost(p.what, p.n * n_times, p.n_prompts, p.n_tokens, n_blocks, seconds, float(analysis)))
    return Plan(
        model=info,
        probes=tuple(probe.name for probe in probes if any(probe in p.probes for p in passes)),
        steps=tuple(steps),
        memory=memory,
        free=free_bytes(meta.placement),
        disk=PAGE_BYTES + len(probes) * (FINDINGS_BYTES + info.n_layers * of_layer),
        download=meta.file_bytes * ((not meta.is_here) + (0 if meta.model.task or is_folder else n_earlier)),
        loading_seconds=(1 + n_earlier) * (meta.memory_bytes / LOADED_PER_SECOND + checked),
        notes=tuple(dict.fromkeys(note for note in (meta.note, *(p.text.note for p in passes)) if note)),
    )
