"""The domain comparison as the manifold probe reports it: who takes part, the scalars, the two tables."""

from dataclasses import dataclass, replace

import numpy as np

from interp.findings import Interval, Scalar
from interp.statistics.entropy_draw import N_STRATA
from interp.statistics.estimate import null_from_permutations
from interp.statistics.jackknife import spectral_intervals
from interp.statistics.spectra import SPECTRAL, Scaling
from interp.table import LABEL, Table, number_columns

from ..measures.cloud import Cloud
from ..measures.geometry import UNITS
from ..measures.halves import Groups, recurs
from ..measures.profiles import Part
from .collapse import (
    CHANGES,
    MIN_PER_FIFTH,
    MIN_PROMPTS,
    MIXED,
    Collapse,
    Pool,
    Spectra,
    domain_collapse,
    fifth_of,
    third_of,
)
from .cross_projection import MAX_PERMUTATIONS, NULL_NAME, cross_projection
from .rarefaction import rarefaction_table

MIN_CLUSTERS = 10
"""Clusters of the poorest set below which a collapse is called underpowered."""

METHOD = "delete-one jackknife of the difference, not adjusted for choosing the domain"

CAPTION = (
    "Mixed set against each domain at equal numbers in each fifth of the entropy, at the primary layer: the statistics "
    "of each set with jackknife intervals; the change from the mixed set with its interval, its null under exchanged "
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
    cloud = cloud.one_of_each(np.random.default_rng([settings.seed, 5]))
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
    cloud = cloud.one_of_each(np.random.default_rng([settings.seed, 5]))
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
    words = " Of points measured from the mean of their last token."
    scalars = _scalars(found, pool)
    return {f"{name}_within_token": replace(s, meaning=s.meaning + words) for name, s in scalars.items()}


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
    pool = Pool(labels[kept], fifths[kept], lengths[kept], cloud.units[kept], rng.random(int(kept.sum())))
    return pool, kept, left_out


def _scalars(found: Collapse, pool: Pool) -> dict[str, Scalar]:
    """The largest change over the domains, of each statistic, against the largest under permuted labels."""
    meanings = {
        "collapse": "Rise of the PC1+PC2 share from prompts of all domains to the domain where it rises most, {}, "
        "at equal number and entropy; at its null, restricting the domain does nothing.",
        "collapse_participation_ratio": "Fall (negative) of the participation ratio from prompts of all domains to "
        "the domain where it falls most, {}, at equal number and entropy.",
    }
    fewest = min(len(np.unique(pool.clusters[member])) for member in found.sets.members.values())
    n_clusters = fewest if fewest < found.sets.n else None
    scalars = {}
    for i, (name, meaning) in enumerate(meanings.items()):
        sign = 1.0 if i == 0 else -1.0
        best = int((sign * found.changes[:, i]).argmax())
        extreme = sign * (sign * found.permuted[:, :, i]).max(axis=1)
        scalars[name] = Scalar.of(
            found.changes[best, i], UNITS[CHANGES[i]],
            Interval.of(found.intervals[best, i], METHOD, "undefined when a prompt is left out"),
            null_from_permutations(f"{NULL_NAME}, largest over domains", extreme), p=found.p[best, i],
            p_over="domains", n=found.sets.n, n_clusters=n_clusters, underpowered=fewest < MIN_CLUSTERS,
            meaning=meaning.format(found.sets.domains[best]),
        )  # fmt: skip
    return scalars


def _table(found: Collapse, spectra: Spectra, pool: Pool) -> Table:
    rows = []
    for k, (name, member) in enumerate(found.sets.members.items()):
        deleted = spectra.deletions(member, pool.clusters)
        whole = spectra.statistics(member[None])[0]
        intervals = spectral_intervals(whole, deleted)
        row: dict[str, object] = {"set": name, "n": found.sets.n}
        for i, statistic in enumerate(CHANGES):
            short = _SHORT[statistic]
            row |= number_columns(short, found.statistics[k, i], intervals[SPECTRAL.index(statistic)])
            row |= _change_columns(f"{short}_change", found, name, i)
        rows.append(row)
    units = {"set": LABEL, "n": "prompts"}
    for statistic, short in _SHORT.items():
        units |= dict.fromkeys((short, f"{short}_change"), UNITS[statistic])
    return Table.from_rows(rows, units, CAPTION)


def _change_columns(column: str, found: Collapse, name: str, i: int) -> dict[str, object]:
    """The change from the mixed set; NaN for the mixed set itself."""
    if name == MIXED:
        return number_columns(column, np.nan, (np.nan,) * 2, (np.nan,) * 3, np.nan)
    domain = found.sets.domains.index(name)
    null = null_from_permutations(NULL_NAME, found.permuted[:, domain, i])
    return number_columns(
        column, found.changes[domain, i], found.intervals[domain, i], (null.value, *null.band), found.p[domain, i]
    )


def _notes(found: Collapse, left_out: list[str]) -> tuple[str, ...]:
    quota = ", ".join(str(q) for q in found.sets.quota)
    notes = [f"Domain comparison: {found.sets.n} prompts in every set, {quota} from each fifth of the pool's entropy."]
    if left_out:
        names = ", ".join(left_out)
        notes.append(f"Left out, with fewer than {MIN_PER_FIFTH} prompts in some fifth of the entropy: {names}.")
    return tuple(notes)
