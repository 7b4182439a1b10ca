"""Attention over items against items relabelled: by head, and for the head that comes closest to the posterior."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp.statistics.intervals import maximum_statistic_p
from interp.statistics.units import Units, mean_of_units

from .items import ItemRows


@dataclass(frozen=True)
class ItemTest:
    """KL and feasible mass per sequence, layer and head, and their means under every relabelling.

    `p` is for a KL as small in any head (corrected over layers and heads).
    """

    kl_bits: Float[np.ndarray, "unit layer head"]
    feasible_mass: Float[np.ndarray, "unit layer head"]
    relabelled_kl: Float[np.ndarray, "permutation layer head"]
    relabelled_mass: Float[np.ndarray, "permutation layer head"]
    p: Float[np.ndarray, "layer head"]

    @property
    def best(self) -> tuple[int, int]:
        """Layer and head of the smallest mean KL."""
        mean = mean_of_units(self.kl_bits)
        layer, head = np.unravel_index(int(np.nanargmin(mean)), mean.shape)
        return int(layer), int(head)


def compare_with_relabelled(items: ItemRows, units: Units, n: int, rng: np.random.Generator) -> ItemTest:
    """`n` relabellings; all rows of a sequence move on by the same fraction of their items."""
    kl, mass = (_unit_means(x[:, 0], units) for x in (items.kl_bits, items.feasible_mass))
    moved = np.floor(rng.random((n, units.n))[:, units.code] * items.n_items).astype(np.int64)
    row = np.arange(len(items.row))
    relabelled_kl, relabelled_mass = (
        np.array([mean_of_units(_unit_means(x[row, shift], units)) for shift in moved])
        for x in (items.kl_bits, items.feasible_mass)
    )
    observed = -mean_of_units(kl)
    p = maximum_statistic_p(observed.ravel(), -relabelled_kl.reshape(n, -1)).reshape(observed.shape)
    return ItemTest(kl, mass, relabelled_kl, relabelled_mass, p)


def _unit_means(rows: Float[np.ndarray, "row layer head"], units: Units) -> Float[np.ndarray, "unit layer head"]:
    return units.means(np.moveaxis(rows, 1, 0))
