"""Attention rows from queries and keys, and their reduction to a few numbers, in blocks of queries.

Only requested rows are computed, for one block of queries at a time, so memory grows with the length and not with its
square. Scores, exponentials and sums are float32 in every precision of the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from interp.information import BITS_PER_NAT

BLOCK = 64
"""Queries per block if many rows of a sequence are requested."""

_BLOCKS, _AT_ONCE = {True: BLOCK, False: 512}, {True: 1 << 18, False: 1 << 26}
"""Queries per block, and scores computed at once, on the CPU (within its cache: True) and elsewhere."""

FAR_BELOW = -1e30
"""Score of an invisible key: its exponential is exactly zero and, unlike −inf, times zero is zero."""


@dataclass
class AttentionCall:
    """The arguments of one layer's attention.

    `q` is `[batch, head, pos, d_head]`, `k` and `v` `[batch, kv_head, key_pos, d_head]`, after rotary embedding and
    before grouped heads are repeated. `mask` is True where a key is visible, `[batch or 1, 1, pos, key_pos]`; None is
    causal. A listener may replace `q`, `k` and `v`. `sink` is a learnt score per head, `[head]`, that takes weight from
    the keys and has no value (gpt-oss). `bias` is added to the scores of every row, `[batch or 1, head, key_pos]`
    (ALiBi). Head outputs are multiplied by a `gate`, `[batch, pos, head, d_head]`. In a call with the keys of other
    prompts (`KeyDonors`), `lacking` marks items without such keys, `[batch]`.
    """

    layer: int
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    scaling: float
    mask: torch.Tensor | None = None
    softcap: float | None = None
    sink: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    gate: torch.Tensor | None = None
    lacking: torch.Tensor | None = None

    @property
    def positions(self) -> torch.Tensor:
        """All positions of the queries, `[1, pos]`, shared by all items of the batch."""
        return torch.arange(self.q.shape[2], device=self.q.device)[None]

    def of(self, items: slice) -> "AttentionCall":
        """The call for these items of the batch."""
        tensors = {name: x for name, x in vars(self).items() if isinstance(x, torch.Tensor) and name != "sink"}
        return replace(self, **{name: _of(x, items) for name, x in tensors.items()})


def can_be_stacked(one: AttentionCall, other: AttentionCall) -> bool:
    """Whether the calls of two layers can be joined by `stacked`."""

    def form(call: AttentionCall) -> tuple[object, ...]:
        tensors = [None if x is None else (x.shape, x.dtype, x.device) for x in (call.q, call.k, call.sink, call.bias)]
        # layers get views of one mask
        mask = None if call.mask is None else (call.mask.shape, call.mask.stride(), call.mask.data_ptr())
        return (*tensors, mask, call.scaling, call.softcap)

    return form(one) == form(other)


def stacked(calls: Sequence[AttentionCall]) -> AttentionCall:
    """Calls that `can_be_stacked` as one call, layer by layer along the first axis, for attention rows."""
    first, n = calls[0], len(calls)
    if n == 1:
        return first

    def joined(tensors: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
        present = [x for x in tensors if x is not None]
        return torch.cat(present) if present else None

    def of_items(x: torch.Tensor | None) -> torch.Tensor | None:
        return None if x is None else x.expand(len(first.q), *x.shape[1:])

    mask = first.mask if first.mask is None or len(first.mask) == 1 else first.mask.repeat(n, 1, 1, 1)
    k = torch.cat([call.k for call in calls])
    return replace(
        first, q=torch.cat([call.q for call in calls]), k=k, v=k, mask=mask, gate=None,
        bias=joined([of_items(call.bias) for call in calls]),
        sink=joined([of_items(None if call.sink is None else call.sink[None]) for call in calls]),
        lacking=joined([call.lacking for call in calls]),
    )  # fmt: skip


def visible_keys(call: AttentionCall, positions: torch.Tensor) -> torch.Tensor:
    """The keys visible to the queries at `positions` `[batch or 1, row]`: bool `[batch or 1, row, key_pos]`."""
    n_keys = call.k.shape[2]
    if call.mask is not None:
        mask = call.mask[:, 0, :, :n_keys]
        if len(positions) == 1:
            return mask.index_select(1, positions[0])
        index = positions[:, :, None].expand(-1, -1, mask.shape[2])
        return mask.expand(len(positions), -1, -1).gather(1, index)
    offset = n_keys - call.q.shape[2]
    keys = torch.arange(n_keys, device=positions.device)
    return keys <= (positions + offset)[:, :, None]


def queries(call: AttentionCall, positions: torch.Tensor) -> torch.Tensor:
    """The queries at `positions` `[batch or 1, row]`: `[batch, head, row, d_head]`."""
    if len(positions) == 1:
        return call.q.index_select(2, positions[0])
    return call.q.gather(2, positions[:, None, :, None].expand(-1, call.q.shape[1], -1, call.q.shape[3]))


def scaled_dots(call: AttentionCall, positions: torch.Tensor, n_keys: int) -> torch.Tensor:
    """`dot_factor` q·k with the first `n_keys` keys, float32, `[batch, kv_head, group, row, key_pos]`."""
    k = call.k[:, :, :n_keys].float()
    q = queries(call, positions).float() * dot_factor(call)  # [batch, head, row, d_head]
    grouped = q.unflatten(1, (k.shape[1], -1)).flatten(2, 3)  # [batch, kv_head, group * row, d_head]
    return torch.matmul(grouped, k.transpose(-1, -2)).unflatten(2, (-1, positions.shape[1]))


def dot_factor(call: AttentionCall) -> float:
    """The factor from q·k to a score in bits, or to the argument of the cap if scores are capped."""
    return call.scaling * BITS_PER_NAT if call.softcap is None else call.scaling / call.softcap


def scores(call: AttentionCall, positions: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    """Pre-softmax scores in bits (log2 e times the usual), `[batch, kv_head, group, row, key_pos]`, float32.

    Rows are those at `positions` `[batch or 1, row]`; keys that are not `visible` are far below any score.
    """
    return as_scores(call, scaled_dots(call, positions, visible.shape[-1]), visible)


def as_scores(call: AttentionCall, scaled: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    """Scores from `scaled_dots`, in place unless gradients pass a cap."""
    if call.softcap is not None:
        cap = call.softcap * BITS_PER_NAT
        scaled = scaled.tanh() * cap if scaled.requires_grad else scaled.tanh_().mul_(cap)
    if call.bias is not None:
        bias = call.bias[..., : scaled.shape[-1]].float() * BITS_PER_NAT
        scaled.add_(bias.unflatten(1, scaled.shape[1:3])[..., None, :])
    scaled.add_(torch.where(visible, 0.0, FAR_BELOW)[:, None, None])
    return scaled


def pattern_rows(call: AttentionCall, positions: torch.Tensor) -> torch.Tensor:
    """The attention rows, `[batch, head, row, key_pos]`, float32; they sum to 1, or to what a learnt sink leaves."""
    s = scores(call, positions, visible_keys(call, positions)).div_(BITS_PER_NAT).flatten(1, 2)
    rows = torch.softmax(s, dim=-1)
    if call.sink is None:
        return rows
    held_by_keys, _ = _shares(call.sink, s.logsumexp(dim=-1) * BITS_PER_NAT)
    return rows * held_by_keys.exp2()[..., None]


def _shares(sink: torch.Tensor, total: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """log2 of the weights of all keys and of the learnt sink, both `[batch, head, row]`.

    `total` is log2 of the sum of exponentials over the keys.
    """
    odds = total - sink.float()[..., None] * BITS_PER_NAT
    nothing = torch.zeros_like(odds)
    return -torch.logaddexp2(nothing, -odds), -torch.logaddexp2(nothing, odds)


def log_pattern_rows(call: AttentionCall, positions: torch.Tensor) -> torch.Tensor:
    """log2 of the attention rows, `[batch, head, row, key_pos]`; NaN for invisible keys. For short sequences."""
    visible = visible_keys(call, positions)
    s = scores(call, positions, visible).div_(BITS_PER_NAT).flatten(1, 2)
    bits = torch.log_softmax(s, dim=-1) * BITS_PER_NAT
    if call.sink is not None:
        held_by_keys, _ = _shares(call.sink, s.logsumexp(dim=-1) * BITS_PER_NAT)
        bits += held_by_keys[..., None]
    return bits.masked_fill_(~visible[:, None], torch.nan)


def reduce_rows(call: AttentionCall, positions: torch.Tensor, block: int | None = None) -> dict[str, torch.Tensor]:
    """Entropies, masses and the largest weight of the rows at `positions` `[batch or 1, row]`, block by block.

    Each is `[batch, head, row]`, by the name of its site (`interp.sites`). One row of positions shared by the batch
    costs less than the same for each item.

    Masses and weights are those that the model uses: over the keys they sum to 1 - `learnt_sink_mass`. Entropies are of
    the keys alone, renormalised, or `with_learnt_sink` of the keys and the sink; `no_first` is without the first key
    and the learnt sink. A row over a single key, or over none but the first, has 0 bits; weights without any key are
    NaN. The first position has a mass of 0 on the previous one.
    """
    call = replace(call, k=call.k.float())
    block = block or _BLOCKS[call.k.device.type == "cpu"]
    (batch, n_heads), (n_kv, n_keys) = call.q.shape[:2], call.k.shape[1:3]
    n_rows = positions.shape[1]
    sums = call.k.new_empty(6, batch, n_kv, n_heads // n_kv, n_rows)  # those of `_add_up`
    n_visible = positions.new_empty(2, batch, n_rows)  # of all keys, and of all but the first
    counting = torch.arange(1, n_keys + 1, device=positions.device)
    budget = _AT_ONCE[call.k.device.type == "cpu"]
    for start in range(0, n_rows, block):
        rows = slice(start, start + block)
        part = positions[:, rows]
        visible = visible_keys(call, part)  # [batch or 1, row, key_pos]
        n_visible[0, :, rows] = visible.sum(dim=-1)
        n_visible[1, :, rows] = n_visible[0, :, rows] - visible[..., 0].long()
        # Leave out keys that no row of the block sees: half of all keys if every position is requested.
        visible = visible[..., : max(1, int((visible.any(dim=(0, 1)) * counting).max()))]
        own = (part + n_keys - call.q.shape[2]).expand(batch, -1)  # [batch, row]
        at_once = max(1, budget // (n_heads * visible[0].numel()))
        for first in range(0, batch, at_once):
            items = slice(first, first + at_once)
            s = scores(call.of(items), _of(part, items), _of(visible, items))  # [item, kv, group, row, key]
            _add_up(s, own[items], sums[:, items, ..., rows])
    own = (positions + n_keys - call.q.shape[2])[:, None]  # [batch or 1, 1, row]
    return _reduced(sums.flatten(2, 3), own, n_visible, call.sink)


def _of(x: torch.Tensor, items: slice) -> torch.Tensor:
    """These items of the batch, or the one that all share."""
    return x if len(x) == 1 else x[items]


def _add_up(s: torch.Tensor, own: torch.Tensor, out: torch.Tensor) -> None:
    """Write six sums over the keys of scores `[batch, kv_head, group, row, key_pos]` to `out`; changes the scores.

    First the score of the first key, in bits above the largest of the rest, so that the rest beside a sink of 0.9999
    keeps its precision. Then, of the rest: the sum of exponentials, the largest being 1; the sum of exponential times
    score; the exponentials at the row's own position and at the one before (0 if that is the first); and the score in
    bits that all are relative to. Powers of two are faster than exponentials where the result is zero.
    """
    first = s[..., 0].clone()  # [batch, kv_head, group, row], as all sums
    s[..., 0] = FAR_BELOW  # whole rows are faster than rows without their first key
    largest = s.amax(dim=-1)
    largest = torch.where(largest > FAR_BELOW / 2, largest, first)  # no other key is visible: `rest` becomes 0
    s -= largest[..., None]
    e = s.exp2()
    out[0] = first - largest
    out[1] = e.sum(dim=-1)
    out[3] = _at_key(e, own)
    out[4] = _at_key(e, (own - 1).clamp_min(0))
    out[2] = s.mul_(e).sum(dim=-1)
    out[5] = largest


def _reduced(
    sums: torch.Tensor, own: torch.Tensor, n_visible: torch.Tensor, learnt_sink: torch.Tensor | None
) -> dict[str, torch.Tensor]:
    first_score, rest_sum, rest_dot, at_own, at_previous, top = sums
    has_rest = rest_sum > 0
    safe = torch.where(has_rest, rest_sum, 1.0)
    odds = first_score - safe.log2()  # log2 of the first key's weight over that of the rest
    nothing = torch.zeros_like(odds)
    log_sink = torch.where(has_rest, -torch.logaddexp2(nothing, -odds), 0.0)
    log_rest = torch.where(has_rest, -torch.logaddexp2(nothing, odds), FAR_BELOW)
    sink, rest = log_sink.exp2(), log_rest.exp2()
    no_first = torch.where(has_rest, safe.log2() - rest_dot / safe, 0.0).clamp_min_(0.0)
    largest, self_mass, previous = (
        torch.where(has_rest, x / safe, torch.nan) for x in (torch.ones_like(safe), at_own, at_previous)
    )

    log_keys, log_learnt = nothing, torch.full_like(odds, FAR_BELOW)
    if learnt_sink is not None:
        log_total = torch.logaddexp2(first_score, torch.where(has_rest, safe.log2(), FAR_BELOW)) + top
        log_keys, log_learnt = _shares(learnt_sink, log_total)
    keys, learnt = log_keys.exp2(), log_learnt.exp2()
    entropy = (rest * (no_first - log_rest) - sink * log_sink).clamp_min_(0.0)

    def whole(no_first: torch.Tensor, holds_first: torch.Tensor) -> torch.Tensor:
        return torch.where(has_rest, rest * no_first, 0.0) + sink * holds_first

    found = {
        "pattern_entropy": entropy,
        "pattern_entropy_no_first": no_first,
        "sink_mass": keys * sink,
        "pattern_max": keys * torch.maximum(whole(largest, nothing), sink),
        "pattern_max_no_first": largest,
        "mass_self": keys * whole(self_mass, own == 0),
        "mass_self_no_first": self_mass,
        "mass_previous": keys * whole(previous, own == 1),
        "mass_previous_no_first": previous,
        "learnt_sink_mass": learnt,
        "pattern_entropy_with_learnt_sink": keys * (entropy - log_keys) - learnt * log_learnt,
    }
    for keys_left, n in zip(("", "_no_first"), n_visible.clamp_min(1), strict=True):
        of, uniform = found[f"pattern_entropy{keys_left}"], n.float().log2()[:, None]  # of a row that prefers none
        found[f"pattern_entropy_uniform{keys_left}"] = uniform.expand_as(of)
        found[f"pattern_entropy_normalised{keys_left}"] = torch.where(uniform > 0, of / uniform.clamp_min(1e-30), 0.0)
    return found


def _at_key(rows: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    index = key[:, None, None, :, None].expand(*rows.shape[:-1], 1)
    return rows.gather(-1, index)[..., 0]
