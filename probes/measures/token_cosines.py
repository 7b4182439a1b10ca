"""Cosines between vectors of different tokens at one position: keys of the hypotheses, or embeddings.

The vectors of one token at one position are averaged over the contexts it stands in, the tokens of a position make
a set (statistics.cosines), and positions are averaged. Keys are never compared across positions, where rotary embedding
turns them differently.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Num

from interp.capture import Capture
from interp.findings import Interval, Scalar
from interp.prompt import PromptSet
from interp.statistics.cosines import MEASURES, Reference, cosine_measures
from interp.statistics.estimate import t_quantile
from interp.statistics.jackknife import equal_groups, standard_error
from interp.statistics.ratio import ratio

from .cloud import Cloud
from .key_cosines import meaning
from .profiles import Profile
from .sample_sizes import FEW_POINTS

_ROUNDING = 1e-6
"""Half-width below which an interval is rounding: activations are float32."""

_TOKEN_ALONE = "leaving prompts out changes nothing: these vectors depend on the token alone"
_NO_PAIR = "no position holds two different tokens"


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
    definition: str,
    points: Num[np.ndarray, "layer row feature"],
    cloud: Cloud,
    sets: TokenSets,
    references: Mapping[str, Reference],
) -> Mapping[str, Profile]:
    """A profile over the layers of `points`, with jackknife intervals over the prompts of `cloud`."""
    names = np.unique(cloud.units[sets.row])
    size, members = equal_groups(len(names))
    groups = [names[group] for group in members]
    profiles = {measure: list[Scalar]() for measure in MEASURES}
    method = f"delete-group jackknife over {cloud.unit}s, groups of {size}"
    for layer in points:
        value, replicates = token_measures(layer, sets, groups, cloud.units)
        error = standard_error(replicates, len(names), size) * t_quantile(len(groups))
        for i, measure in enumerate(MEASURES):
            compared = references[measure].compare(float(value[i]), 1, len(points))
            has_pair = bool(np.isfinite(value[i]))
            bounds = (value[i] - error[i], value[i] + error[i]) if error[i] > _ROUNDING else None
            profiles[measure].append(
                Scalar.of(
                    value[i], "1", Interval.of(bounds, method, _TOKEN_ALONE if has_pair else _NO_PAIR),
                    compared.null if has_pair else _NO_PAIR, p=compared.p, p_over="layers" if len(points) > 1 else "",
                    n=len(names), n_unit=cloud.unit, n_distinct_rows=sets.n_tokens,
                    underpowered=sets.n_tokens < FEW_POINTS and cloud.unit == "prompt",
                    meaning=meaning(definition, measure),
                )
            )  # fmt: skip
    return profiles


def no_token_sets(base: Capture) -> str:
    """Why keys cannot be compared between tokens here; empty where they can.

    A tunnel shows every hypothesis at its scored positions. Texts have to hold one position and differ in their last
    word alone, else it is contexts that are compared.
    """
    if len(np.unique(base.rows["token"])) < 2:
        return "all rows hold one token"
    if not base.prompts.is_text:
        return ""
    if len(np.unique(base.rows["position"])) > 1:
        return "the prompts end at different positions: use the prompts `vocabulary`"
    if not differ_in_last_word(base.prompts):
        return "the prompts differ in more than their last word: use the prompts `vocabulary`"
    return ""


def differ_in_last_word(prompts: PromptSet) -> bool:
    """Whether all texts are one frame with another word at its end."""
    frames = {(p.text or "").rstrip().rpartition(" ")[0] for p in prompts}
    return len(frames) == 1
