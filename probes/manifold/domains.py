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
from .collapse import (
    MIN_PER_FIFTH,
    MIN_PROMPTS,
    Collapse,
    Pool,
    Spectra,
    domain_collapse,
    fifth_of,
    third_of,
)
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
    refusal = _refusal(cloud)
    if refusal:
        return Part(notes=(f"No domain comparison: {refusal}.",))
    whole, is_one_each = cloud, cloud.one_row_each
    cloud = cloud.one_of_each(cloud.prompts, np.random.default_rng([settings.seed, 5]))
    pool, kept, left_out = _taking_part(cloud, np.random.default_rng(settings.seed))
    if not _is_enough(pool, settings):
        reason = (
            f"fewer than two domains have {MIN_PER_FIFTH} prompts in every fifth of the entropy and "
            f"{MIN_PROMPTS} in common"
        )
        return Part(notes=(f"No domain comparison: {reason}.",))
    spectra = Spectra(cloud.points[layer][kept], settings.scaling)
    rng = np.random.default_rng(settings.seed)
    found = domain_collapse(pool, spectra, settings.per_quintile, settings.n_permutations, rng)
    if not np.isfinite(found.permuted).all() or not np.isfinite(found.changes).all():
        return Part(notes=("No domain comparison: in some set every row is the same point.",))
    tables = {
        "collapse": _table(found, spectra, pool),
        "rarefaction": rarefaction_table(pool, spectra, settings.scaling, settings.n_null, rng),
    }
    crossed = cross_projection(
        spectra.rows, pool, settings.scaling, settings.per_quintile, settings.n_permutations,
        np.random.default_rng([settings.seed, 3]),
    )  # fmt: skip
    drawn = () if is_one_each else (f"The domains are compared on one scored position of each {cloud.unit}.",)
    notes = (*drawn, *_notes(found, left_out), *crossed.notes)
    scalars = {**_scalars(found, pool), **within_token(whole, layer, settings), **crossed.scalars}
    return Part(scalars, {**tables, **crossed.tables}, notes)


def within_token(cloud: Cloud, layer: int, settings: Settings) -> dict[str, Scalar]:
    """The collapse of what the last token leaves of the points; empty where the domains cannot be compared so.

    Points are measured from the mean over the rows of their token, and stretched by √(m/(m − 1)) where m rows share
    it, for the mean of few takes part of their own variance away.
    """
    if _refusal(cloud):
        return {}
    cloud = cloud.one_of_each(cloud.prompts, np.random.default_rng([settings.seed, 5]))
    cloud = cloud.where(recurs(cloud.rows["token"]))
    pool, kept, _ = _taking_part(cloud, np.random.default_rng(settings.seed))
    if not _is_enough(pool, settings):
        return {}
    groups = Groups.of(cloud.rows["token"])
    counts = groups.counts[groups.code][:, None].astype(np.float64)
    points = groups.centred(np.asarray(cloud.points[layer], dtype=np.float64)) * np.sqrt(counts / (counts - 1))
    spectra = Spectra(points[kept], settings.scaling)
    rng = np.random.default_rng(settings.seed)
    n_permutations = min(settings.n_permutations, MAX_PERMUTATIONS)
    found = domain_collapse(pool, spectra, settings.per_quintile, n_permutations, rng)
    if not np.isfinite(found.permuted).all() or not np.isfinite(found.changes).all():
        return {}
    return _scalars(found, pool, "_within_token")


def _is_enough(pool: Pool, settings: Settings) -> bool:
    if len(pool.domains) < 2:
        return False
    return bool(pool.quota(settings.per_quintile).sum() >= MIN_PROMPTS)


def _refusal(cloud: Cloud) -> str:
    if "domain" not in cloud.rows:
        return "the prompts have no column `domain`"
    if len(np.unique(cloud.rows["domain"])) < 2:
        return "all prompts are of one domain"
    return ""


def _taking_part(cloud: Cloud, rng: np.random.Generator) -> tuple[Pool, np.ndarray, list[str]]:
    """The pool of domains with enough prompts everywhere, which rows they are, and the domains left out."""
    labels = cloud.rows["domain"].astype(str)
    fifths, lengths = fifth_of(cloud.entropy_bits), third_of(cloud.rows["position"])
    counts = {d: np.bincount(fifths[labels == d], minlength=N_STRATA) for d in np.unique(labels)}
    left_out = [str(d) for d, count in counts.items() if count.min() < MIN_PER_FIFTH]
    kept = ~np.isin(labels, left_out)
    priority, clusters = rng.random(int(kept.sum())), cloud.units[kept]
    drawn = np.argsort(priority)
    priority[drawn] += n_before(clusters[drawn])  # the second of a cluster comes after the first of all others
    return Pool(labels[kept], fifths[kept], lengths[kept], clusters, priority), kept, left_out


def _scalars(found: Collapse, pool: Pool, ending: str = "") -> dict[str, Scalar]:
    """The largest under permuted labels."""
    fewest = min(len(np.unique(pool.clusters[member])) for member in found.sets.members.values())
    n_clusters = fewest if fewest < found.sets.n else None
    about = {"n": found.sets.n, "n_clusters": n_clusters, "underpowered": fewest < MIN_CLUSTERS}
    estimates = {}
    for i, (name, sign) in enumerate((("collapse", 1.0), ("collapse_participation_ratio", -1.0))):
        best = [int((sign * found.changes[:, i]).argmax())]
        extreme = sign * (sign * found.permuted[:, :, i]).max(axis=1)
        estimates[name + ending] = Estimates(
            found.changes[best, i], found.intervals[best, i].T, about=about,
            words={"domain": found.sets.domains[best[0]]},
        ).exchanged(extreme[:, None], found.p[best, i])  # fmt: skip
    return QUANTITIES.scalars(estimates)


def _table(found: Collapse, spectra: Spectra, pool: Pool) -> Table:
    """One row a set, the mixed one first; it has no change."""
    members = found.sets.members
    intervals = np.array([
        spectral_intervals(spectra.statistics(member[None])[0], spectra.deletions(member, pool.clusters))
        for member in members.values()
    ])  # fmt: skip
    columns: dict[str, np.ndarray | Estimates] = {
        "set": np.array(list(members)),
        "n": np.full(len(members), found.sets.n),
    }
    for i, (statistic, short) in enumerate(_SHORT.items()):
        columns[short] = Estimates(found.statistics[:, i], intervals[:, SPECTRAL.index(statistic)].T)
        changes, bounds, p, permuted = (
            np.concatenate([np.full_like(of[:1], np.nan), of])
            for of in (found.changes[:, i], found.intervals[:, i], found.p[:, i], found.permuted[:, :, i].T)
        )
        columns[f"{short}_change"] = Estimates(changes, bounds.T).exchanged(permuted.T, p)
    return QUANTITIES.table(columns, CAPTION)


def _notes(found: Collapse, left_out: list[str]) -> tuple[str, ...]:
    quota = ", ".join(str(q) for q in found.sets.quota)
    notes = [f"Domain comparison: {found.sets.n} prompts in every set, {quota} from each fifth of the pool's entropy."]
    if left_out:
        names = ", ".join(left_out)
        notes.append(f"Left out, with fewer than {MIN_PER_FIFTH} prompts in some fifth of the entropy: {names}.")
    return tuple(notes)
