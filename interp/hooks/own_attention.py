"""Attention modules that compute attention themselves, or change head outputs outside transformers' interface.

Under the attention hook, each computes queries, keys and values as its own code does and passes them to the hook's
function. The self-check compares the result with the module's own.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from inspect import signature
from typing import Any

import torch
from transformers.models.falcon.modeling_falcon import apply_rotary_pos_emb

from interp.hooks.state import held
from interp.model import Model

Attend = Callable[..., tuple[torch.Tensor, None]]
"""The attention function of transformers' interface; `bias` `[batch or 1, head, key_pos]` is added to the scores, and
head outputs are multiplied by a `gate` `[batch, pos, head, d_head]`. It gets all other arguments of a module too, and
raises an error for those that change the mathematics."""


def cache_name(module: torch.nn.Module) -> str:
    """The module's argument for a cache: `cache` in newer transformers, `past_key_values` before."""
    return "cache" if "cache" in signature(module.forward).parameters else "past_key_values"


def cache_given(given: Mapping[str, Any]) -> Any:
    """The cache of earlier tokens among a module's arguments, or None."""
    caches = (given.get(name) for name in ("cache", "past_key_values", "layer_past", "cache_params"))
    return next((cache for cache in caches if cache is not None), None)


def _after_earlier(
    module: Any, key: torch.Tensor, value: torch.Tensor, given: Mapping[str, Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    cache = cache_given(given)
    return (key, value) if cache is None else cache.update(key, value, module.layer_idx)


def has_own_attention(model: Model) -> bool:
    """Whether attention of this model bypasses transformers' interface; GPT-J's does in older transformers only."""
    name, _ = _OWN.get(model.family.name, ("", None))
    return any(hasattr(module, name) for module in model.family.attention_modules(model.module))


@contextmanager
def attending_by(model: Model, attend: Attend) -> Iterator[None]:
    """Let the attention modules of such a model call `attend` inside the block."""
    name, replacement = _OWN[model.family.name]
    with ExitStack() as stack:
        for module in model.family.attention_modules(model.module):
            # accelerate's forward calls the module's, which it keeps as `_old_forward`
            place = "_old_forward" if name == "forward" and hasattr(module, "_old_forward") else name
            stack.enter_context(held(module, place, partial(replacement, attend, module)))
        yield


def _seen(mask: torch.Tensor | None) -> torch.Tensor | None:
    """True where a key is visible, from the mask that eager attention adds to its scores."""
    return mask if mask is None or mask.dtype == torch.bool else mask == 0


def _gptj(
    attend: Attend, module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> tuple[torch.Tensor, None]:
    z, _ = attend(module, query, key, value, _seen(mask), scaling=1 / float(module.scale_attn))
    return z.transpose(1, 2), None


def _gpt_neo(
    attend: Attend, module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> tuple[torch.Tensor, None]:
    """Scores are not scaled; the window of `local` layers is in a mask of the module."""
    n, n_keys = query.shape[2], key.shape[2]
    seen, own = _seen(mask), module.bias[:, :, n_keys - n : n_keys, :n_keys]
    z, _ = attend(module, query, key, value, own if seen is None else own & seen, scaling=1.0)
    return z.transpose(1, 2), None


def _bloom(
    attend: Attend, module: Any, hidden_states: torch.Tensor, residual: torch.Tensor, alibi: torch.Tensor,
    attention_mask: torch.Tensor | None, **given: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    query, key, value = module._reshape(module.query_key_value(hidden_states))
    key, value = _after_earlier(module, key, value, given)
    bias = alibi.view(len(query), module.num_heads, -1)
    z, _ = attend(module, query, key, value, _seen(attention_mask), scaling=module.inv_norm_factor, bias=bias, **given)
    return module.dense(z.flatten(2)) + residual, None


def _mpt(
    attend: Attend, module: Any, hidden_states: torch.Tensor, position_bias: torch.Tensor,
    attention_mask: torch.Tensor | None = None, **given: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    mixed = module.Wqkv(hidden_states)
    if module.clip_qkv:
        mixed = mixed.clamp(-module.clip_qkv, module.clip_qkv)
    query, key, value = (x.unflatten(2, (module.n_heads, -1)).transpose(1, 2) for x in mixed.chunk(3, dim=2))
    key, value = _after_earlier(module, key, value, given)
    bias = position_bias[None, :, 0, -key.shape[2] :]
    seen = None if attention_mask is None else ~attention_mask
    z, _ = attend(module, query, key, value, seen, scaling=module.softmax_scale, bias=bias, **given)
    return module.out_proj(z.flatten(2)), None


def _falcon(
    attend: Attend, module: Any, hidden_states: torch.Tensor, alibi: None, attention_mask: torch.Tensor | None,
    position_embeddings: Any = None, **given: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """Newer models repeat keys and values for each query head; the hook gets each once."""
    query, key, value = (x.transpose(1, 2) for x in module._split_heads(module.query_key_value(hidden_states)))
    query, key = apply_rotary_pos_emb(query, key, *position_embeddings)
    key, value = _after_earlier(module, key, value, given)
    step = key.shape[1] // module.num_kv_heads
    z, _ = attend(module, query, key[:, ::step], value[:, ::step], _seen(attention_mask), **given)
    return module.dense(z.flatten(2)), None


def _gated(
    attend: Attend, module: Any, hidden_states: torch.Tensor, position_embeddings: tuple[torch.Tensor, torch.Tensor],
    attention_mask: torch.Tensor | None, **given: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """The query projection also has a gate for each number of the head's output."""
    by_head = (*hidden_states.shape[:2], -1, module.head_dim)
    query, gate = module.q_proj(hidden_states).unflatten(-1, (-1, 2 * module.head_dim)).chunk(2, dim=-1)
    query, key = module.q_norm(query), module.k_norm(module.k_proj(hidden_states).view(by_head))
    value = module.v_proj(hidden_states).view(by_head).transpose(1, 2)
    rotate = sys.modules[type(module).__module__].apply_rotary_pos_emb
    query, key = rotate(query.transpose(1, 2), key.transpose(1, 2), *position_embeddings)
    key, value = _after_earlier(module, key, value, given)
    seen = _seen(attention_mask)
    z, _ = attend(module, query, key, value, seen, scaling=module.scaling, gate=torch.sigmoid(gate), **given)
    return module.o_proj(z.flatten(2)), None


_OWN: dict[str, tuple[str, Callable[..., tuple[torch.Tensor, None]]]] = {
    "gptj": ("_attn", _gptj),
    "gpt_neo": ("_attn", _gpt_neo),
    "bloom": ("forward", _bloom),
    "mpt": ("forward", _mpt),
    "falcon": ("forward", _falcon),
    "qwen3_next": ("forward", _gated),
    "qwen3_5_text": ("forward", _gated),
    "qwen3_5_moe_text": ("forward", _gated),
}
"""By family, the method that is replaced, and its replacement."""
