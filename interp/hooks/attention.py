"""The attention hook: one function registered with transformers that every layer of every supported family calls.

While a model is being listened to, its attention modules call `_attention` instead of their kernel. Listeners see
queries, keys and values per head, after rotary embedding and before grouped heads are repeated, may replace them, and
see or replace the head outputs; the attention itself is left to the fast kernel. Leaving restores the model exactly.

Some modules compute attention themselves, or do something to head outputs that no interface shows. While the model is
listened to, each does what its own code does up to queries, keys and values, and hands these to our function. That the
result is the module's own is what the self-check compares on every load.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial, wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import torch
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.falcon.modeling_falcon import apply_rotary_pos_emb

from interp.errors import InterpError, ModelError
from interp.hooks.pattern import BLOCK, AttentionCall, pattern_rows, visible_keys
from interp.hooks.ropes import rotating_afresh
from interp.hooks.state import as_described, held, refuse_mode
from interp.model import Model

ATTENTION = "interp"

_HARMLESS = frozenset(
    {"position_ids", "use_cache", "cache_position", "output_attentions", "position_embeddings", "sliding_window",
     "is_causal", "past_key_values", "cache", "layer_past", "output_router_logits", "logits_to_keep",
     "output_hidden_states", "return_dict"}
)  # fmt: skip
"""Keywords that do not change the mathematics here; a window is already in the mask."""


class Listener:
    """Sees, and may change, the attention of every layer in a forward pass; override one method or both.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> class Sizes(interp.Listener):
    ...     found = []
    ...     def before(self, call):
    ...         self.found.append(tuple(call.k.shape))  # [batch, kv_head, pos, d_head]
    >>> with interp.listening(model, Sizes()):
    ...     logits = model.module(torch.tensor([[1, 2, 3]])).logits
    >>> len(Sizes.found), Sizes.found[0]
    (3, (1, 4, 3, 16))
    """

    def before(self, call: AttentionCall) -> None:
        """Called with `call.q`, `call.k` and `call.v` `[batch, head or kv_head, pos, d_head]`; assign to edit them."""

    def after(self, call: AttentionCall, z: torch.Tensor) -> torch.Tensor:
        """Called with head outputs `[batch, pos, head, d_head]` before the output projection; returns those to use."""
        return z


Ours = Callable[[], bool]
"""Whether the thread that asks is one whose passes are meant."""


_EARS: WeakKeyDictionary[torch.nn.Module, list[tuple[int, Ours, Listener]]] = WeakKeyDictionary()
"""Who listens to an attention module: the number of its layer, the threads whose passes are meant, and the listener."""
_READERS: WeakKeyDictionary[torch.nn.Module, list[int]] = WeakKeyDictionary()
"""Of every model that is read, the thread that reads it, once for each block it is in."""
_ENTERING = threading.Lock()


@contextmanager
def claimed(model: Model) -> Iterator[None]:
    """Let this thread alone read or edit `model` until the block is left; blocks of one thread may be nested.

    Whatever passes or puts hooks on a model has to claim it first: this is where its state is looked at
    (`interp.hooks.state`), here and at every pass. Raises `InterpError` in a second thread.
    """
    me = threading.get_ident()
    with _ENTERING:
        readers = _READERS.setdefault(model.module, [])
        if readers and readers[0] != me:
            raise InterpError(
                asked=f"listening to {model.name}",
                found="another thread is listening to this model",
                fix="Load the model once for each thread, or use a lock.",
            )
        readers.append(me)
    try:
        look = in_own_thread(this_thread(), lambda *_: refuse_mode(model))  # before each of its passes
        with as_described(model), nullcontext() if len(readers) > 1 else model.module.register_forward_pre_hook(look):
            yield
    finally:
        with _ENTERING:
            readers.pop()


_P = ParamSpec("_P")
_T = TypeVar("_T")


def this_thread() -> Ours:
    """The thread that calls this, alone."""
    me = threading.get_ident()
    return lambda: threading.get_ident() == me


def this_thread_and_new_ones() -> Ours:
    """The thread that calls this and all that start from now on; those that run already are others."""
    others = WeakSet(thread for thread in threading.enumerate() if thread is not threading.current_thread())
    return lambda: threading.current_thread() not in others


def in_own_thread(ours: Ours, hook: Callable[_P, _T]) -> Callable[_P, _T | None]:
    """A hook that leaves alone what other threads pass through the model meanwhile."""

    @wraps(hook)
    def hooked(*args: _P.args, **kwargs: _P.kwargs) -> _T | None:
        return hook(*args, **kwargs) if ours() else None

    return hooked


@contextmanager
def listening(model: Model, *listeners: Listener, ours: Ours | None = None) -> Iterator[None]:
    """Attach listeners to the attention of a model inside a `with` block.

    Args:
        model: The model.
        *listeners: They see every attention call. In nested blocks of one thread, those of the outer block act first.
        ours: Called in each pass; says whether this thread's pass is seen. By default only the entering thread's are.

    Yields:
        Nothing; the listeners are detached when the block is left.

    Raises:
        InterpError: Another thread already listens to this model.
        ValueError: No listener is given.

    Examples:
        >>> model = interp.load("tunnel:bijection-gpt-neox")
        >>> with interp.listening(model, interp.Listener()):
        ...     logits = model.module(torch.tensor([[1, 2, 3]])).logits
    """
    if not listeners:
        raise ValueError("nobody to listen")
    modules, ours = model.family.attention_by_layer(model.module), ours or this_thread()
    with claimed(model):
        with _ENTERING:
            for layer, module in modules.items():
                _EARS[module] = [*_EARS.get(module, ()), *((layer, ours, listener) for listener in listeners)]
        try:
            with attention_function(model, ATTENTION), rotating_afresh(model):
                yield
        finally:
            with _ENTERING:
                for module in modules.values():
                    _EARS[module] = [ear for ear in _EARS[module] if not any(ear[2] is mine for mine in listeners)]


@contextmanager
def attention_function(model: Model, name: str) -> Iterator[None]:
    """Let `model` use another registered attention function (`eager`, say) until the block is left."""
    modules: list[Any] = list(model.family.attention_modules(model.module))
    # Layers that were copied have configurations of their own; masks are made by that of the model.
    configs = {id(c): c for c in (model.config, *(getattr(m, "config", model.config) for m in modules))}
    is_own = name == ATTENTION and _has_own_attention(model)
    before = {key: config._attn_implementation for key, config in configs.items()}
    try:
        for config in configs.values():
            config._attn_implementation = "eager" if is_own else name
        with _asking(model, _attention) if is_own else nullcontext():
            yield
    finally:
        for key, config in configs.items():
            config._attn_implementation = before[key]


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    gate: torch.Tensor | None = None,
    **keywords: Any,
) -> tuple[torch.Tensor, None]:
    """Our attention function; arguments and result as transformers' interface defines them."""
    unknown = sorted(k for k, v in keywords.items() if v is not None and k not in _HARMLESS)
    if unknown:
        raise ModelError(
            asked=f"reading {type(module).__name__}",
            found=f"its attention passes the keywords {unknown}, which change what attention computes",
            fix="This model cannot be read yet; please report it with the name of the model.",
        )
    ears = _EARS.get(module, [])
    listeners = [listener for _, ours, listener in ears if ours()]
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer = ears[0][0] if ears else -1  # which nobody hears
    call = AttentionCall(layer, query, key, value, scale, attention_mask, softcap, s_aux, bias=bias, gate=gate)
    for listener in listeners:
        listener.before(call)
    is_plain = softcap is None and s_aux is None
    z = _kernel(module, call, dropout) if is_plain else _in_blocks(call)
    z = z if gate is None else z * gate
    for listener in listeners:
        z = listener.after(call, z)
    return z, None


