"""Attention rows from queries and keys, and their reduction to a few numbers, in blocks of queries.

A row is computed only where it is wanted: one query at the last position costs one row a layer. Where every position
is wanted, scores exist for one block of queries at a time, so memory grows with the length and not with its square.
Scores, exponentials and sums are float32 whatever the model computes in.
"""

from dataclasses import dataclass

import torch

from interp.information import BITS_PER_NAT

BLOCK = 128
"""Queries per block where many rows of a sequence are wanted."""

_FAR_BELOW = -1e30
"""Score of a key that cannot be seen: its exponential is exactly zero and, unlike −inf, times zero is zero."""


@dataclass
class AttentionCall:
    """What the attention function of one layer received.

    `q` is `[batch, head, pos, d_head]`, `k` and `v` `[batch, kv_head, key_pos, d_head]`, after rotary embedding and
    before grouped heads are repeated. `mask` is True where a key is seen, `[batch or 1, 1, pos, key_pos]`; None means
    causal. A listener may replace `q`, `k` and `v`.
    """

    layer: int
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    scaling: float
    mask: torch.Tensor | None = None
    softcap: float | None = None


@dataclass(frozen=True)
class PatternRows:
    """Reductions of attention rows, each `[batch, head, row]`.

    A row over a single key has 0 bits, and so has one whose only key is the first once that is removed. The first
    position has nothing before it: its mass on the previous one is 0.
    """

    entropy_bits: torch.Tensor
    entropy_bits_no_first: torch.Tensor
    sink_mass: torch.Tensor
    max_weight: torch.Tensor
    self_mass: torch.Tensor
    previous_mass: torch.Tensor
    n_visible: torch.Tensor
    """How many keys each row can see, `[batch, row]`."""

    @property
    def entropy_normalised(self) -> torch.Tensor:
        """Entropy divided by log2 of the visible keys; 0 where only one is visible."""
        most = torch.log2(self.n_visible.to(torch.float32))[:, None]
        return torch.where(most > 0, self.entropy_bits / most.clamp_min(1e-30), 0.0)

    @property
    def entropy_uniform(self) -> torch.Tensor:
        """log2 of the visible keys, `[batch, head, row]`: the entropy of a row that prefers none."""
        return torch.log2(self.n_visible.to(torch.float32))[:, None].expand_as(self.entropy_bits)


def visible_keys(call: AttentionCall, positions: torch.Tensor) -> torch.Tensor:
    """Which keys the queries at `positions` `[batch, row]` see: bool `[batch, row, key_pos]`."""
    n_keys = call.k.shape[2]
    if call.mask is not None:
        mask = call.mask[:, 0].expand(len(positions), -1, -1)
        return mask.gather(1, positions[:, :, None].expand(-1, -1, mask.shape[2]))[..., :n_keys]
    offset = n_keys - call.q.shape[2]
    keys = torch.arange(n_keys, device=positions.device)
    return keys <= (positions + offset)[:, :, None]


def scores(call: AttentionCall, positions: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    """Pre-softmax scores in float32, `[batch, kv_head, group, row, key_pos]`; unseen keys far below any score."""
    index = positions[:, None, :, None].expand(-1, call.q.shape[1], -1, call.q.shape[3])
    q = call.q.gather(2, index).float()
    k = call.k[:, :, : visible.shape[-1]].float()
    grouped = q.unflatten(1, (k.shape[1], -1)).flatten(2, 3)
    s = torch.matmul(grouped, k.transpose(-1, -2)).mul_(call.scaling)
    if call.softcap is not None:
        s = torch.tanh(s / call.softcap) * call.softcap
    s = s.unflatten(2, (-1, positions.shape[1]))
    return s.masked_fill_(~visible[:, None, None], _FAR_BELOW)


def pattern_rows(call: AttentionCall, positions: torch.Tensor) -> torch.Tensor:
    """The attention rows themselves, `[batch, head, row, key_pos]`, float32; for checks and small pictures."""
    s = scores(call, positions, visible_keys(call, positions))
    return torch.softmax(s, dim=-1).flatten(1, 2)


def log_pattern_rows(call: AttentionCall, positions: torch.Tensor) -> torch.Tensor:
    """log2 of the attention rows, `[batch, head, row, key_pos]`; NaN where a key is not seen. For short sequences."""
    visible = visible_keys(call, positions)
    bits = torch.log_softmax(scores(call, positions, visible), dim=-1) * BITS_PER_NAT
    return bits.masked_fill_(~visible[:, None, None], torch.nan).flatten(1, 2)


def reduce_rows(call: AttentionCall, positions: torch.Tensor, block: int = BLOCK) -> PatternRows:
    """Entropies, masses and the largest weight of the rows at `positions` `[batch, row]`, block by block."""
    parts = [_reduce_block(call, part) for part in positions.split(block, dim=1)]
    return PatternRows(*(torch.cat(columns, dim=-1) for columns in zip(*parts, strict=True)))


def _reduce_block(call: AttentionCall, positions: torch.Tensor) -> tuple[torch.Tensor, ...]:
    visible = visible_keys(call, positions)
    if call.mask is None:
        visible = visible[..., : int(positions.max()) + 1 + call.k.shape[2] - call.q.shape[2]]
    s = scores(call, positions, visible)
    s -= s.amax(dim=-1, keepdim=True)
    e = s.exp()
    # The first key is kept out of the sums and added last: what is left beside a sink of 0.9999 keeps its precision.
    first = e[..., 0]
    first_dot = first * s[..., 0]
    rest = e[..., 1:].sum(dim=-1)
    rest_dot = torch.linalg.vecdot(e[..., 1:], s[..., 1:])
    total = rest + first
    entropy = (total.log() - (rest_dot + first_dot) / total) * BITS_PER_NAT
    has_rest = rest > 0
    safe = torch.where(has_rest, rest, 1.0)
    no_first = torch.where(has_rest, (safe.log() - rest_dot / safe) * BITS_PER_NAT, 0.0)
    own = positions + call.k.shape[2] - call.q.shape[2]
    before = _at_key(e, (own - 1).clamp_min(0)) * (own > 0)[:, None, None]
    masses = [part / total for part in (first, e.amax(dim=-1), _at_key(e, own), before)]
    flat = [x.flatten(1, 2) for x in (entropy.clamp_min(0.0), no_first.clamp_min(0.0), *masses)]
    return (*flat, visible.sum(dim=-1))


def _at_key(rows: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """The entry of every row `[batch, kv_head, group, row, key_pos]` at one key `[batch, row]`."""
    index = key[:, None, None, :, None].expand(*rows.shape[:-1], 1)
    return rows.gather(-1, index)[..., 0]
