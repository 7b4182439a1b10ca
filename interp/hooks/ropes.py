"""Rotary embeddings that depend on the length of a forward pass, which transformers takes over all its prompts.

Beyond `original_max_position_embeddings` LongRoPE rotates by its long factors, and beyond `max_position_embeddings`
dynamic NTK by frequencies of that length. Every prompt is read as if it were alone in its pass.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Int

from interp.model import Model

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_ORIGINAL = "original_max_position_embeddings"


def rope_scales(config: "PretrainedConfig", lengths: Sequence[int] | np.ndarray) -> Int[np.ndarray, " length"]:
    """A number for each length of a pass, ascending: prompts with the same number can share a pass."""
    lengths = np.asarray(lengths)
    found = np.zeros(lengths.shape, dtype=np.int64)
    for rope in _ropes(config):
        if _is_dynamic(rope):
            found += np.where(lengths > config.max_position_embeddings, lengths, 0)
        elif rope["rope_type"] == "longrope":
            found += lengths > rope[_ORIGINAL]
    return found


def longest_input(config: "PretrainedConfig") -> int | None:
    """How many positions a model reads; None without a limit.

    `max_position_embeddings` includes the stretching of `llama3` and `longrope`. `linear` stretches it by its factor;
    `yarn` stretches the original length, unless the field includes that already; `dynamic` has no limit. Of several
    ropes, those of kinds of layers, the shortest decides.
    """
    stated = getattr(config, "max_position_embeddings", None)
    ropes = _ropes(config)
    if stated is None or not ropes:
        return stated
    ends = [_end(rope, stated) for rope in ropes if not _is_dynamic(rope)]
    return min(ends, default=None)


@contextmanager
def resetting_ropes(model: Model) -> Iterator[None]:
    """Let passes inside the block rotate by their own length: dynamic ropes keep frequencies of the longest so far."""
    with ExitStack() as stack:
        if any(map(_is_dynamic, _ropes(model.config))):
            for part in model.module.modules():
                for name, original in list(part.named_buffers(recurse=False)):
                    if name.endswith("original_inv_freq"):
                        stack.enter_context(_resetting(part, name.removesuffix("original_inv_freq"), original))
        yield


@contextmanager
def _resetting(rotary: Any, layer_type: str, original: torch.Tensor) -> Iterator[None]:
    """Reset one set of frequencies of a module, that of `layer_type`, before every pass."""
    frequencies, longest = f"{layer_type}inv_freq", f"{layer_type}max_seq_len_cached"
    before = getattr(rotary, frequencies), getattr(rotary, longest, rotary.original_max_seq_len)

    def put(values: torch.Tensor, n_seen: int | torch.Tensor) -> None:
        setattr(rotary, frequencies, values)
        setattr(rotary, longest, n_seen)

    def reset(*_: Any) -> None:
        put(original.to(getattr(rotary, frequencies).device), rotary.original_max_seq_len)

    try:
        with rotary.register_forward_pre_hook(reset):
            yield
    finally:
        put(*before)


def _ropes(config: "PretrainedConfig") -> list[Mapping[str, Any]]:
    """The settings of the rope, or of one rope for each kind of layers; empty without rotary embedding."""
    settings = getattr(config, "rope_parameters", None) or {}
    each = [settings] if "rope_type" in settings else [x for x in settings.values() if isinstance(x, Mapping)]
    return [rope for rope in each if "rope_type" in rope]


def _is_dynamic(rope: Mapping[str, Any]) -> bool:
    return "dynamic" in rope["rope_type"]


def _end(rope: Mapping[str, Any], stated: int) -> int:
    stretched = {"linear": stated, "yarn": rope.get(_ORIGINAL, stated)}
    if rope["rope_type"] not in stretched:
        return stated
    return max(stated, int(stretched[rope["rope_type"]] * (rope.get("factor") or 1.0)))
