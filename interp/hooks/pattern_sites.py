"""The pattern sites: what each name means in terms of attention rows, computed once for all that ask."""

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
    """Swaps the keys of a batch, and remembers those of its last prompt for the first of the next batch."""

    def __init__(self) -> None:
        self._last_of = self._coming_of = (-1, -1)
        self._fits = torch.empty(0, dtype=torch.bool)
        self._last: dict[int, torch.Tensor] = {}
        self._coming: dict[int, torch.Tensor] = {}

    def begin(self, lengths: Int[np.ndarray, " item"], clusters: Int[np.ndarray, " item"]) -> None:
        """Announce the true lengths of the batch that is about to be read, and the clusters of its prompts."""
        own = np.stack([lengths, clusters], axis=1)
        before = np.concatenate([[self._last_of], own[:-1]])
        self._fits = torch.from_numpy((own[:, 0] == before[:, 0]) & (own[:, 1] != before[:, 1]))
        self._coming_of, self._coming = (int(lengths[-1]), int(clusters[-1])), {}

    def end(self) -> None:
        """The announced batch was read: its last prompt is the donor of the first of the next."""
        self._last, self._last_of = self._coming, self._coming_of

    def swapped(self, call: AttentionCall) -> AttentionCall:
        """The call with the keys of donors: of every item the keys of the item before it. Once a layer and batch.

        An item whose donor is of another length or of its own cluster is lacking one.
        """
        self._coming[call.layer] = call.k[-1, :, : self._coming_of[0]].clone()
        self._fits = self._fits.to(call.k.device)
        last = self._last.get(call.layer)
        first = call.k[:1] if last is None else last[None, :, : call.k.shape[2]].to(call.k.dtype)
        return replace(call, k=torch.cat([first, call.k[:-1]]), lacking=~self._fits)


ATTENDED = 0.5
"""The share of a row's weight that its attended keys hold, at least."""

_ROUNDING = 1e-6
"""Of two equal keys one holds half, whatever rounding makes of it."""


CONTRASTS = ("qk_cosine", "qk_logit", "qk_cosine_no_first", "qk_logit_no_first")


def contrast_rows(call: AttentionCall, positions: torch.Tensor, block: int = BLOCK) -> dict[str, torch.Tensor]:
    """How far apart attended and unattended keys are in the rows at `positions` `[batch or 1, row]`, block by block.

    Each of `CONTRASTS` is `[batch, head, row]`; NaN where there is a single key. The attended keys of a row are the
    fewest that hold half of its weight. Contrasts are means over the attended minus means over the other visible keys,
    of cos(q, k) and of the log2 weight (the score q·k in bits). Attended keys are chosen by their score, so both
    contrasts are positive where nothing was learned: they mean something beside the same number with the keys of
    another prompt (`KeyDonors`). Where the first key is a sink it is the one that is attended, and what heads look for
    counts as unattended: hence the same contrasts with the first key left out.
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
    """Of the cosines and of the scores: mean over the attended minus mean over the other visible keys."""
    attended = attended_keys(torch.softmax(s / BITS_PER_NAT, dim=-1))
    unattended = visible[:, None, None] & ~attended
    cosine, s = (_mean_over(x, attended) - _mean_over(x, unattended) for x in (cosine, s))
    return cosine.flatten(1, 2), s.flatten(1, 2)  # [batch, head, row]


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


MAX_KEPT_KEYS = 128
"""Longest sequences of a wind tunnel whose attention rows are kept whole."""

NULL_SITES = frozenset(
    f"{name}{variant}_null" for name in ("pattern_entropy", "pattern_max", "qk_cosine", "qk_logit")
    for variant in ("", "_no_first")
)  # fmt: skip
"""Sites that are read with the keys of another prompt."""

OF_NEIGHBOURS = frozenset({"mass_previous", "mass_previous_no_first", "pattern_log_weight", "pattern_row"})
"""Sites that name keys by where they lie in the sequence: it has to hold one prompt alone."""


class PatternReader:
    """The rows of one layer at `positions` `[batch or 1, row]`, by the name of a site.

    Null sites are read from a call with donors; an item that has none gives NaN. Whole rows are `n_kept_keys` wide, or
    `n_longest` where they are wanted at any length.
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
