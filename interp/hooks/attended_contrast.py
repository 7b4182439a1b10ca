"""How far apart attended and unattended keys are, as the query sees them.

The attended keys of a row are the fewest that hold half of its weight. Contrasts are means over the attended minus
means over the other visible keys, of cos(q, k) and of the log2 weight (the score q·k in bits). Attended keys are
chosen by their score, so both contrasts are positive where nothing was learned: they mean something beside the
same number with the keys of another prompt (`interp.hooks.donor_keys`). Where the first key is a sink it is the one
that is attended, and what heads look for counts as unattended: hence the same contrasts with the first key left out.
"""

from dataclasses import dataclass

import torch

from interp.hooks.pattern import (
    BLOCK,
    FAR_BELOW,
    AttentionCall,
    as_scores,
    dot_factor,
    queries,
    scaled_dots,
    visible_keys,
)
from interp.information import BITS_PER_NAT

ATTENDED = 0.5
"""The share of a row's weight that its attended keys hold, at least."""

_ROUNDING = 1e-6
"""Of two equal keys one holds half, whatever rounding makes of it."""


@dataclass(frozen=True)
class Contrast:
    """Attended minus unattended, each `[batch, head, row]`; NaN where there is a single key to choose from."""

    cosine: torch.Tensor
    logit_bits: torch.Tensor
    cosine_no_first: torch.Tensor
    logit_bits_no_first: torch.Tensor


def contrast_rows(call: AttentionCall, positions: torch.Tensor, block: int = BLOCK) -> Contrast:
    """The contrasts of the attention rows at `positions` `[batch or 1, row]`, block by block."""
    k_norm = _norms_of_keys(call)[:, :, None, None]
    parts = [_contrast_block(call, k_norm, part) for part in positions.split(block, dim=1)]
    return Contrast(*(torch.cat(columns, dim=-1) for columns in zip(*parts, strict=True)))


def _contrast_block(call: AttentionCall, k_norm: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The fields of `Contrast`."""
    visible = visible_keys(call, positions)
    scaled = scaled_dots(call, positions, visible.shape[-1])  # [batch, kv_head, group, row, key_pos]
    q_norm = _norm(queries(call, positions)).unflatten(1, (k_norm.shape[1], -1))  # [batch, kv_head, group, row]
    cosine = scaled / k_norm / (dot_factor(call) * q_norm[..., None])
    s = as_scores(call, scaled, visible)
    whole = _differences(cosine, s, visible)
    s[..., 0] = FAR_BELOW
    is_first = torch.arange(visible.shape[-1], device=visible.device) == 0
    return (*whole, *_differences(cosine, s, visible & ~is_first))


def _differences(cosine: torch.Tensor, s: torch.Tensor, visible: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the cosines and of the scores: mean over the attended minus mean over the other visible keys."""
    attended = attended_keys(torch.softmax(s / BITS_PER_NAT, dim=-1))
    unattended = visible[:, None, None] & ~attended
    cosine, s = (_mean_over(x, attended) - _mean_over(x, unattended) for x in (cosine, s))
    return cosine.flatten(1, 2), s.flatten(1, 2)  # [batch, head, row]


def _norms_of_keys(call: AttentionCall) -> torch.Tensor:
    """Lengths of the keys that each item meets, `[batch, kv_head, key_pos]`."""
    return _norm(call.k) if call.donor is None else call.donor.apply(lambda items, keys: _norm(keys), call.k)


def _norm(x: torch.Tensor) -> torch.Tensor:
    """Length along the last axis in float32, and nearly 0 rather than 0: the cosine with nothing is 0."""
    return torch.linalg.vector_norm(x.float(), dim=-1).clamp_min_(1e-12)


def attended_keys(weights: torch.Tensor) -> torch.Tensor:
    """The fewest keys (last axis) that hold at least `ATTENDED` of a row's weight; the heavier ones first."""
    largest, order = weights.sort(dim=-1, descending=True, stable=True)
    held_by_heavier = largest.cumsum(dim=-1) - largest
    return torch.zeros_like(weights, dtype=torch.bool).scatter_(-1, order, held_by_heavier < ATTENDED - _ROUNDING)


def _mean_over(x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Mean of the chosen entries along the last axis; NaN where there are none."""
    return torch.where(chosen, x, 0.0).sum(dim=-1) / chosen.sum(dim=-1)
