"""How fast this machine reads this model: a second of real passes through one or two of its blocks, without weights.

The blocks have the shapes of the model and weights of zero, which take no memory until they are written and are
multiplied as fast as any. What a pass costs grows by the same amount with every block; what is left is the embedding,
the output head, and what is read at the end.
"""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from accelerate import init_empty_weights
from transformers import AutoModelForCausalLM, PreTrainedConfig

from interp.loading.quiet_libraries import quiet_libraries
from interp.model import Model
from interp.need import Need
from interp.reading.forward import TOKENS_PER_BATCH, capture
from interp.running.meta_model import MetaModel
from interp.running.passes import Passes, TokenisedSet, readable_needs

Clock = Callable[[], float]

Speeds = dict[tuple[str, tuple[Need, ...]], "Speed"]
"""By the kind of a pass: see `interp.running.passes.Passes.kind`."""

SECONDS = 0.25
"""How long each measured pass should take."""

_PARAMETERS = 60_000_000
"""How many parameters the blocks of the deeper of the two measured stacks have, if it has more than two."""


@dataclass(frozen=True)
class Speed:
    """Seconds a token: `by_block` in every block, `outside` them."""

    by_block: float
    outside: float

    def seconds(self, n_tokens: int, n_blocks: int) -> float:
        return n_tokens * (self.outside + n_blocks * self.by_block)


def measure_speed(
    meta: MetaModel, text: TokenisedSet, needs: tuple[Need, ...], clock: Clock = time.perf_counter
) -> Speed:
    """Seconds a token while `needs` are read from texts of this length."""
    needs = tuple(need for need in needs if need.described.source not in ("weights", "edit"))
    n_layers = meta.model.info.n_layers
    blocks = meta.model.family.layer_modules(meta.model.module)
    deep = max(2, min(n_layers, _PARAMETERS // sum(p.numel() for p in blocks[0].parameters())))
    if n_layers == 1:
        return Speed(_seconds_per_token(_shallow(meta, 1), text, needs, clock), 0.0)
    shallow, deeper = (_seconds_per_token(_shallow(meta, n), text, needs, clock) for n in (1, deep))
    by_block = max(0.0, deeper - shallow) / (deep - 1)
    return Speed(by_block, max(0.0, shallow - by_block))


def _seconds_per_token(model: Model, text: TokenisedSet, needs: tuple[Need, ...], clock: Clock) -> float:
    """Seconds a token in a full batch: passes of ever more prompts, and the line through the last two of them.

    A batch costs something whatever its size; a machine too slow for a full one is not asked for it.
    """
    order = np.argsort(text.lengths, kind="stable")
    most = max(1, min(TOKENS_PER_BATCH // int(np.median(text.lengths)), len(order)))
    measured: list[tuple[int, float]] = []
    n = 1
    while True:
        start = min(len(order) // 2, len(order) - n)
        chosen = order[start : start + n]
        seconds = min(_timed(model, text, chosen, needs, clock) for _ in range(2))
        measured.append((n, seconds))
        if n == most or (len(measured) > 1 and seconds > SECONDS / 2):
            break
        n = min(most, 4 * n)
    full = seconds
    if len(measured) > 1:
        (fewer, before), (more, after) = measured[-2:]
        full = after + (most - more) * max(0.0, after - before) / (more - fewer)
    return full / (most * float(np.median(text.lengths)))


def _timed(model: Model, text: TokenisedSet, chosen: np.ndarray, needs: tuple[Need, ...], clock: Clock) -> float:
    prompts, ids = text.prompts.take(chosen), [text.ids[int(i)] for i in chosen]
    began = clock()
    capture(model, prompts, ids, readable_needs(needs, prompts.prompts[0].columns))
    return clock() - began


def _shallow(meta: MetaModel, n_layers: int) -> Model:
    """The model with so many blocks and weights of zero, where it would be put."""
    config = _of_depth(meta.model.module.config, n_layers)
    info, placement = meta.model.info, meta.placement
    with init_empty_weights(include_buffers=False), quiet_libraries():
        module = AutoModelForCausalLM.from_config(
            config, dtype=getattr(torch, placement.dtype),
            attn_implementation="sdpa" if meta.model.family.has_attention else None,
        )  # fmt: skip
    module = module._apply(lambda x: _zeros(x, placement.device) if x.is_meta else x.to(placement.device))
    module.tie_weights()
    return replace(meta.model, module=module.eval().requires_grad_(False), info=replace(info, n_layers=n_layers))


def _of_depth(config: PreTrainedConfig, n_layers: int) -> Any:
    """The configuration with so many layers; its lists of one entry a layer are cut with it."""
    changed = copy.deepcopy(config)
    n_before = config.num_hidden_layers
    changed.num_hidden_layers = n_layers
    for name, value in vars(changed).items():
        if isinstance(value, list) and len(value) == n_before:
            setattr(changed, name, value[:n_layers])
    return changed


def _zeros(like: torch.Tensor, device: str) -> torch.Tensor:
    if device != "cpu":
        return torch.zeros(like.shape, dtype=like.dtype, device=device)
    # torch.zeros writes every page; the system's own zeros lie nowhere until they are written.
    return torch.from_numpy(np.zeros(like.numel() * like.itemsize, dtype=np.uint8)).view(like.dtype).view(like.shape)


def speeds(meta: MetaModel, passes: list[Passes], clock: Clock = time.perf_counter) -> "Speeds":
    """The speed of every kind of pass; those that are alike are measured once."""
    kinds = {p.kind: p for p in passes}
    return {kind: measure_speed(meta, p.text, p.needs, clock) for kind, p in kinds.items()}
