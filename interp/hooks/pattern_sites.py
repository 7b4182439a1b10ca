"""The pattern sites: what each name means in terms of attention rows, computed once for all that ask."""

from collections.abc import Sequence
from functools import cached_property

import torch

from interp.hooks.attended_contrast import Contrast, contrast_rows
from interp.hooks.pattern import AttentionCall, PatternRows, log_pattern_rows, reduce_rows
from interp.prompt import PromptSet

MAX_KEPT_KEYS = 128
"""Longest sequences whose attention rows are kept whole."""

_ROWS = {
    "pattern_entropy": "entropy_bits",
    "pattern_entropy_normalised": "entropy_normalised",
    "pattern_entropy_no_first": "entropy_bits_no_first",
    "pattern_entropy_uniform": "entropy_uniform",
    "sink_mass": "sink_mass",
    "learnt_sink_mass": "learnt_sink_mass",
    "pattern_entropy_with_learnt_sink": "entropy_bits_with_learnt_sink",
    "pattern_entropy_normalised_no_first": "entropy_normalised_no_first",
    "pattern_entropy_uniform_no_first": "entropy_uniform_no_first",
    "mass_self": "self_mass",
    "mass_self_no_first": "self_mass_no_first",
    "mass_previous": "previous_mass",
    "mass_previous_no_first": "previous_mass_no_first",
    "pattern_max": "max_weight",
    "pattern_max_no_first": "max_weight_no_first",
}
CONTRASTS = {
    "qk_cosine": "cosine",
    "qk_cosine_no_first": "cosine_no_first",
    "qk_logit": "logit_bits",
    "qk_logit_no_first": "logit_bits_no_first",
}
NULL_SITES = frozenset(
    f"{name}{twin}_null" for name in ("pattern_entropy", "pattern_max", "qk_cosine", "qk_logit")
    for twin in ("", "_no_first")
)  # fmt: skip
"""Sites that are read with the keys of another prompt."""

OF_NEIGHBOURS = frozenset({"mass_previous", "mass_previous_no_first", "pattern_log_weight", "pattern_row"})
"""Sites that name keys by where they lie in the sequence: it has to hold one prompt alone."""


def kept_keys(prompts: PromptSet, lengths: Sequence[int]) -> int:
    """The width of whole attention rows: the longest sequence of a short wind tunnel, else none are kept."""
    longest = max(lengths)
    return longest if prompts.is_tunnel and longest <= MAX_KEPT_KEYS else 0


class PatternReader:
    """The rows of one layer at `positions` `[batch or 1, row]`, by the name of a site.

    Null sites are read from a call with donors; an item that has none gives NaN. Whole rows are `n_kept_keys` wide, or
    `n_longest` where they are wanted at any length.
    """

    def __init__(self, call: AttentionCall, positions: torch.Tensor, n_kept_keys: int, n_longest: int = 0) -> None:
        self.call, self.positions = call, positions
        self._widths = {"pattern_log_weight": n_kept_keys, "pattern_row": n_longest}

    @cached_property
    def _rows(self) -> PatternRows:
        return reduce_rows(self.call, self.positions)

    @cached_property
    def _contrast(self) -> Contrast:
        return contrast_rows(self.call, self.positions)

    def read(self, site: str) -> torch.Tensor:
        """`[batch, row, head]`, or `[batch, row, head, key]` for whole rows."""
        if site in self._widths:
            return self._whole_rows(self._widths[site])
        donor = self.call.donor
        if (site in NULL_SITES) != (donor is not None):
            raise ValueError(f"{site} is read {'with' if donor is None else 'without'} the keys of another prompt")
        name = site.removesuffix("_null")
        reduced = getattr(self._contrast, CONTRASTS[name]) if name in CONTRASTS else getattr(self._rows, _ROWS[name])
        if donor is not None:
            reduced[donor.lacking] = torch.nan  # [batch, head, row]
        return reduced.transpose(1, 2)

    def _whole_rows(self, n_keys: int) -> torch.Tensor:
        batch, n_heads = self.call.q.shape[:2]
        shape = (batch, self.positions.shape[1], n_heads, n_keys)
        kept = self.call.q.new_full(shape, torch.nan, dtype=torch.float32)
        if n_keys:
            bits = log_pattern_rows(self.call, self.positions).transpose(1, 2)  # [batch, row, head, key]
            kept[..., : bits.shape[-1]] = bits
        return kept
