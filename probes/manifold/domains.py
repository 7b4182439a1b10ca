"""The comparison of domains: fewer directions in each (`collapse`), and the same ones in all (`cross_projection`)?

Every domain's set (equal numbers in each fifth of the entropy, as in the collapse) is cut into two halves. The first
plane of one half of domain A is applied to the other half of domain B, about B's own mean:

    share(A, B) = variance of B in A's plane / variance of B        shared = mean share(A ≠ B) / mean share(A, A)

so that no plane is evaluated on prompts that it was fitted on, and 1 means common axes. The null permutes domain labels
within entropy and length and draws all sets again.
"""

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.findings import Scalar
from interp.statistics.estimates import Estimates
from interp.statistics.intervals import maximum_statistic_p
from interp.statistics.ratio import ratio
from interp.statistics.spectra import SPECTRAL, Scaling, centred_gram, leading_vectors, scaled
from interp.table import Table

from ..measures.cloud import Cloud
from ..measures.halves import Groups, recurs
from ..measures.profiles import Part
from .collapse import MIN_PER_FIFTH, MIN_PROMPTS, MIXED, Collapse, Pool, Spectra, domain_collapse, pool_of
from .quantities import QUANTITIES

N_SPLITS = 4
MAX_PERMUTATIONS = 199
N_PLANE = 2

SHARES = (
    "Share of the variance of one domain's prompts (`of`) in the first plane of other prompts of the same or another "
    "domain (`plane_of`), at equal numbers and entropy, at the primary layer; the mean over splits, the null under "
    "permuted labels."
)

MIN_CLUSTERS = 10
"""Clusters of the smallest set below which a collapse is underpowered."""

_SHARE, _RATIO = (SPECTRAL.index(name) for name in ("pc1_plus_pc2_share", "participation_ratio"))

COLLAPSE = (
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
    return QUANTITIES.table(columns, COLLAPSE)


def _notes(cloud: Cloud, pool: Pool) -> list[str]:
    quota, left_out = ", ".join(map(str, pool.quota)), {*cloud.rows["domain"].astype(str).tolist()} - {*pool.domains}
    notes = [f"Domain comparison: {pool.n} prompts in every set, {quota} from each fifth of the pool's entropy."]
    if not cloud.one_row_each:
        notes.insert(0, f"The domains are compared on one scored position of each {cloud.unit}.")
    if left_out:
        names = ", ".join(sorted(left_out))
        notes.append(f"Left out, with fewer than {MIN_PER_FIFTH} prompts in some fifth of the entropy: {names}.")
    return notes


def plane_shares(
    gram: Float[np.ndarray, "row row"], sets: Int[np.ndarray, "set member"], splits: Bool[np.ndarray, "split member"]
) -> Float[np.ndarray, "plane prompts"]:
    """share(A, B) of every ordered pair of domains, A the plane's and B the prompts', the mean over splits.

    `splits` say for each position of any set whether it is in the first half.
    """
    fitted = np.stack([sets[:, first] for first in splits], axis=1)
    held_out = np.stack([sets[:, ~first] for first in splits], axis=1)
    weights = _planes(gram, fitted)
    total = np.trace(centred_gram(_products(gram, held_out, held_out)), axis1=-2, axis2=-1)
    # weights sum to zero, so the mean of the fitted half drops out; that of the held-out half is subtracted here
    scores = _products(gram, held_out, fitted[:, None]) @ weights[:, None]
    variance = np.square(scores - scores.mean(axis=-2, keepdims=True)).sum(axis=(-2, -1))
    return ratio(variance, total).mean(axis=-1)


def _products(gram: np.ndarray, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    return gram[rows[..., :, None], others[..., None, :]]


def _planes(gram: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """Weights on the fitted rows that give two orthonormal directions of their centred cloud."""
    centred = centred_gram(_products(gram, fitted, fitted))
    vectors = leading_vectors(centred, N_PLANE)
    squared = (vectors * (centred @ vectors)).sum(axis=-2, keepdims=True)
    lengths = np.sqrt(np.clip(squared, 0.0, None))
    alive = lengths > 1e-9 * lengths.max(axis=-1, keepdims=True)
    weights = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=alive)
    return weights - weights.mean(axis=-2, keepdims=True)


def cross_projection(pool: Pool, spectra: Spectra, n_permutations: int, rng: np.random.Generator) -> Part:
    """The table of plane shares and the scalar `shared_plane`."""
    centred = scaled(spectra.rows, spectra.scaling)
    gram = centred @ centred.T
    splits = np.array([rng.permutation(pool.n) < pool.n // 2 for _ in range(N_SPLITS)])
    found = plane_shares(gram, pool.sets(pool.labels)[1:], splits)
    shared = _shared(found)
    if not np.isfinite(found).all() or np.isnan(shared):
        return Part(notes=("No cross-projection: in some set every row is the same point.",))
    labellings = pool.permutations(min(n_permutations, MAX_PERMUTATIONS), rng)
    null = np.array([plane_shares(gram, pool.sets(labels)[1:], splits) for labels in labellings])
    permuted = np.array([_shared(shares) for shares in null])
    p = maximum_statistic_p(-np.array([shared]), -permuted[:, None])
    estimate = Estimates(np.array([shared]), about={"n": pool.n}, words={"n_splits": str(N_SPLITS)})
    n = len(pool.domains)
    share = Estimates(found.ravel()).permuted(null.reshape(len(null), -1), asks="nothing")
    columns = {"plane_of": np.repeat(pool.domains, n), "of": np.tile(pool.domains, n), "share": share}
    return Part(
        QUANTITIES.scalars({"shared_plane": estimate.permuted(permuted[:, None], p)}),
        {"cross_projection": QUANTITIES.table(columns, SHARES)},
    )


def _shared(shares: Float[np.ndarray, "plane prompts"]) -> float:
    """Mean over pairs of different domains, relative to the mean within domains."""
    own = np.eye(len(shares), dtype=bool)
    return float(ratio(shares[~own].mean(), shares[own].mean()))