def _kernel(module: torch.nn.Module, call: AttentionCall, dropout: float) -> torch.Tensor:
    sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]
    k, v, mask = call.k, call.v, call.mask
    if not hasattr(module, "num_key_value_groups"):  # by which transformers' function repeats grouped heads itself
        k, v = (x.repeat_interleave(call.q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    if call.bias is not None:
        visible = visible_keys(call, call.positions)[:, None]  # [batch or 1, 1, pos, key_pos]
        bias = call.bias[:, :, None].to(call.q.dtype)
        mask = torch.where(visible, bias, torch.finfo(bias.dtype).min)
    z, _ = sdpa(module, call.q, k, v, mask, dropout=dropout, scaling=call.scaling)
    return z


def _in_blocks(call: AttentionCall) -> torch.Tensor:
    """Attention with soft-capped scores or learnt sinks, which the fast kernel leaves out, in blocks of queries."""
    repeat = call.q.shape[1] // call.v.shape[1]
    v = call.v.repeat_interleave(repeat, dim=1)  # [batch, head, key_pos, d_head]
    parts = [pattern_rows(call, part).to(v.dtype) @ v for part in call.positions.split(BLOCK, dim=1)]
    return torch.cat(parts, dim=2).transpose(1, 2).contiguous()  # [batch, pos, head, d_head]


# Both are needed: without the mask function of the same name our function would get no mask and padded or windowed rows
# would be silently wrong.
ALL_ATTENTION_FUNCTIONS.register(ATTENTION, _attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(ATTENTION, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])


Attend = Callable[..., tuple[torch.Tensor, None]]
"""The attention function of transformers' interface; `bias` `[batch or 1, head, key_pos]` is added to the scores, and
head outputs are multiplied by a `gate` `[batch, pos, head, d_head]`. What else a module was `given` is handed on, so
that what changes the mathematics is refused there."""


def cache_name(module: torch.nn.Module) -> str:
    """What the module calls a cache of earlier tokens: `cache` in newer transformers, `past_key_values` before."""
    return "cache" if "cache" in signature(module.forward).parameters else "past_key_values"


def cache_given(given: Mapping[str, Any]) -> Any:
    """The cache of earlier tokens among what a module was given, by its newer name, its older ones or Mamba's."""
    caches = (given.get(name) for name in ("cache", "past_key_values", "layer_past", "cache_params"))
    return next((cache for cache in caches if cache is not None), None)


def _after_earlier(
    module: Any, key: torch.Tensor, value: torch.Tensor, given: Mapping[str, Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values behind those of earlier tokens, where an attention module was given a cache of these."""
    cache = cache_given(given)
    return (key, value) if cache is None else cache.update(key, value, module.layer_idx)


def _has_own_attention(model: Model) -> bool:
    """Whether the attention of this model asks no interface; that of GPT-J does in newer transformers."""
    name, _ = _OWN.get(model.family.name, ("", None))
    return any(hasattr(module, name) for module in model.family.attention_modules(model.module))


@contextmanager
def _asking(model: Model, attend: Attend) -> Iterator[None]:
    """Let the attention modules of such a model call `attend` until the block is left."""
    name, replacement = _OWN[model.family.name]
    with ExitStack() as stack:
        for module in model.family.attention_modules(model.module):
            # Where accelerate has put its own forward, the module's is what that calls.
            place = "_old_forward" if name == "forward" and hasattr(module, "_old_forward") else name
            stack.enter_context(held(module, place, partial(replacement, attend, module)))
        yield


def _seen(mask: torch.Tensor | None) -> torch.Tensor | None:
    """True where a key is seen, from what eager attention adds to its scores."""
    return mask if mask is None or mask.dtype == torch.bool else mask == 0


def _gptj(
    attend: Attend, module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> tuple[torch.Tensor, None]:
    z, _ = attend(module, query, key, value, _seen(mask), scaling=1 / float(module.scale_attn))
    return z.transpose(1, 2), None


def _gpt_neo(
    attend: Attend, module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> tuple[torch.Tensor, None]:
    """Scores are not scaled; layers of the kind `local` see a window, which is in a mask of the module's own."""
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
    """Newer models hand on every key and value once for each query head; the hook gets each once."""
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
    """Queries come with a gate for each number of their head's output."""
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
"""Of each family the method that is replaced, and what does its work."""
