"""The domain comparison as the manifold probe reports it: scalars, tables and notes."""

from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from interp.findings import Scalar
from interp.statistics.estimates import Estimates
from interp.statistics.spectra import SPECTRAL, Scaling
from interp.table import Table

from ..measures.cloud import Cloud
from ..measures.halves import Groups, recurs
from ..measures.profiles import Part
from .collapse import MIN_PER_FIFTH, MIN_PROMPTS, MIXED, Collapse, Pool, Spectra, domain_collapse, pool_of
from .cross_projection import MAX_PERMUTATIONS, cross_projection
from .quantities import QUANTITIES

MIN_CLUSTERS = 10
"""Clusters of the smallest set below which a collapse is underpowered."""

_SHARE, _RATIO = (SPECTRAL.index(name) for name in ("pc1_plus_pc2_share", "participation_ratio"))

CAPTION = (
    "Mixed set against each domain at equal numbers in each fifth of the entropy, at the primary layer: the statistics "
    "of each set with jackknife intervals; the change from the mixed set with its interval, its null under permuted "
    "labels, and p over all domains."
)


def restriction(cloud: Cloud, layer: int, scaling: Scaling, per_fifth: int, n_permutations: int, seed: int) -> Part:
    """Compare the domains of a pool at one layer, or say why that is not possible.

    Of each sequence one random scored position is used. Compared are the points, then the points within the last token.
    """
    if why := _without_domains(cloud.rows):
        return Part(notes=(f"No domain comparison: {why}.",))
    at_layer = replace(cloud, points=cloud.points[layer : layer + 1])
    one_each = at_layer.one_of_each(cloud.prompts, np.random.default_rng([seed, 5]))
    rows, points = one_each.rows, one_each.points[0]
    found = _compared(rows, points, scaling, per_fifth, n_permutations, seed)
    if isinstance(found, str):
        return Part(notes=(f"No domain comparison: {found}.",))
    pool, spectra = found.pool, found.spectra
    crossed = cross_projection(pool, spectra, n_permutations, np.random.default_rng([seed, 3]))
    again = recurs(rows["token"])
    rows, points = rows.where(again), _beyond_token(points[again], rows["token"][again])
    within = _compared(rows, points, scaling, per_fifth, min(n_permutations, MAX_PERMUTATIONS), seed)
    scalars = _scalars(found) | ({} if isinstance(within, str) else _scalars(within, "_within_token"))
    tables = {"collapse": _table(found), **crossed.tables}
    return Part({**scalars, **crossed.scalars}, tables, (*_notes(cloud, pool), *crossed.notes))


def _without_domains(rows: Table) -> str:
    """Why there are no domains to compare; empty where there are."""
    if "domain" not in rows:
        return "the prompts have no column `domain`"
    return "all prompts are of one domain" if len(np.unique(rows["domain"])) < 2 else ""


def _compared(
    rows: Table, points: np.ndarray, scaling: Scaling, per_fifth: int, n_permutations: int, seed: int
) -> Collapse | str:
    """The collapse of some points, or why there is none."""
    if why := _without_domains(rows):
        return why
    pool, kept = pool_of(rows, per_fifth, seed)
    if len(pool.domains) < 2 or pool.n < MIN_PROMPTS:
        return (
            f"fewer than two domains have {MIN_PER_FIFTH} prompts in every fifth of the entropy and "
            f"{MIN_PROMPTS} in common"
        )
    found = domain_collapse(pool, Spectra(points[kept], scaling), n_permutations, np.random.default_rng(seed))
    if not np.isfinite(found.permuted[:, 1:]).all() or not np.isfinite(found.changes[1:]).all():
        return "in some set every row is the same point"
    return found


def _beyond_token(points: Float[np.ndarray, "row feature"], tokens: Int[np.ndarray, " row"]) -> np.ndarray:
    """Points from the mean over the m rows of their token, times √(m/(m − 1)) for the variance that the mean takes."""
    groups = Groups.of(tokens)
    counts = groups.counts[groups.code][:, None].astype(np.float64)
    return groups.centred(np.asarray(points, dtype=np.float64)) * np.sqrt(counts / (counts - 1))


def _scalars(found: Collapse, ending: str = "") -> dict[str, Scalar]:
    n, fewest = found.pool.n, found.n_clusters
    about = {"n": n, "n_clusters": fewest if fewest < n else None, "underpowered": fewest < MIN_CLUSTERS}
    estimates = {}
    for name, i, sign in (("collapse", _SHARE, 1.0), ("collapse_participation_ratio", _RATIO, -1.0)):
        best = [int(np.nanargmax(sign * found.changes[:, i]))]
        extreme = sign * (sign * found.permuted[:, 1:, i]).max(axis=1)
        estimates[name + ending] = Estimates(
            found.changes[best, i], found.bounds[:, best, i], about=about,
            words={"domain": found.pool.domains[best[0] - 1]},
        ).permuted(extreme[:, None], found.p[best, i])  # fmt: skip
    return QUANTITIES.scalars(estimates)


def _table(found: Collapse) -> Table:
    """One row per set, the mixed one first, which has no change."""
    names = [MIXED, *found.pool.domains]
    columns: dict[str, np.ndarray | Estimates] = {"set": np.array(names), "n": np.full(len(names), found.pool.n)}
    for short, i in (("share", _SHARE), ("ratio", _RATIO)):
        columns[short] = Estimates(found.statistics[:, i], found.intervals[:, i].T)
        change = Estimates(found.changes[:, i], found.bounds[:, :, i])
        columns[f"{short}_change"] = change.permuted(found.permuted[:, :, i], found.p[:, i])
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
