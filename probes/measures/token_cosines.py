"""Cosines between vectors of different tokens at one position: keys of the hypotheses, or embeddings.

Vectors are averaged over contexts, compared within a position (statistics.cosines), and positions are averaged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Num

from interp.capture import Capture
from interp.statistics.cosines import MEASURES, Reference, cosine_measures
from interp.statistics.estimates import Estimates
from interp.statistics.intervals import t_quantile
from interp.statistics.jackknife import equal_groups, standard_error
from interp.statistics.ratio import ratio
from interp.statistics.units import counted

from .cloud import Cloud
from .sample_sizes import FEW_POINTS

_ROUNDING = 1e-6
"""Half-width below which an interval is rounding: activations are float32."""


@dataclass(frozen=True)
class TokenSets:
    """Which rows hold which token at which position: the tokens that are compared, position by position."""

    row: Int[np.ndarray, " row"]
    position: Int[np.ndarray, " row"]
    token: Int[np.ndarray, " row"]
    n_tokens: int

    @classmethod
    def of(cls, tokens: np.ndarray, positions: np.ndarray, max_tokens: int, rng: np.random.Generator) -> "TokenSets":
        """At most `max_tokens` different tokens, chosen at random; positions as indices from 0."""
        names = np.unique(tokens)
        names = np.sort(rng.choice(names, min(len(names), max_tokens), replace=False))
        row = np.flatnonzero(np.isin(tokens, names))
        position = np.unique(positions[row], return_inverse=True)[1]
        return cls(row, position, np.searchsorted(names, tokens[row]), len(names))


def token_measures(
    vectors: Num[np.ndarray, "row feature"], sets: TokenSets, groups: Sequence[np.ndarray], units: np.ndarray
) -> tuple[Float[np.ndarray, " measure"], Float[np.ndarray, "group measure"]]:
    """`MEASURES` of the mean vectors of the tokens, averaged over positions: of all rows, and without each group.

    `groups` hold the units (prompts) that are left out together; an average over positions leaves out those that
    have no pair of tokens.
    """
    lookup = {unit: g for g, group in enumerate(groups) for unit in group}
    group = np.array([lookup.get(unit, len(groups)) for unit in units[sets.row]])
    found = []
    for position in np.unique(sets.position):
        mine = sets.position == position
        cell = group[mine] * sets.n_tokens + sets.token[mine]
        sums = np.zeros(((len(groups) + 1) * sets.n_tokens, vectors.shape[1]))
        np.add.at(sums, cell, vectors[sets.row[mine]])
        sums = sums.reshape(len(groups) + 1, sets.n_tokens, -1)
        counts = np.bincount(cell, minlength=len(sums) * sets.n_tokens).reshape(len(sums), -1)
        total, n = sums.sum(axis=0, keepdims=True), counts.sum(axis=0, keepdims=True)
        kept, n_kept = np.concatenate([total, total - sums[:-1]]), np.concatenate([n, n - counts[:-1]])
        means = kept / np.maximum(n_kept, 1)[..., None]
        found.append(cosine_measures(means, n_kept > 0))
    by_position = np.array(found)
    known = np.isfinite(by_position)
    mean = ratio(np.where(known, by_position, 0.0).sum(axis=0), known.sum(axis=0))
    return mean[0], mean[1:]


def token_cosines(
    points: Num[np.ndarray, "layer row feature"], cloud: Cloud, sets: TokenSets, references: Mapping[str, Reference]
) -> dict[str, Estimates]:
    """`MEASURES` of every layer of `points`, with jackknife intervals over the prompts of `cloud`.

    There is no interval where leaving prompts out changes nothing.
    """
    names = np.unique(cloud.units[sets.row])
    size, members = equal_groups(len(names))
    measured = [token_measures(x, sets, [names[group] for group in members], cloud.units) for x in points]
    value = np.array([mine for mine, _ in measured])  # [layer, measure]
    error = np.array([standard_error(replicates, len(names), size) for _, replicates in measured])
    half = np.where(error * t_quantile(len(members)) > _ROUNDING, error * t_quantile(len(members)), np.nan)
    about = counted(cloud.prompts[sets.row], cloud.units[sets.row], cloud.unit)
    few = about["underpowered"] or (sets.n_tokens < FEW_POINTS and cloud.unit == "prompt")
    about |= {"n_distinct_rows": sets.n_tokens, "underpowered": few}
    why, words = "no position holds two different tokens", {"unit": cloud.unit, "size": str(size)}
    return {
        measure: references[measure].compared(
            Estimates(v, np.array([v - h, v + h]), about=about, words=words).because(why), 1
        )
        for measure, v, h in zip(MEASURES, value.T, half.T, strict=True)
    }


def no_token_sets(base: Capture) -> str:
    """Why keys cannot be compared between tokens here; empty where they can.

    A tunnel shows every hypothesis at its scored positions. Texts must have one position and differ in the last word.
    """
    if len(np.unique(base.rows["token"])) < 2:
        return "all rows hold one token"
    if not base.prompts.is_text:
        return ""
    if len(np.unique(base.rows["position"])) > 1:
        return "the prompts end at different positions: use the prompts `vocabulary`"
    if len({(p.text or "").rstrip().rpartition(" ")[0] for p in base.prompts}) > 1:
        return "the prompts differ in more than their last word: use the prompts `vocabulary`"
    return ""
