"""The domain comparison as the manifold probe reports it: who takes part, the scalars, the two tables."""

from dataclasses import dataclass

import numpy as np

from interp.findings import Scalar
from interp.statistics.entropy_draw import N_STRATA
from interp.statistics.estimates import Estimates
from interp.statistics.jackknife import spectral_intervals
from interp.statistics.resampling import n_before
from interp.statistics.spectra import SPECTRAL, Scaling
from interp.table import Table

from ..measures.cloud import Cloud
from ..measures.halves import Groups, recurs
from ..measures.profiles import Part
from .collapse import MIN_PER_FIFTH, MIN_PROMPTS, MIXED, Collapse, Pool, Spectra, domain_collapse, fifth_of, third_of
from .cross_projection import MAX_PERMUTATIONS, cross_projection
from .quantities import QUANTITIES
from .rarefaction import rarefaction_table

MIN_CLUSTERS = 10
"""Clusters of the poorest set below which a collapse is called underpowered."""

CAPTION = (
    "Mixed set against each domain at equal numbers in each fifth of the entropy, at the primary layer: the statistics "
    "of each set with jackknife intervals; the change from the mixed set with its interval, its null under permuted "
    "labels, and p over all domains."
)

_SHORT = {"pc1_plus_pc2_share": "share", "participation_ratio": "ratio"}


@dataclass(frozen=True)
class Settings:
    """What a comparison is made with; the probe's fields of the same names."""

    scaling: Scaling
    per_quintile: int
    n_permutations: int
    n_null: int
    seed: int


def restriction(cloud: Cloud, layer: int, settings: Settings) -> Part:
    """Compare the domains of a pool at one layer, or say why that cannot be done.

    Of a sequence one scored position takes part, drawn at random: rows of one sequence belong together.
    """
    seed, n, rng = settings.seed, settings.n_permutations, np.random.default_rng(settings.seed)
    found = _compared(cloud, layer, settings, n, rng)
    if isinstance(found, str):
        return Part(notes=(f"No domain comparison: {found}.",))
    pool, spectra = found.pool, found.spectra
    tables = {"collapse": _table(found), "rarefaction": rarefaction_table(pool, spectra, settings.n_null, rng)}
    crossed = cross_projection(pool, spectra, n, np.random.default_rng([seed, 3]))
    again = np.random.default_rng(seed)
    within = _compared(cloud, layer, settings, min(n, MAX_PERMUTATIONS), again, is_within_token=True)
    scalars = _scalars(found) | ({} if isinstance(within, str) else _scalars(within, "_within_token"))
    return Part({**scalars, **crossed.scalars}, {**tables, **crossed.tables}, (*_notes(cloud, pool), *crossed.notes))


def _compared(
    cloud: Cloud, layer: int, settings: Settings, n_permutations: int, rng: np.random.Generator, *,
    is_within_token: bool = False,
) -> Collapse | str:  # fmt: skip
    """The collapse at one layer, of the points or of what the last token leaves of them; or why there is none."""
    if "domain" not in cloud.rows:
        return "the prompts have no column `domain`"
    if len(np.unique(cloud.rows["domain"])) < 2:
        return "all prompts are of one domain"
    cloud = cloud.one_of_each(cloud.prompts, np.random.default_rng([settings.seed, 5]))
    if is_within_token:
        cloud = cloud.where(recurs(cloud.rows["token"]))
    pool, kept = _taking_part(cloud, settings)
    if len(pool.domains) < 2 or pool.n < MIN_PROMPTS:
        return (
            f"fewer than two domains have {MIN_PER_FIFTH} prompts in every fifth of the entropy and "
            f"{MIN_PROMPTS} in common"
        )
    points = _beyond_token(cloud, layer) if is_within_token else cloud.points[layer]
    found = domain_collapse(pool, Spectra(points[kept], settings.scaling), n_permutations, rng)
    if not np.isfinite(found.permuted).all() or not np.isfinite(found.changes).all():
        return "in some set every row is the same point"
    return found


