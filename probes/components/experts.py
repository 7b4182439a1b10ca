"""Whether the experts of a mixture divide domains: information between the router's choice and a prompt's domain.

I(expert; domain | stratum) in bits; the probabilities of the experts are the router's weights of those chosen. Strata
are positions, or positions and tokens: what these alone predict of the domain is no division of labour. Only strata
with two domains or more count.

Each cluster of prompts gives one random row, since rows of one prompt, and of its near-copies, are routed similarly for
other reasons. Null: routing permuted between clusters within strata. Its mean is the upward bias of the estimate, and
is subtracted.
"""

from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from interp.capture import Capture
from interp.need import Need
from interp.statistics.estimates import Estimates
from interp.statistics.intervals import NORMAL, maximum_statistic_p
from interp.statistics.units import FEW_UNITS, clusters_of, counted, resampled_unit, too_few

from ..measures.halves import Groups, orders_within
from .quantities import EXPERTS

ROUTED = Need("router_weight")


def division(
    routing: Float[np.ndarray, "layer row expert"],
    domain: np.ndarray,
    stratum: Int[np.ndarray, " row"],
    cluster: Int[np.ndarray, " row"],
    n_permutations: int,
    rng: np.random.Generator,
) -> Estimates | None:
    """Bits of every layer and of their mean (last), above their mean when permuted; p of the mean alone.

    None where no stratum has two domains. `n` counts the clusters that gave a row.
    """
    chosen = _one_row_each(domain, stratum, cluster, rng)
    if not len(chosen):
        return None
    q = np.moveaxis(routing[:, chosen].astype(np.float64), 0, 1)  # [row, layer, expert]
    q = q / q.sum(axis=-1, keepdims=True)
    strata = stratum[chosen]
    cells = np.unique(np.stack([strata, np.unique(domain[chosen], return_inverse=True)[1]]), axis=1,
                      return_inverse=True)[1]  # fmt: skip
    pointwise = _pointwise(q, strata, cells)  # [row, layer]
    orders = orders_within(strata, n_permutations, rng)
    drawn = np.array([_pointwise(q[order], strata, cells).mean(axis=0) for order in orders])
    with_mean = [np.concatenate([x, x.mean(axis=1, keepdims=True)], axis=1) for x in (pointwise, drawn)]
    bias = with_mean[1].mean(axis=0)
    half = NORMAL * np.sqrt(with_mean[0].var(axis=0, ddof=1) / len(q) + with_mean[1].var(axis=0, ddof=1))
    bits, permuted = with_mean[0].mean(axis=0) - bias, with_mean[1] - bias
    found = Estimates(bits, np.where(half > 0, [bits - half, bits + half], np.nan), about={"n": len(q)})
    p = np.full(len(bits), np.nan)
    p[-1] = maximum_statistic_p(bits[-1:], permuted[:, -1:])[0]
    return found.permuted(permuted, p)


def _one_row_each(
    domain: np.ndarray, stratum: Int[np.ndarray, " row"], cluster: Int[np.ndarray, " row"], rng: np.random.Generator
) -> Int[np.ndarray, " chosen"]:
    """One random row of every cluster that has one in a stratum of several domains.

    Strata in which the draw leaves one domain count as 0.
    """
    pairs = np.unique(np.stack([stratum, np.unique(domain, return_inverse=True)[1]]), axis=1)
    several, counts = np.unique(pairs[0], return_counts=True)
    usable = rng.permutation(np.flatnonzero(np.isin(stratum, several[counts > 1])))
    return np.sort(usable[np.unique(cluster[usable], return_index=True)[1]])


def _pointwise(
    q: Float[np.ndarray, "row layer expert"], strata: Int[np.ndarray, " row"], cells: Int[np.ndarray, " row"]
) -> Float[np.ndarray, "row layer"]:
    """Σ_e q(e) log2 p(e | stratum, domain) / p(e | stratum) of every row."""
    in_cell, in_stratum = _mean_of_group(q, cells), _mean_of_group(q, strata)
    ratio = np.divide(in_cell, in_stratum, out=np.ones_like(in_cell), where=in_cell > 0)
    return (q * np.log2(ratio)).sum(axis=-1)


def _mean_of_group(
    q: Float[np.ndarray, "row layer expert"], group: Int[np.ndarray, " row"]
) -> Float[np.ndarray, "row layer expert"]:
    of = Groups.of(group)
    return (of.mean @ q.reshape(len(q), -1))[of.code].reshape(q.shape)


def experts(drawn: Capture, n_permutations: int, seed: int) -> dict[str, Estimates]:
    """Both numbers by layer, and their means over layers (last); a single place where undefined."""
    rows = drawn.rows
    if "domain" not in rows or len(np.unique(rows["domain"])) < 2:
        return dict.fromkeys(
            EXPERTS, Estimates.undefined("undefined (all prompts are of one domain, or none is named)")
        )
    clusters = clusters_of(rows)
    unit = resampled_unit(counted(rows["prompt"], clusters, drawn.prompts.unit))
    token = np.unique(np.stack([rows["position"], rows["token"]]), axis=1, return_inverse=True)[1]
    found = {}
    for i, ((name, by), stratum) in enumerate(zip(EXPERTS.items(), (rows["position"], token), strict=True)):
        rng = np.random.default_rng([seed, 5, i])
        mine = division(drawn[ROUTED], rows["domain"], stratum, clusters, n_permutations, rng)
        if mine is None:
            mine = Estimates.undefined(f"undefined (no {by} occurs in two domains)")
        else:
            about = {**mine.about, "n_unit": unit, **too_few(mine.about["n"], FEW_UNITS)}
            mine = replace(mine, about=about, words={"drawn": unit})
        found[name] = mine
    return found
