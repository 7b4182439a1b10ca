"""Does a gradient lie where its weights already are? Alignment with the leading singular directions of a projection.

With activations x from the left (x W), the directions a projection reads are the left singular vectors u_1, u_2, ... of
W, in order of their singular values. The alignment at k is ‖U_kᵀ G‖ / ‖G‖ for the gradient G at W, the root of the
mean square over prompts. Beside it stands what k random directions of the same space would hold, √(k / d_model) on
average, and the share of the weights' own square that the k directions hold.

Source: `qkv_analysis.py` of the code released with Paper II (arXiv 2512.22473), which prints it without a reference.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.findings import Interval, Scalar
from interp.statistics.estimate import band, mean_and_band, null_from_permutations, percentile_interval
from interp.table import LABEL, Table, number_columns

NAMES = {"W_Q": "queries", "W_K": "keys", "W_V": "values"}
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
        moment, (n_heads, d_model, rank) = self.second_moment[name] / self.n, self.directions[name].shape
        drawn = np.empty((_N_DRAWS, n_heads, rank))
        for i in range(_N_DRAWS):
            q = np.linalg.qr(rng.standard_normal((n_heads, d_model, rank)))[0]
            drawn[i] = np.cumsum((q * (moment @ q)).sum(axis=1), axis=1)
        return drawn

    @property
    def n(self) -> int:
        return len(next(iter(self.by_prompt.values())))


def alignment_findings(
    aligned: Aligned, weights: Float[np.ndarray, "resample prompt"], unit: str, rng: np.random.Generator
) -> tuple[dict[str, Scalar], Table]:
    """One scalar a projection (k = `RANK`, mean over heads), and the table `alignment` by head at powers of two."""
    scalars: dict[str, Scalar] = {}
    rows: list[dict[str, Any]] = []
    for name, words in NAMES.items():
        shares, random = aligned.shares(name), aligned.random(name, rng)
        k = min(RANK, shares.shape[2])
        scalars[f"alignment_{words}"] = _scalar(words, shares[..., k - 1], random[..., k - 1], weights, k, unit)
        rows += _rows(name, shares, random, weights, aligned.energy[name])
    units = {"matrix": LABEL, "head": "index", "k": "directions"}
    units |= dict.fromkeys(("alignment", "null", "energy"), "fraction")
    caption = (
        "Alignment of the gradient at a projection with its k leading singular directions, by head (those of shared "
        "keys and values are key and value heads), beside k random directions; `energy`: the same directions' share of "
        "the weights' square."
    )
    return scalars, Table.from_rows(rows, units, caption)


def _scalar(words: str, shares: np.ndarray, random: np.ndarray, weights: np.ndarray, k: int, unit: str) -> Scalar:
    meaning = f"‖U_kᵀ G‖ / ‖G‖ of the gradient at the {words}' weights, k = {k}, mean over heads"
    about = {"n": len(shares), "n_unit": unit, "meaning": meaning}
    if np.isnan(shares).any():
        return Scalar.undefined(f"a head has no gradient in some {unit}s", "fraction", **about)
    value = float(np.sqrt(shares.mean(axis=0)).mean())
    bounds = percentile_interval(value, np.sqrt(np.einsum("rp,ph->rh", weights, shares)).mean(axis=1))
    null = null_from_permutations(f"{k} random directions", np.sqrt(random).mean(axis=1))
    return Scalar.of(
        value, "fraction", Interval.of(bounds, f"percentile bootstrap over {unit}s", "undefined in every resample"),
        null, **about,
    )  # fmt: skip


def _rows(
    name: str, shares: np.ndarray, random: np.ndarray, weights: np.ndarray, energy: np.ndarray
) -> list[dict[str, Any]]:
    ranks = [2**i for i in range(shares.shape[2].bit_length()) if 2**i <= shares.shape[2]]
    value = np.sqrt(shares.mean(axis=0))  # [head, rank]
    null, *null_band = mean_and_band(np.sqrt(random))
    columns = {
        **number_columns("alignment", value, band(np.sqrt(np.einsum("rp,phk->rhk", weights, shares)))),
        **number_columns("null", null, null_band), "energy": energy,
    }  # fmt: skip
    return [
        {"matrix": name, "head": head, "k": k} | {column: float(v[head, k - 1]) for column, v in columns.items()}
        for head in range(shares.shape[1])
        for k in ranks
    ]
