"""How much memory a run takes at its peak: the interpreter, the weights, what is kept of the pass, and work space.

The sum is the largest resident set of the process; on a GPU, weights and activations are there instead. Constants were
measured as the resident set of real runs, in MiB, in the steps named beside them.
"""

from dataclasses import dataclass
from math import prod

from interp.capture import ModelInfo
from interp.editing.conditions import TOKENS_PER_PASS
from interp.editing.restart import MEMORY as RESIDUALS
from interp.need import Need
from interp.reading.batches import most_sequences
from interp.reading.collector import LOGITS_AT_ONCE
from interp.reading.forward import TOKENS_PER_BATCH
from interp.reductions import Mean, Moments, NarrowRows, PromptMean
from interp.running.meta_model import MetaModel
from interp.running.passes import Passes, TokenisedSet
from interp.system.plain_numbers import DTYPES

MIB = 1 << 20

INTERPRETER = 400 * MIB
"""Python with PyTorch and transformers imported, and a model without weights."""

LIBRARIES = 150 * MIB
"""What analyses import, and the arrays of an analysis of nothing."""

COPIES = 3
"""How often captured numbers lie in memory while they are analysed: kept as float32, and as float64 while worked on."""

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
    """What the passes of a run take beside the weights, and beside the bytes of a `lens`."""
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
    """What a capture keeps of one need."""
    described = need.described
    sizes = {
        "head": info.n_heads, "kv_head": info.n_kv_heads, "d_head": info.d_head, "d_model": info.d_model,
        "other_d_model": info.d_model,
        "vocab": info.vocab_size, "outcome": _n_outcomes(text), "key": int(text.lengths.max()), "prompt": text.n,
        "expert": info.n_experts,
    }  # fmt: skip
    width = prod(sizes[axis] for axis in described.axes)
    n_layers = {"layer": info.n_layers, "depth": info.n_layers + 1, "once": 1}[described.layers]
    if described.source in ("weights", "edit"):
        return 4 * n_layers * width
    if need.site == "pattern_log_weight" and not text.prompts.is_tunnel:
        return 0
    if isinstance(need.reduction, Mean | Moments):
        return n_layers * 8 * (2 * width if isinstance(need.reduction, Mean) else width * width)
    if isinstance(need.reduction, PromptMean):
        return n_layers * 8 * text.n * width
    if isinstance(need.reduction, NarrowRows) and width > need.reduction.max_width:
        return 0
    # A reduction that keeps a sample says of how many prompts by a field `n`.
    n_sampled = min(text.n, getattr(need.reduction, "n", text.n))
    return n_layers * 4 * width * text.n_rows(need.at) * n_sampled // text.n


def _n_outcomes(text: TokenisedSet) -> int:
    ids = text.prompts.outcome_ids
    return 0 if ids is None else ids.shape[-1]


def _beside_edits(p: Passes, info: ModelInfo, itemsize: int) -> int:
    """The residual stream, keys and values that passes start from, and the unedited prediction."""
    stream = min(RESIDUALS, (p.n_tokens + p.n_before) * info.d_model * itemsize) if p.first_layer else 0
    stream += p.n_before * 2 * info.n_kv_heads * info.d_head * itemsize * info.n_layers
    unedited = 4 * p.text.n_rows("scored") * info.vocab_size * p.n_prompts // p.text.n
    return stream + (unedited if any(need.site == "next_kl" for need in p.needs) else 0)


def _activations(meta: MetaModel, passes: list[Passes]) -> int:
    """One batch inside one block: the stream and its norms, queries to head outputs, the widened feed-forward."""
    info = meta.model.info
    longest = max(int(p.text.lengths.max()) for p in passes)
    of_batch = min(max(TOKENS_PER_BATCH, TOKENS_PER_PASS), longest * most_sequences())
    n_tokens = max(longest, min(of_batch, max(p.n_tokens for p in passes)))
    heads = (2 * info.n_heads + 2 * info.n_kv_heads) * info.d_head
    numbers = n_tokens * (6 * info.d_model + 2 * heads + 3 * meta.feed_forward_width)
    return numbers * DTYPES[meta.placement.dtype] + min(_LOGITS, 3 * 4 * n_tokens * info.vocab_size)
