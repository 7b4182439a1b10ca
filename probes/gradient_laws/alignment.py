"""Does a gradient lie where its weights already are? Alignment with the leading singular directions of a projection.

With activations x from the left (x W), the directions a projection reads are the left singular vectors u_1, u_2, ... of
W, in order of their singular values. The alignment at k is ‖U_kᵀ G‖ / ‖G‖ for the gradient G at W, the root of the
mean square over prompts. Beside it stands what k random directions of the same space would hold, √(k / d_model) on
average, and the share of the weights' own square that the k directions hold.

Source: `qkv_analysis.py` of the code released with Paper II (arXiv 2512.22473), which prints it without a reference.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from interp.statistics.estimates import Estimates
from interp.statistics.intervals import band
from interp.table import Table

from .quantities import NAMES, QUANTITIES

RANK = 4
"""How many directions the scalars are of."""

_N_DRAWS = 100


class Aligned:
    """The gradients of one layer's projections, prompt by prompt, along the directions of the weights."""

    def __init__(self, weights: Mapping[str, Float[np.ndarray, "head d_model d_head"]]) -> None:
        self.directions: dict[str, np.ndarray] = {}
        self.energy: dict[str, np.ndarray] = {}
        for name, w in weights.items():
            u, s, _ = np.linalg.svd(w, full_matrices=False)
            self.directions[name] = u
            self.energy[name] = np.cumsum(s**2, axis=1) / np.sum(s**2, axis=1, keepdims=True)
        self.second_moment = {name: np.zeros((len(w), w.shape[1], w.shape[1])) for name, w in weights.items()}
        self.by_prompt: dict[str, list[np.ndarray]] = {name: [] for name in weights}

    def add(self, gradients: Mapping[str, Float[np.ndarray, "head d_model d_head"]]) -> None:
        """Take in the gradients of one prompt; a head whose gradient is nothing has no direction, and becomes NaN."""
        for name, g in gradients.items():
            length = np.linalg.norm(g, axis=(1, 2), keepdims=True)
            g = g / np.where(length > 0, length, np.nan)
            along = np.square(self.directions[name].transpose(0, 2, 1) @ g).sum(axis=-1)
            self.by_prompt[name].append(np.cumsum(along, axis=1))
            self.second_moment[name] += g @ g.transpose(0, 2, 1)

    def shares(self, name: str) -> Float[np.ndarray, "prompt head rank"]:
        """‖U_kᵀ G‖² / ‖G‖² of every prompt and head, for k = 1, 2, ..."""
        return np.stack(self.by_prompt[name])

    def random(self, name: str, rng: np.random.Generator) -> Float[np.ndarray, "draw head rank"]:
        """The mean of the same over prompts with the first k of random orthonormal directions in place of U_k."""
        moment, (n_heads, d_model, rank) = (
            self.second_moment[name] / len(self.by_prompt[name]),
            self.directions[name].shape,
        )
        drawn = np.empty((_N_DRAWS, n_heads, rank))
        for i in range(_N_DRAWS):
            q = np.linalg.qr(rng.standard_normal((n_heads, d_model, rank)))[0]
            drawn[i] = np.cumsum((q * (moment @ q)).sum(axis=1), axis=1)
        return drawn


def alignments(
    aligned: Aligned, weights: Float[np.ndarray, "resample prompt"], unit: str, rng: np.random.Generator
) -> tuple[dict[str, Estimates], Table]:
    """One number a projection (k = `RANK`, mean over heads), and the table `alignment` by head at powers of two."""
    found: dict[str, Estimates] = {}
    parts = []
    for name, words in NAMES.items():
        shares, random = aligned.shares(name), np.sqrt(aligned.random(name, rng))  # [prompt or draw, head, rank]
        value = np.sqrt(shares.mean(axis=0))
        resampled = np.sqrt(np.einsum("rp,phk->rhk", weights, shares))
        k = min(RANK, shares.shape[2])
        mean, replicates, drawn = (x[..., [k - 1]].mean(axis=-2) for x in (value, resampled, random))
        mine = Estimates.resampled(mean, replicates).permuted(drawn, asks="nothing")
        if np.isnan(shares[..., k - 1]).any():
            mine = Estimates.undefined(f"a head has no gradient in some {unit}s")
        found[f"alignment_{words}"] = replace(mine, words={"k": str(k)})
        parts.append(_by_head(name, value, resampled, random, aligned.energy[name]))
    return found, QUANTITIES.stacked(
        parts,
        "Alignment of the gradient at a projection with its k leading singular directions, by head (those of shared "
        "keys and values are key and value heads), beside k random directions; `energy`: the same directions' share of "
        "the weights' square.",
        head="index",
    )


def _by_head(
    name: str, value: np.ndarray, resampled: np.ndarray, random: np.ndarray, energy: np.ndarray
) -> dict[str, np.ndarray | Estimates]:
    n_heads, n_ranks = value.shape
    ranks = np.array([2**i for i in range(n_ranks.bit_length()) if 2**i <= n_ranks])
    value, resampled, random, energy = (
        x[..., ranks - 1].reshape(*x.shape[:-2], -1) for x in (value, resampled, random, energy)
    )
    return {
        "matrix": np.full(value.size, name), "head": np.repeat(np.arange(n_heads), len(ranks)),
        "k": np.tile(ranks, n_heads), "alignment": Estimates(value, band(resampled)),
        "null": Estimates(random.mean(axis=0), band(random)), "energy": energy,
    }  # fmt: skip
