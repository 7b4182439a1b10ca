"""An attention window for any model, on top of its own mask."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass

import torch

from interp.errors import UsageError
from interp.hooks.attention import Listener, listening
from interp.hooks.pattern import AttentionCall, visible_keys
from interp.model import Model
from interp.system.threads import during


@dataclass
class AttentionWindow(Listener):
    """Limits every query to the last `size` keys, its own included."""

    size: int

    def before(self, call: AttentionCall) -> None:
        n_pos, n_keys = call.q.shape[2], call.k.shape[2]
        own = call.positions[0] + n_keys - n_pos
        near = own[:, None] - torch.arange(n_keys, device=call.q.device) < self.size
        call.mask = (visible_keys(call, call.positions) & near)[:, None]


_HERE: ContextVar[tuple[AttentionWindow, ...]] = ContextVar("attention window", default=())
window_here = _HERE.get
"""The window of the current `windowed` block, or none, for donors and controls that must see the same."""


@contextmanager
def windowed(model: Model, size: int | None) -> Iterator[None]:
    """Put a window on a model, and on donors of its patterns, inside the block; None puts none."""
    window = () if size is None else (AttentionWindow(size),)
    if window and not model.family.has_attention:
        asked, fix = f"changing the attention of {model.name}", "Leave out --attention-window."
        raise UsageError(asked=asked, found="this model has no attention", fix=fix)
    with during(_HERE, window), listening(model, *window) if window else nullcontext():
        yield
