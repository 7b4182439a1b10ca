"""How a coordinate moves as evidence comes in: with its amount, with the exact entropy, and at equal amounts.

Three rank correlations of a coordinate (of every layer and axis):

    evidence         with how much was shown. One row a problem: Spearman's ρ. Many rows a problem or sequence: the
                     mean of each one's own ρ, its sign flipped at random
    entropy          with H_Bayes (exchanged by whole sequences, so that position stays in the null)
    entropy_within   the same with ranks taken among rows that were shown equally much: what is left of it once
                     amount, length and format are the same

Attention has no axis: amounts and entropies are permuted between whole clusters. Along axes, which are fitted to one
half of the clusters and tested on the other, a number is the mean over random splits (`axes`), and its interval and p
contain the scatter of refitting. All are two-sided, over layers and axes together (Westfall and Young 1993).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.statistics.correlation import midranks, ranks_within, resampled_correlations, unit_length
from interp.statistics.estimates import Estimates
from interp.statistics.intervals import FISHER, halving_draws
from interp.statistics.resampling import bootstrap_weights, members_of, random_signs, shuffles

from ..measures.answers import Answers
from ..measures.exchanges import exchange_within
from .axes import Halved

VARIABLES = ("evidence", "entropy", "entropy_within")


def movement_of_halves(
    halved: Halved, answers: Answers, rows: Bool[np.ndarray, " row"], n_draws: int, rng: np.random.Generator
) -> dict[str, Estimates]:
    """The three correlations of every axis and layer with these rows, each the mean over half splits."""
    found = []
    for coordinates, judged in zip(halved.coordinates, halved.judged & rows, strict=True):
        ranked = Ranked.of(coordinates.reshape(-1, len(answers))[:, judged], answers.where(judged))
        found.append(ranked.correlations())
    by_halving = {name: _told([one[name] for one in found]) for name in VARIABLES}
    return {
        name: Estimates.halved(values, FISHER).exchanged(halving_draws(values, n_draws, rng, FISHER), asks="either")
        for name, values in by_halving.items()
    }


def _told(found: Sequence[Float[np.ndarray, " place"]]) -> Float[np.ndarray, "halving place"]:
    """What half splits say whose judged rows differ in the variable at all; all of them where fewer than two do."""
    values = np.array(found)
    told = values[np.isfinite(values).any(axis=1)]
    return told if len(told) > 1 else values


@dataclass(frozen=True)
class Ranked:
    """What is correlated: ranks of coordinates, and the same at equal amounts, each centred and of length one.

    `trends` are the correlations of every unit's own rows with the amount, where a unit has several, and `cluster` the
    cluster of each.
    """

    answers: Answers
    free: Float[np.ndarray, "place row"]
    within: Float[np.ndarray, "place row"]
    trends: Float[np.ndarray, "unit place"]
    cluster: Int[np.ndarray, " unit"]

    @classmethod
    def of(cls, coordinates: Float[np.ndarray, "place row"], answers: Answers) -> "Ranked":
        within = np.array([ranks_within(x, answers.stratum) for x in coordinates])
        members = [] if answers.one_row_each else members_of(answers.unit)
        trends = [_trends(coordinates[:, rows], answers.evidence[rows]) for rows in members]
        clusters = [answers.cluster[rows[:, 0]] for rows in members]
        return cls(
            answers, unit_length(midranks(coordinates)), unit_length(within),
            np.concatenate([np.empty((0, len(coordinates))), *trends]),
            np.concatenate([np.empty(0, dtype=np.int64), *clusters]),
        )  # fmt: skip

    @property
    def pairs(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Coordinates and the variable that each correlation is of; of trends there is none."""
        exact = self.answers.entropy_exact
        found = {"entropy": (self.free, midranks(exact)), "entropy_within": (self.within, self._inside(exact))}
        if self.answers.one_row_each:
            found = {"evidence": (self.free, midranks(self.answers.evidence))} | found
        return {name: (x, unit_length(y[None])[0]) for name, (x, y) in found.items()}

    def _inside(self, values: np.ndarray) -> np.ndarray:
        return ranks_within(values, self.answers.stratum)

    def correlations(self) -> dict[str, Float[np.ndarray, " place"]]:
        """NaN where the coordinate or the variable never varies."""
        found = {name: np.where(x.any(axis=1) & bool(y.any()), x @ y, np.nan) for name, (x, y) in self.pairs.items()}
        if "evidence" not in found:
            found["evidence"] = np.where(self.trends.any(axis=0), self.trends.mean(axis=0), np.nan)
        return found


def _trends(
    coordinates: Float[np.ndarray, "place unit member"], evidence: Float[np.ndarray, "unit member"]
) -> Float[np.ndarray, "unit place"]:
    """Spearman's ρ between amount and coordinate inside each unit."""
    ranks = midranks(coordinates)
    unit_ranks = unit_length(ranks.reshape(-1, ranks.shape[-1])).reshape(ranks.shape)
    return np.einsum("pum,um->up", unit_ranks, unit_length(midranks(evidence)))


def movement(
    coordinates: Float[np.ndarray, "place row"],
    answers: Answers,
    n_permutations: int,
    n_bootstrap: int,
    rng: np.random.Generator,
) -> dict[str, Estimates]:
    """The three correlations of every place whose coordinate owes nothing to a fit."""
    free = shuffles(answers.cluster, n_permutations, rng)
    within = exchange_within(answers.stratum, answers.cluster, n_permutations, rng)
    weights = bootstrap_weights(answers.cluster, answers.stratum, n_bootstrap, rng)
    ranked = Ranked.of(coordinates, answers)
    rho, found = ranked.correlations(), {}
    for name, (x, y) in ranked.pairs.items():
        orders = within if name == "entropy_within" else free
        found[name] = _moved(rho[name], y[orders] @ x.T, resampled_correlations(x, y, weights).T)
    if "evidence" not in found:
        trends, n = ranked.trends, len(ranked.trends)
        flipped = random_signs(ranked.cluster, n_permutations, rng) @ trends / n
        chosen = bootstrap_weights(ranked.cluster, None, n_bootstrap, rng)
        found["evidence"] = _moved(rho["evidence"], flipped, chosen @ trends / chosen.sum(axis=1)[:, None])
    return found


def _moved(rho: np.ndarray, permuted: np.ndarray, replicates: Float[np.ndarray, "resample place"]) -> Estimates:
    return Estimates.resampled(rho, replicates, FISHER).exchanged(permuted, asks="either")
