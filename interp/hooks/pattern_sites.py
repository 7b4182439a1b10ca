"""The pattern sites: the name of each number of attention rows, computed once for all that request it."""

from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Int

from interp.hooks.pattern import (
    BLOCK,
    FAR_BELOW,
    AttentionCall,
    as_scores,
    dot_factor,
    log_pattern_rows,
    queries,
    reduce_rows,
    scaled_dots,
    visible_keys,
)
from interp.information import BITS_PER_NAT


class KeyDonors:
    """Swaps the keys of a batch, and keeps those of its last prompt for the first of the next batch."""

    def __init__(self) -> None:
        self._last_of = self._coming_of = (-1, -1)
        self._fits = torch.empty(0, dtype=torch.bool)
        self._last: dict[int, torch.Tensor] = {}
        self._coming: dict[int, torch.Tensor] = {}

    def begin(self, lengths: Int[np.ndarray, " item"], clusters: Int[np.ndarray, " item"]) -> None:
        """Set the lengths and clusters of the prompts of the next batch."""
        own = np.stack([lengths, clusters], axis=1)
        before = np.concatenate([[self._last_of], own[:-1]])
        self._fits = torch.from_numpy((own[:, 0] == before[:, 0]) & (own[:, 1] != before[:, 1]))
        self._coming_of, self._coming = (int(lengths[-1]), int(clusters[-1])), {}

    def end(self) -> None:
        """After a batch: its last prompt is the donor for the first of the next."""
        self._last, self._last_of = self._coming, self._coming_of

    def swapped(self, call: AttentionCall) -> AttentionCall:
        """The call with each item's keys taken from the item before it; to be called once per layer and batch.

        An item is lacking keys if that donor has another length or is in the same cluster.
        """
        self._coming[call.layer] = call.k[-1, :, : self._coming_of[0]].clone()
        self._fits = self._fits.to(call.k.device)
        last = self._last.get(call.layer)
        first = call.k[:1] if last is None else last[None, :, : call.k.shape[2]].to(call.k.dtype)
        return replace(call, k=torch.cat([first, call.k[:-1]]), lacking=~self._fits)


ATTENDED = 0.5
"""The smallest share of a row's weight on its attended keys."""

_ROUNDING = 1e-6
"""Tolerance, so that one of two equal keys has half of the weight."""

CONTRASTS = ("qk_cosine", "qk_logit", "qk_cosine_no_first", "qk_logit_no_first")


def contrast_rows(call: AttentionCall, positions: torch.Tensor, block: int = BLOCK) -> dict[str, torch.Tensor]:
    """Contrasts of attended and unattended keys in the rows at `positions` `[batch or 1, row]`, block by block.

    Each of `CONTRASTS` is `[batch, head, row]`; NaN for a single key. The attended keys of a row are the fewest with
    half of its weight. Contrasts are means over attended minus means over other visible keys, of cos(q, k) and of the
    log2 weight (the score q·k in bits). As attended keys are chosen by their score, both are positive even if nothing
    was learned, and are compared with those for the keys of another prompt (`KeyDonors`). A first key that is a sink
    would be the only attended one: hence the same contrasts without the first key.
    """
    k_norm = _norm(call.k)[:, :, None, None]  # [batch, kv_head, 1, 1, key_pos]
    parts = [_contrast_block(call, k_norm, part) for part in positions.split(block, dim=1)]
    columns = (torch.cat(each, dim=-1) for each in zip(*parts, strict=True))
    return dict(zip(CONTRASTS, columns, strict=True))


def _contrast_block(call: AttentionCall, k_norm: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, ...]:
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
    attended = attended_keys(torch.softmax(s / BITS_PER_NAT, dim=-1))
    unattended = visible[:, None, None] & ~attended
    cosine, s = (_mean_over(x, attended) - _mean_over(x, unattended) for x in (cosine, s))
    return cosine.flatten(1, 2), s.flatten(1, 2)  # [batch, head, row]


def _norm(x: torch.Tensor) -> torch.Tensor:
    """Length along the last axis in float32, above 0, so that the cosine with a zero vector is 0."""
    return torch.linalg.vector_norm(x.float(), dim=-1).clamp_min_(1e-12)


def attended_keys(weights: torch.Tensor) -> torch.Tensor:
    """The fewest keys (last axis) with at least `ATTENDED` of a row's weight."""
    largest, order = weights.sort(dim=-1, descending=True, stable=True)
    held_by_heavier = largest.cumsum(dim=-1) - largest
    return torch.zeros_like(weights, dtype=torch.bool).scatter_(-1, order, held_by_heavier < ATTENDED - _ROUNDING)


def _mean_over(x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    return torch.where(chosen, x, 0.0).sum(dim=-1) / chosen.sum(dim=-1)


MAX_KEPT_KEYS = 128
"""Longest sequences of a wind tunnel whose whole attention rows are kept."""

NULL_SITES = frozenset(
    f"{name}{variant}_null" for name in ("pattern_entropy", "pattern_max", "qk_cosine", "qk_logit")
    for variant in ("", "_no_first")
)  # fmt: skip
"""Sites that are read with the keys of another prompt."""

OF_NEIGHBOURS = frozenset({"mass_previous", "mass_previous_no_first", "pattern_log_weight", "pattern_row"})
"""Sites that name keys by their position: the sequence must contain a single prompt."""


class PatternReader:
    """The rows of one layer at `positions` `[batch or 1, row]`, by the name of a site.

    Null sites are read from a call with donors, NaN for items without one. Whole rows (`pattern_log_weight`) are
    `n_kept_keys` wide, rows of any length (`pattern_row`) `n_longest`.
    """

    def __init__(self, call: AttentionCall, positions: torch.Tensor, n_kept_keys: int, n_longest: int = 0) -> None:
        self.call, self.positions = call, positions
        self._widths = {"pattern_log_weight": n_kept_keys, "pattern_row": n_longest}

    @cached_property
    def _rows(self) -> dict[str, torch.Tensor]:
        return reduce_rows(self.call, self.positions)

    @cached_property
    def _contrast(self) -> dict[str, torch.Tensor]:
        return contrast_rows(self.call, self.positions)

    def read(self, site: str) -> torch.Tensor:
        """`[batch, row, head]`, or `[batch, row, head, key]` for whole rows."""
        if site in self._widths:
            return self._whole_rows(self._widths[site])
        lacking = self.call.lacking
        assert (site in NULL_SITES) == (lacking is not None), f"{site} is read with the keys of another kind"
        name = site.removesuffix("_null")
        reduced = (self._contrast if name in CONTRASTS else self._rows)[name]
        if lacking is not None:
            reduced = reduced.masked_fill(lacking[:, None, None], torch.nan)  # [batch, head, row]
        return reduced.transpose(1, 2)

    def _whole_rows(self, n_keys: int) -> torch.Tensor:
        batch, n_heads = self.call.q.shape[:2]
        shape = (batch, self.positions.shape[1], n_heads, n_keys)
        kept = self.call.q.new_full(shape, torch.nan, dtype=torch.float32)
        if n_keys:
            bits = log_pattern_rows(self.call, self.positions).transpose(1, 2)  # [batch, row, head, key]
            kept[..., : bits.shape[-1]] = bits
        return kept
