"""The attention hook: a function registered with transformers that attention modules call instead of their kernel.

Listeners see, and may replace, queries, keys and values per head, after rotary embedding and before grouped heads are
repeated, and head outputs; the fast kernel still computes attention. On leaving, the model is restored exactly.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from interp.errors import InterpError, ModelError, UsageError
from interp.hooks.own_attention import attending_by, has_own_attention
from interp.hooks.pattern import BLOCK, AttentionCall, pattern_rows, visible_keys
from interp.hooks.ropes import resetting_ropes
from interp.hooks.state import as_described, refuse_mode
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
"""Whether the passes of the current thread are read or edited."""


_LISTENERS: WeakKeyDictionary[torch.nn.Module, list[tuple[int, Ours, Listener]]] = WeakKeyDictionary()
"""By attention module: its layer, the threads whose passes are seen, and the listener."""
_READERS: WeakKeyDictionary[torch.nn.Module, list[int]] = WeakKeyDictionary()
"""By model: the thread that reads it, once for each block that it has entered."""
_ENTERING = threading.Lock()


@contextmanager
def claimed(model: Model) -> Iterator[None]:
    """Let only this thread read or edit `model` inside the block; blocks of one thread may be nested.

    All code that runs a model or puts hooks on it claims it first, because its state (`interp.hooks.state`)
    is checked here, and at every pass. Raises `InterpError` in a second thread.
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
        check = in_own_thread(this_thread(), lambda *_: refuse_mode(model))
        with as_described(model), nullcontext() if len(readers) > 1 else model.module.register_forward_pre_hook(check):
            yield
    finally:
        with _ENTERING:
            readers.pop()


def this_thread() -> Ours:
    """The calling thread only."""
    me = threading.get_ident()
    return lambda: threading.get_ident() == me


def this_thread_and_new_ones() -> Ours:
    """The calling thread and all threads that start from now on."""
    others = WeakSet(thread for thread in threading.enumerate() if thread is not threading.current_thread())
    return lambda: threading.current_thread() not in others


def in_own_thread(ours: Ours, hook: Callable[..., Any]) -> Callable[..., Any]:
    """The hook, limited to passes of threads that are `ours`."""

    @wraps(hook)
    def hooked(*args: Any, **kwargs: Any) -> Any:
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
        UsageError: No listener is given, or something else.

    Examples:
        >>> model = interp.load("tunnel:bijection-gpt-neox")
        >>> with interp.listening(model, interp.Listener()):
        ...     logits = model.module(torch.tensor([[1, 2, 3]])).logits
    """
    if not listeners or not all(isinstance(each, Listener) for each in listeners):
        found = f"it was given {', '.join(f'{each!r:.60}' for each in listeners) or 'no listener'}"
        fix = "Give objects of your own subclass of interp.Listener: listening(model, Mine())."
        raise UsageError(asked=f"listening to {model.name}", found=found, fix=fix)
    modules, ours = model.family.attention_by_layer(model.module), ours or this_thread()
    with claimed(model):
        with _ENTERING:
            for layer, module in modules.items():
                _LISTENERS[module] = [*_LISTENERS.get(module, ()), *((layer, ours, each) for each in listeners)]
        try:
            with attention_function(model, ATTENTION), resetting_ropes(model):
                yield
        finally:
            with _ENTERING:
                for module in modules.values():
                    _LISTENERS[module] = [e for e in _LISTENERS[module] if not any(e[2] is mine for mine in listeners)]


@contextmanager
def attention_function(model: Model, name: str) -> Iterator[None]:
    """Let `model` use another registered attention function, such as `eager`, inside the block."""
    modules: list[Any] = list(model.family.attention_modules(model.module))
    # Copied layers have their own configurations; masks are made by the model's.
    configs = {id(c): c for c in (model.config, *(getattr(m, "config", model.config) for m in modules))}
    is_own = name == ATTENTION and has_own_attention(model)
    before = {key: config._attn_implementation for key, config in configs.items()}
    try:
        for config in configs.values():
            config._attn_implementation = "eager" if is_own else name
        with attending_by(model, _attention) if is_own else nullcontext():
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
    """The attention function; arguments and result are those of transformers' interface."""
    unknown = sorted(k for k, v in keywords.items() if v is not None and k not in _HARMLESS)
    if unknown:
        raise ModelError(
            asked=f"reading {type(module).__name__}",
            found=f"its attention passes the keywords {unknown}, which change what attention computes",
            fix="This model cannot be read yet; please report it with the name of the model.",
        )
    entries = _LISTENERS.get(module, [])
    listeners = [listener for _, ours, listener in entries if ours()]
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer = entries[0][0] if entries else -1
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
    if not hasattr(module, "num_key_value_groups"):  # with it, transformers' function repeats grouped heads
        k, v = (x.repeat_interleave(call.q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    if call.bias is not None:
        visible = visible_keys(call, call.positions)[:, None]  # [batch or 1, 1, pos, key_pos]
        bias = call.bias[:, :, None].to(call.q.dtype)
        mask = torch.where(visible, bias, torch.finfo(bias.dtype).min)
    z, _ = sdpa(module, call.q, k, v, mask, dropout=dropout, scaling=call.scaling)
    return z


def _in_blocks(call: AttentionCall) -> torch.Tensor:
    """Attention with soft-capped scores or learnt sinks, which the fast kernel lacks, in blocks of queries."""
    repeat = call.q.shape[1] // call.v.shape[1]
    v = call.v.repeat_interleave(repeat, dim=1)  # [batch, head, key_pos, d_head]
    parts = [pattern_rows(call, part).to(v.dtype) @ v for part in call.positions.split(BLOCK, dim=1)]
    return torch.cat(parts, dim=2).transpose(1, 2).contiguous()  # [batch, pos, head, d_head]


# Without the mask function of the same name, the attention function would get no mask.
ALL_ATTENTION_FUNCTIONS.register(ATTENTION, _attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(ATTENTION, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