def _beyond_token(cloud: Cloud, layer: int) -> np.ndarray:
    """Points from the mean over the rows of their token, stretched by √(m/(m − 1)) where m rows share it.

    For the mean of few takes part of their own variance away.
    """
    groups = Groups.of(cloud.rows["token"])
    counts = groups.counts[groups.code][:, None].astype(np.float64)
    return groups.centred(np.asarray(cloud.points[layer], dtype=np.float64)) * np.sqrt(counts / (counts - 1))


def _taking_part(cloud: Cloud, settings: Settings) -> tuple[Pool, np.ndarray]:
    """The pool of domains with enough prompts everywhere, and which rows they are."""
    rng, labels = np.random.default_rng(settings.seed), cloud.rows["domain"].astype(str)
    fifths, lengths = fifth_of(cloud.entropy_bits), third_of(cloud.rows["position"])
    counts = {d: np.bincount(fifths[labels == d], minlength=N_STRATA) for d in np.unique(labels)}
    kept = ~np.isin(labels, [d for d, count in counts.items() if count.min() < MIN_PER_FIFTH])
    priority, clusters = rng.random(int(kept.sum())), cloud.units[kept]
    drawn = np.argsort(priority)
    priority[drawn] += n_before(clusters[drawn])  # the second of a cluster comes after the first of all others
    return Pool(labels[kept], fifths[kept], lengths[kept], clusters, priority, settings.per_quintile), kept


def _scalars(found: Collapse, ending: str = "") -> dict[str, Scalar]:
    """The largest under permuted labels."""
    n, fewest = found.pool.n, min(len(np.unique(found.pool.clusters[member])) for member in found.sets)
    about = {"n": n, "n_clusters": fewest if fewest < n else None, "underpowered": fewest < MIN_CLUSTERS}
    estimates = {}
    for i, (name, sign) in enumerate((("collapse", 1.0), ("collapse_participation_ratio", -1.0))):
        best = [int((sign * found.changes[:, i]).argmax())]
        extreme = sign * (sign * found.permuted[:, :, i]).max(axis=1)
        estimates[name + ending] = Estimates(
            found.changes[best, i], found.intervals[best, i].T, about=about,
            words={"domain": found.pool.domains[best[0]]},
        ).exchanged(extreme[:, None], found.p[best, i])  # fmt: skip
    return QUANTITIES.scalars(estimates)


def _table(found: Collapse) -> Table:
    """One row a set, the mixed one first; it has no change."""
    spectra, names = found.spectra, [MIXED, *found.pool.domains]
    intervals = np.array([
        spectral_intervals(spectra.statistics(member[None])[0], spectra.deletions(member, found.pool.clusters))
        for member in found.sets
    ])  # fmt: skip
    columns: dict[str, np.ndarray | Estimates] = {"set": np.array(names), "n": np.full(len(names), found.pool.n)}
    for i, (statistic, short) in enumerate(_SHORT.items()):
        columns[short] = Estimates(found.statistics[:, i], intervals[:, SPECTRAL.index(statistic)].T)
        changes, bounds, p, permuted = (
            np.concatenate([np.full_like(of[:1], np.nan), of])
            for of in (found.changes[:, i], found.intervals[:, i], found.p[:, i], found.permuted[:, :, i].T)
        )
        columns[f"{short}_change"] = Estimates(changes, bounds.T).exchanged(permuted.T, p)
    return QUANTITIES.table(columns, CAPTION)


def _notes(cloud: Cloud, pool: Pool) -> list[str]:
    quota, left_out = ", ".join(map(str, pool.quota)), {*cloud.rows["domain"].astype(str).tolist()} - {*pool.domains}
    notes = [f"Domain comparison: {pool.n} prompts in every set, {quota} from each fifth of the pool's entropy."]
    if not cloud.one_row_each:
        notes.insert(0, f"The domains are compared on one scored position of each {cloud.unit}.")
    if left_out:
        names = ", ".join(sorted(left_out))
        notes.append(f"Left out, with fewer than {MIN_PER_FIFTH} prompts in some fifth of the entropy: {names}.")
    return notes
