"""What the blocks write into the residual stream: lengths, and shares of the final stream.

The stream is a sum, r = e + Σ a_ℓ + Σ m_ℓ (embedding, attention and feed-forward of every layer), so each part u has
a share ⟨u, r⟩ / ⟨r, r⟩, and the shares add up to 1. A part with a negative share opposes the final stream.

Null: a random sign for every part, the same in all rows, and the shares of that sum. It keeps lengths and angles up to
sign, and removes agreement in direction. An embedding or a massive dimension that outweighs everything keeps its share.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Num

from interp.statistics.ratio import ratio

_ROWS_AT_ONCE = 128


@dataclass(frozen=True)
class FinalShares:
    """Shares of the final stream, parts in the order embedding, attention by layer, feed-forward by layer.

    `flipped` are means over rows under random signs; `missing` is the largest relative difference between a final
    stream and the sum of its parts: rounding, where every addition was captured.
    """

    share: Float[np.ndarray, "part row"]
    flipped: Float[np.ndarray, "draw part"]
    missing: float

    @property
    def least_p(self) -> float:
        """The probability that all signs are equal."""
        return 0.5 ** (len(self.share) - 1)

    @property
    def blocks(self) -> dict[str, slice]:
        """Which parts are updates of attention, and which of feed-forward."""
        n_layers = len(self.share) // 2
        return {"attn": slice(1, 1 + n_layers), "mlp": slice(1 + n_layers, None)}


def final_shares(
    resid: Num[np.ndarray, "depth row d_model"],
    attention: Num[np.ndarray, "layer row d_model"],
    feed_forward: Num[np.ndarray, "layer row d_model"],
    signs: Float[np.ndarray, "draw part"],
    without: int | None = None,
) -> FinalShares:
    """Shares of every part at every row, and their means under the `signs`; one dimension may be left out."""
    n_rows = resid.shape[1]
    share = np.empty((signs.shape[1], n_rows))
    flipped = np.zeros(signs.shape)
    missing = 0.0
    for start in range(0, n_rows, _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        parts = np.concatenate([resid[:1, rows], attention[:, rows], feed_forward[:, rows]]).astype(np.float64)
        final = resid[-1, rows].astype(np.float64)
        if without is not None:
            parts, final = (np.delete(x, without, axis=-1) for x in (parts, final))
        share[:, rows] = ratio(np.einsum("prd,rd->pr", parts, final), np.square(final).sum(axis=-1))
        left_out = np.linalg.norm(final - parts.sum(axis=0), axis=-1)
        missing = max(missing, float(np.nanmax(ratio(left_out, np.linalg.norm(final, axis=-1)), initial=0.0)))
        by_row = np.moveaxis(parts, 1, 0)
        along = signs * (signs @ (by_row @ np.swapaxes(by_row, 1, 2)))
        flipped += ratio(along, along.sum(axis=-1, keepdims=True)).sum(axis=0)
    return FinalShares(share, flipped / n_rows, missing)


def lengths(
    resid: Num[np.ndarray, "depth row d_model"],
    attention: Num[np.ndarray, "layer row d_model"],
    feed_forward: Num[np.ndarray, "layer row d_model"],
) -> dict[str, Float[np.ndarray, "layer row"]]:
    """Lengths of the updates and of the stream before the layer, by the names of the table."""
    parts = {"attn_norm": attention, "mlp_norm": feed_forward, "stream_norm": resid[:-1]}
    return {
        name: np.array([np.linalg.norm(x.astype(np.float64), axis=-1) for x in layers])
        for name, layers in parts.items()
    }
