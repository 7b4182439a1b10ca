"""Rarefaction: PC1+PC2 against the number of prompts, for the mixed set, each domain and noise.

Shares fall as prompts are added whether or not there is structure, so two sets can be compared at equal n only,
and a share at one n says little about another. Borrowed from ecology, where species counts are compared this way
(Hurlbert 1971).
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int

from interp.statistics.entropy_draw import N_STRATA
from interp.statistics.intervals import band
from interp.statistics.nulls import GaussianClouds, null_spectra
from interp.statistics.spectra import spectral_statistics
from interp.table import Table

from .collapse import MIXED, Pool, Spectra
from .quantities import QUANTITIES

N_ORDERS = 20
SIZES = (10, 15, 20, 30, 45, 60, 75, 100, 150, 200)
NOISE = "noise"

_SHARE = 1
CAPTION = (
    f"PC1+PC2 share of subsets of n prompts: mean of {N_ORDERS} draws and the range of 95 % of them. `noise` has "
    "independent Gaussian columns with the variances of the mixed prompts (standard ones where columns are z-scored)."
)


def rarefaction_table(pool: Pool, spectra: Spectra, n_null: int, rng: np.random.Generator) -> Table:
    """One row for every set and size up to the poorest domain's number of prompts."""
    largest = int(pool.counts.sum(axis=1).min())
    sizes = [n for n in SIZES if n <= largest]
    orders = {name: _balanced_orders(pool, name, rng) for name in (MIXED, *pool.domains)}
    rows = [
        _summary(name, n, spectra.statistics(order[:, :n])[:, _SHARE]) for name, order in orders.items() for n in sizes
    ]
    seed = int(rng.integers(2**31))
    everything = orders[MIXED][0]
    for n in sizes:
        clouds = GaussianClouds(n, spectra.rows.shape[1], n_null, seed)
        null = null_spectra(spectra.rows[everything], spectra.scaling, clouds)
        rows.append(_summary(NOISE, n, spectral_statistics(null)[:, _SHARE]))
    return QUANTITIES.from_rows(rows, ("set", "n", "share", "low", "high"), CAPTION)


def _summary(name: str, n: int, shares: Float[np.ndarray, " draw"]) -> Mapping[str, object]:
    low, high = band(shares)
    return {"set": name, "n": n, "share": shares.mean(), "low": low, "high": high}


def _balanced_orders(pool: Pool, name: str, rng: np.random.Generator) -> Int[np.ndarray, "order row"]:
    """Orders of a set's prompts whose every beginning is spread evenly over fifths (and, mixed, over domains)."""
    rows = np.flatnonzero((pool.labels == name) | (name == MIXED))
    cells = np.searchsorted(pool.domains, pool.labels) * N_STRATA + pool.fifths
    return np.array([_spread(rows, cells[rows], rng) for _ in range(N_ORDERS)])


def _spread(rows: np.ndarray, cells: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The rows ordered by their relative rank within their cell, in a random order there: all cells empty together."""
    place = np.empty(len(rows))
    for cell in np.unique(cells):
        mine = np.flatnonzero(cells == cell)
        place[mine] = (rng.permutation(len(mine)) + rng.random()) / len(mine)
    return rows[np.argsort(place, kind="stable")]
