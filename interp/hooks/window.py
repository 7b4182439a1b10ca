"""A binding attention window, put on any model: what would a sliding window do to this geometry?"""

from dataclasses import dataclass

import torch

from interp.hooks.attention import Listener
from interp.hooks.pattern import AttentionCall, visible_keys


@dataclass
class AttentionWindow(Listener):
    """Every query sees the last `size` keys only, itself included, on top of what the model's own mask hides."""

    size: int

    def before(self, call: AttentionCall) -> None:
        n_pos, n_keys = call.q.shape[2], call.k.shape[2]
        own = call.positions[0] + n_keys - n_pos
        near = own[:, None] - torch.arange(n_keys, device=call.q.device) < self.size
        call.mask = (visible_keys(call, call.positions) & near)[:, None]
