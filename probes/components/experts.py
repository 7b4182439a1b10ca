"""Whether the experts of a mixture divide domains: information between the router's choice and a prompt's domain.

I(expert; domain | stratum) in bits, the expert being one of those chosen, with the weights that they enter with as its
probabilities. Strata are positions, or positions and tokens: what a position or the token there says of the domain (a
token of one domain alone routes as it likes) is no division of labour. Only strata with two domains or more count.

Each cluster of prompts gives one row, drawn at random among those: rows of one prompt, and of its near-copies, route
alike for reasons of their own, and exchanging them one by one would take every habit for a domain. Null: routing
permuted between clusters within strata. Its mean is the upward bias of the estimate, and is subtracted.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from interp.capture import Capture
from interp.findings import Interval, Scalar
from interp.need import Need
from interp.statistics.estimate import NORMAL, maximum_statistic_p, mean_and_band, null_from_permutations
from interp.statistics.units import FEW_UNITS, clusters_of, counted, resampled_unit
from interp.table import Table, number_columns

ROUTED = Need("router_weight")

_BY = {"expert_domain_information": "position", "expert_domain_information_beyond_token": "position and token"}
_METHOD = "normal, from the spread over {}s and that under exchange"


@dataclass(frozen=True)
class Division:
    """Information of every layer and of their mean (last), above its mean under exchange; `n` clusters gave a row."""

    bits: Float[np.ndarray, " layer"]
    half_width: Float[np.ndarray, " layer"]
    exchanged: Float[np.ndarray, "permutation layer"]
    n: int


def division(
    routing: Float[np.ndarray, "layer row expert"],
    domain: np.ndarray,
    stratum: Int[np.ndarray, " row"],
    cluster: Int[np.ndarray, " row"],
    n_permutations: int,
    rng: np.random.Generator,
) -> Division | None:
    """What domains and routing share within strata; None where no stratum has two domains."""
    chosen = _one_row_each(domain, stratum, cluster, rng)
    if not len(chosen):
        return None
    q = np.moveaxis(routing[:, chosen].astype(np.float64), 0, 1)  # [row, layer, expert]
    q = q / q.sum(axis=-1, keepdims=True)
    _, strata = np.unique(stratum[chosen], return_inverse=True)
    _, cells = np.unique(np.stack([strata, np.unique(domain[chosen], return_inverse=True)[1]]), axis=1,
                         return_inverse=True)  # fmt: skip
    pointwise = _pointwise(q, strata, cells)  # [row, layer]
    exchanged = np.array([_pointwise(q[_within(strata, rng)], strata, cells).mean(axis=0)
                          for _ in range(n_permutations)])  # fmt: skip
    with_mean = [np.concatenate([x, x.mean(axis=1, keepdims=True)], axis=1) for x in (pointwise, exchanged)]
    bias = with_mean[1].mean(axis=0)
    error = np.sqrt(with_mean[0].var(axis=0, ddof=1) / len(q) + with_mean[1].var(axis=0, ddof=1))
    return Division(with_mean[0].mean(axis=0) - bias, NORMAL * error, with_mean[1] - bias, len(q))


def _one_row_each(
    domain: np.ndarray, stratum: Int[np.ndarray, " row"], cluster: Int[np.ndarray, " row"], rng: np.random.Generator
) -> Int[np.ndarray, " chosen"]:
    """One random row of every cluster that has one in a stratum of several domains.

    Strata in which one domain is left by the draw say nothing and bias nothing: they stay, as 0.
    """
    pairs = np.unique(np.stack([stratum, np.unique(domain, return_inverse=True)[1]]), axis=1)
    several, counts = np.unique(pairs[0], return_counts=True)
    usable = rng.permutation(np.flatnonzero(np.isin(stratum, several[counts > 1])))
    return np.sort(usable[np.unique(cluster[usable], return_index=True)[1]])


def _within(strata: Int[np.ndarray, " row"], rng: np.random.Generator) -> Int[np.ndarray, " row"]:
    """A random order of rows in which each has received one of its own stratum."""
    order = np.empty(len(strata), dtype=np.int64)
    order[np.argsort(strata, kind="stable")] = np.lexsort((rng.random(len(strata)), strata))
    return order


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
    n = len(group)
    member = sparse.csr_matrix((np.ones(n), (group, np.arange(n))), shape=(int(group.max()) + 1, n))
    means = (member @ q.reshape(n, -1)) / np.asarray(member.sum(axis=1))
    return means[group].reshape(q.shape)


def experts(drawn: Capture, n_permutations: int, seed: int) -> tuple[dict[str, Scalar], Table | None]:
    """Both numbers, and their course over the layers where they are defined."""
    rows = drawn.rows
    if "domain" not in rows or len(np.unique(rows["domain"])) < 2:
        reason = "undefined (all prompts are of one domain, or none is named)"
        return {name: Scalar.undefined(reason, meaning=_meaning(by)) for name, by in _BY.items()}, None
    places = np.unique(np.stack([rows["position"], rows["token"]]), axis=1, return_inverse=True)[1]
    clusters = clusters_of(rows)
    counted_in = resampled_unit(counted(rows["prompt"], clusters, drawn.prompts.unit))
    strata = {"position": rows["position"], "position and token": places}
    scalars: dict[str, Scalar] = {}
    columns: dict[str, np.ndarray] = {"layer": np.arange(drawn.model.n_layers)}
    for i, (name, by) in enumerate(_BY.items()):
        rng = np.random.default_rng([seed, 5, i])
        found = division(drawn[ROUTED], rows["domain"], strata[by], clusters, n_permutations, rng)
        if found is None:
            reason = f"undefined (no {by} occurs in two domains)"
            scalars[name] = Scalar.undefined(reason, meaning=_meaning(by))
            continue
        scalars[name] = _scalar(found, by, counted_in)
        edges = np.stack([found.bits - found.half_width, found.bits + found.half_width])
        null = mean_and_band(found.exchanged)
        columns |= number_columns(name, found.bits[:-1], edges[:, :-1], null=null[:, :-1])
    if len(columns) == 1:
        return scalars, None
    units = {"layer": "layer"} | {name: "bits" for name in _BY if name in columns}
    return scalars, Table(columns, units, "Information about the prompt's domain in the experts chosen in each layer.")


def _scalar(found: Division, by: str, unit: str) -> Scalar:
    value, half, drawn = float(found.bits[-1]), float(found.half_width[-1]), found.exchanged[:, -1]
    about: dict[str, Any] = {"n": found.n, "n_unit": unit, "underpowered": found.n < FEW_UNITS}
    edges = (value - half, value + half) if half > 0 else None
    return Scalar.of(
        value, "bits", Interval.of(edges, _METHOD.format(unit), "undefined: routing never varies"),
        null_from_permutations(f"routing permuted between {unit}s within {by}", drawn),
        p=maximum_statistic_p(np.array([value]), drawn[:, None])[0],
        meaning=_meaning(by), **about,
    )  # fmt: skip


def _meaning(by: str) -> str:
    return (
        f"Information about the domain in the chosen expert at a given {by}, mean over layers, above what chance "
        "gives; 0 where experts do not divide domains."
    )
