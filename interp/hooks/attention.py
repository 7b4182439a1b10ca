"""The attention hook: one function registered with transformers that every layer of every supported family calls.

While a model is being listened to, its attention modules call `_attention` instead of their kernel. Listeners see
queries, keys and values per head, after rotary embedding and before grouped heads are repeated, may replace them, and
see or replace the head outputs; the attention itself is left to the fast kernel. Leaving restores the model exactly.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import torch
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from interp.errors import InterpError, ModelError, UsageError
from interp.hooks.own_attention import asking, has_own_attention
from interp.hooks.pattern import BLOCK, AttentionCall, pattern_rows, visible_keys
from interp.hooks.ropes import rotating_afresh
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
        UsageError: No listener is given, or what is none.

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
    is_own = name == ATTENTION and has_own_attention(model)
    before = {key: config._attn_implementation for key, config in configs.items()}
    try:
        for config in configs.values():
            config._attn_implementation = "eager" if is_own else name
        with asking(model, _attention) if is_own else nullcontext():
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
