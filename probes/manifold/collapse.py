"""Domain-restricted collapse: do prompts of one domain share fewer directions than prompts of all domains?

Mixed and restricted sets are drawn from one pool so that they differ in nothing but the domain: the pool is cut
into fifths of next-token entropy, every set takes the same number of prompts from each fifth, and the mixed set
takes them equally from all domains. The collapse of a domain is Δ = (PC1+PC2 of the domain) − (of the mixed set), each
fitted separately. Its null permutes domain labels between prompts of the same fifth and the same third of the lengths,
and draws all sets again. Its interval leaves out one prompt at a time, from both sets if it is in both. Where prompts
come in clusters, whole clusters are left out, and exchange the labels of all their prompts within thirds of their mean
length.

Source: Paper III (arXiv 2512.23752), section 4.2 and Table 1, whose sets differ in size and entropy as well.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy import special

from interp.statistics.entropy_draw import N_STRATA
from interp.statistics.intervals import CONFIDENCE, maximum_statistic_p
from interp.statistics.jackknife import Deletions, influences, spectral_intervals, without_each_group
from interp.statistics.resampling import n_before, ordered_within, shuffles
from interp.statistics.spectra import Scaling, centred_gram, gram_statistics, scaled, smaller_gram
from interp.statistics.units import clusters_of
from interp.table import Table

from ..measures.target import NEXT_ENTROPY

MIXED = "mixed"
MIN_PROMPTS = 20
"""Least prompts of a set."""

MIN_PER_FIFTH = 3
"""Least prompts of a domain in every fifth of the entropies."""

N_LENGTH_BINS = 3

_TRIES = 10
"""Permutations of clusters that are tried for one whose domains are large enough."""


@dataclass(frozen=True)
class Pool:
    """Prompts that sets are drawn from: domain, fifth of the entropy, third of the length, cluster, a fixed priority.

    Within a domain and a fifth, the domain's set takes prompts of low priority and the mixed set of high priority, so
    that the two overlap only where a domain has too few. A set has as many prompts of each fifth as the poorest domain
    has, at most `per_fifth`: its `quota`.
    """

    labels: Shaped[np.ndarray, " row"]
    fifths: Int[np.ndarray, " row"]
    lengths: Int[np.ndarray, " row"]
    clusters: Int[np.ndarray, " row"]
    priority: Float[np.ndarray, " row"]
    per_fifth: int

    @cached_property
    def domains(self) -> list[str]:
        return [str(name) for name in np.unique(self.labels)]

    @cached_property
    def counts(self) -> Int[np.ndarray, "domain fifth"]:
        return np.array([np.bincount(self.fifths[self.labels == d], minlength=N_STRATA) for d in self.domains])

    @cached_property
    def is_alone(self) -> bool:
        """Whether every prompt is its own cluster."""
        return len(np.unique(self.clusters)) == len(self.clusters)

    @cached_property
    def quota(self) -> Int[np.ndarray, " fifth"]:
        return np.minimum(self.counts.min(axis=0), self.per_fifth)

    @property
    def n(self) -> int:
        """Prompts in every set."""
        return int(self.quota.sum())

    def sets(self, labels: Shaped[np.ndarray, " row"]) -> Int[np.ndarray, "set member"]:
        """Rows of the mixed set and of every domain's under these labels.

        A domain that has too few in a fifth takes prompts of others in their place.
        """
        domains, fifths, quota = self.domains, self.fifths, self.quota
        codes = np.searchsorted(domains, labels)
        cells = fifths * len(domains) + codes
        counts = np.bincount(cells, minlength=N_STRATA * len(domains)).reshape(N_STRATA, -1)
        if (counts < quota[:, None]).any():
            cells = self._evened(codes, counts) * len(domains) + codes
            counts = np.bincount(cells, minlength=N_STRATA * len(domains)).reshape(N_STRATA, -1)
        # prompts by cell of fifth and domain, in each by priority
        order = np.lexsort((self.priority, cells))
        ends = counts.cumsum().reshape(counts.shape)
        members: list[list[np.ndarray]] = [[] for _ in (MIXED, *domains)]
        for fifth, wanted in enumerate(quota):
            share = np.full(len(domains), wanted // len(domains))
            # the remainder starts at another domain in each fifth: none is favoured throughout
            share[(np.arange(wanted % len(domains)) + fifth) % len(domains)] += 1
            for i, (start, end) in enumerate(zip(ends[fifth] - counts[fifth], ends[fifth], strict=True)):
                members[1 + i].append(order[start : start + wanted])
                members[0].append(order[end - share[i] : end])
        return np.array([np.concatenate(parts) for parts in members])

    def _evened(self, codes: np.ndarray, counts: np.ndarray) -> Int[np.ndarray, " row"]:
        """The fifths, with prompts of a domain moved from where it has more than the quota to where it has fewer."""
        fifths = self.fifths.copy()
        for domain, missing in enumerate((self.quota[:, None] - counts).clip(0).T):
            if missing.any():
                mine = np.flatnonzero(codes == domain)
                mine = mine[np.argsort(self.priority[mine])]
                spare = mine[n_before(self.fifths[mine]) >= self.quota[self.fifths[mine]]]
                fifths[spare[: missing.sum()]] = np.repeat(np.arange(N_STRATA), missing)[: len(spare)]
        return fifths

    def permutations(self, n: int, rng: np.random.Generator) -> Iterator[Shaped[np.ndarray, " row"]]:
        """`n` permutations of the labels, drawn again where they leave a domain too small for a set."""
        for _ in range(n):
            for _ in range(_TRIES):
                labels = self.permuted(rng)
                if self.is_alone or min(np.count_nonzero(labels == d) for d in self.domains) >= self.n:
                    break
            else:
                labels = self.labels
            yield labels

    def permuted(self, rng: np.random.Generator) -> Shaped[np.ndarray, " row"]:
        """The labels permuted within fifth of entropy and third of length; of clusters within third of length."""
        if not self.is_alone:
            labels = self.labels.copy()
            code, counts = np.unique(self.clusters, return_inverse=True, return_counts=True)[1:]
            third = np.rint(np.bincount(code, self.lengths) / counts)[code]
            for rows in (np.flatnonzero(third == value) for value in np.unique(third)):
                labels[rows] = self.labels[rows[shuffles(code[rows], 1, rng)[0]]]
            return labels
        cell = self.fifths * N_LENGTH_BINS + self.lengths
        return self.labels[ordered_within(cell, rng.random((1, len(cell))))[0]]


class Spectra:
    """Spectral statistics of subsets of one pool of rows; of centred rows from one Gram matrix."""

    def __init__(self, rows: np.ndarray, scaling: Scaling) -> None:
        self.rows, self.scaling = np.asarray(rows, dtype=np.float64), scaling
        points = scaled(rows, scaling)
        self._gram = points @ points.T if scaling == "centred" else None

    def statistics(self, members: Int[np.ndarray, "set member"]) -> Float[np.ndarray, "set statistic"]:
        """`SPECTRAL` of several subsets of equal size."""
        if self._gram is None:
            return np.array([gram_statistics(smaller_gram(scaled(self.rows[m], self.scaling))) for m in members])
        grams = self._gram[members[:, :, None], members[:, None, :]]
        return gram_statistics(centred_gram(grams))

    def deletions(self, member: Int[np.ndarray, " member"], clusters: Int[np.ndarray, " row"]) -> Deletions:
        """`SPECTRAL` of a subset without each of its clusters in turn."""
        code, counts = np.unique(clusters[member], return_inverse=True, return_counts=True)[1:]
        statistics = without_each_group(self.rows[member], self.scaling, code)
        return Deletions(statistics, len(counts), 1, "delete-one jackknife", counts / len(member))


@dataclass(frozen=True)
class Collapse:
    """How the spectral statistics change from the mixed set to each domain.

    `statistics` are those of the sets themselves, mixed first, with their `intervals`. `changes` have the intervals
    `bounds`; `permuted` holds them under permuted labels; `p` is over all domains, one-sided (larger shares, a smaller
    ratio). `n_clusters` are those of the poorest set.
    """

    pool: Pool
    spectra: Spectra
    n_clusters: int
    statistics: Float[np.ndarray, "set statistic"]
    intervals: Float[np.ndarray, "set statistic bound"]
    changes: Float[np.ndarray, "set statistic"]
    bounds: Float[np.ndarray, "bound set statistic"]
    permuted: Float[np.ndarray, "permutation set statistic"]
    p: Float[np.ndarray, "set statistic"]


def domain_collapse(pool: Pool, spectra: Spectra, n_permutations: int, rng: np.random.Generator) -> Collapse:
    """The collapse of every domain of the pool with jackknife intervals, compared with permuted labels."""
    sets = pool.sets(pool.labels)
    statistics = spectra.statistics(sets)
    drawn = np.array([spectra.statistics(pool.sets(labels)) for labels in pool.permutations(n_permutations, rng)])
    permuted, changes = drawn - drawn[:, :1], statistics - statistics[:1]
    permuted[:, 0] = changes[0] = np.nan
    narrower = zip((1, 1, -1), changes.T, np.moveaxis(permuted, 2, 0), strict=True)
    p = np.stack([maximum_statistic_p(sign * of, sign * null) for sign, of, null in narrower], axis=1)
    deleted = [spectra.deletions(member, pool.clusters) for member in sets]
    intervals = np.array([spectral_intervals(*of_set) for of_set in zip(statistics, deleted, strict=True)])
    n_clusters = min(of_set.n_units for of_set in deleted)
    # for all domains at once (Bonferroni), since the domain that changes most is chosen from the data
    quantile = special.stdtrit(n_clusters - 1, (1 - CONFIDENCE) / (2 * len(pool.domains)))
    half = -quantile * _errors(pool, sets, statistics, deleted)
    bounds = np.array([changes - half, changes + half])
    return Collapse(pool, spectra, n_clusters, statistics, intervals, changes, bounds, permuted, p)


def _errors(
    pool: Pool, sets: np.ndarray, statistics: np.ndarray, deleted: Sequence[Deletions]
) -> Float[np.ndarray, "set statistic"]:
    """Jackknife errors of the differences from the mixed set: deleting a cluster moves every set that it is in."""
    names = np.unique(pool.clusters)
    moved = np.zeros((len(sets), len(names), statistics.shape[1]))
    for i, (member, left) in enumerate(zip(sets, deleted, strict=True)):
        assert left.shares is not None
        inside = np.searchsorted(names, np.unique(pool.clusters[member]))
        moved[i, inside] = influences(statistics[i], left.statistics, left.shares)
    return np.sqrt(np.square(moved - moved[0]).sum(axis=1))


def third_of(positions: Int[np.ndarray, " row"]) -> Int[np.ndarray, " row"]:
    """Which third of the positions (of a text, its length) each is in; equal ones share one."""
    edges = np.quantile(positions, np.arange(1, N_LENGTH_BINS) / N_LENGTH_BINS)
    return np.searchsorted(edges, positions, side="left")


def fifth_of(entropy_bits: Float[np.ndarray, " row"]) -> Int[np.ndarray, " row"]:
    """Which fifth of the pool's entropies each is in, by order."""
    place = np.argsort(np.argsort(entropy_bits, kind="stable"))
    return place * N_STRATA // len(place)


def pool_of(rows: Table, per_fifth: int, seed: int) -> tuple[Pool, Bool[np.ndarray, " row"]]:
    """The pool of domains with enough prompts in every fifth, and which rows they are."""
    labels, fifths, lengths = rows["domain"].astype(str), fifth_of(rows[NEXT_ENTROPY]), third_of(rows["position"])
    counts = {d: np.bincount(fifths[labels == d], minlength=N_STRATA) for d in np.unique(labels)}
    kept = ~np.isin(labels, [d for d, count in counts.items() if count.min() < MIN_PER_FIFTH])
    clusters = clusters_of(rows)[kept]
    priority = np.random.default_rng(seed).random(len(clusters))
    drawn = np.argsort(priority)
    priority[drawn] += n_before(clusters[drawn])  # the second of a cluster comes after the first of all others
    return Pool(labels[kept], fifths[kept], lengths[kept], clusters, priority, per_fifth), kept
