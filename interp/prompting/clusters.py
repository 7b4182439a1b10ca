"""Which prompts belong together: a column says so, the set does, or their shared wording.

Prompts of one document, of one template or of one source resemble one another, and resampling them one by one takes
them for more than they are. Every statistic resamples, exchanges and halves whole clusters.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from jaxtyping import Int

from interp.errors import PromptError
from interp.prompt import Clusters, PromptSet
from interp.statistics.wording import THRESHOLD, in_order, linked

COLUMNS = ("cluster", "document")
"""The columns that say which prompts belong together where nobody names one, in this order."""

NONE = "none"
"""What is named in the place of a column so that each prompt stands by itself."""

_N_EXAMPLES = 3
_SHOWN = 60


def with_clusters(prompts: PromptSet, ids: Sequence[Int[np.ndarray, " _pos"]]) -> PromptSet:
    """The same prompts, whose token ids these are, with the cluster of each; as they are where that is known already.

    `PromptError` for a column that the prompts do not have.
    """
    if prompts.clusters is not None:
        return prompts
    return replace(prompts, clusters=_clusters(prompts, ids))


def _clusters(prompts: PromptSet, ids: Sequence[np.ndarray]) -> Clusters:
    known = prompts.prompts[0].columns
    named = prompts.cluster or next((column for column in COLUMNS if column in known), None)
    alone = np.arange(len(prompts))
    if named == NONE:
        return Clusters(alone, "each prompt by itself, as asked")
    if named is not None:
        if named not in known:
            raise PromptError(
                asked=f"clusters of {prompts.name!r} by the column {named!r}",
                found=f"the prompts have the columns {', '.join(sorted(known)) or 'none'}",
                fix=f"Name one of them, or {NONE!r}: each prompt then stands by itself.",
            )
        values = np.array([str(prompt.columns[named]) for prompt in prompts])
        return Clusters(in_order(values), f"the column {named}")
    if prompts.unit != "prompt":
        return Clusters(alone, f"each {prompts.unit} by itself")
    code = linked(ids)
    n_at = {at: len(np.unique(code if at == THRESHOLD else linked(ids, at))) for at in _TRIED}
    return Clusters(code, "shared wording", n_at, _examples(prompts, ids, code))


_TRIED = (THRESHOLD / 2, THRESHOLD, 2 * THRESHOLD)


def _examples(prompts: PromptSet, ids: Sequence[np.ndarray], code: np.ndarray) -> tuple[str, ...]:
    """The largest clusters, each by two of its prompts and what these share."""
    sizes = np.bincount(code)
    return tuple(
        _example(prompts, ids, np.flatnonzero(code == cluster))
        for cluster in np.argsort(-sizes, kind="stable")[:_N_EXAMPLES]
        if sizes[cluster] > 1
    )


def _example(prompts: PromptSet, ids: Sequence[np.ndarray], members: np.ndarray) -> str:
    first, second = members[:2]
    one, other = ({*pairwise(ids[i].tolist())} for i in (first, second))
    texts = " and ".join(repr(_short(prompts.prompts[i].text or str(ids[i].tolist()))) for i in (first, second))
    n_shared, n_pairs = len(one & other), max(len(one), len(other))
    return f"{len(members)} prompts, such as {texts}, which share {n_shared} of {n_pairs} pairs of tokens"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]} … {text[-_SHOWN // 2 :]}"


def in_words(prompts: PromptSet) -> str:
    """`288 prompts in 48 clusters (shared wording)`; where each stands by itself, their number alone."""
    clusters, n = prompts.clusters, len(prompts)
    if clusters is None or clusters.n == n:
        return f"{n:,} {prompts.unit}s"
    return f"{n:,} {prompts.unit}s in {clusters.n:,} clusters ({clusters.by})"


def notes_of(prompts: PromptSet) -> tuple[str, ...]:
    """What a reader of the numbers has to know of the clusters; nothing where each prompt stands by itself."""
    clusters = prompts.clusters
    if clusters is None or clusters.n == len(prompts):
        return ()
    notes = [
        f"{in_words(prompts)}: every interval, null and half goes by cluster, so {clusters.n:,} is the number that "
        f"counts ({clusters.n_effective:.0f} by their sizes)."
    ]
    if clusters.n_at:
        tried = ", ".join(f"{n:,} at {threshold:g}" for threshold, n in clusters.n_at.items())
        notes.append(
            f"Prompts that share at least {THRESHOLD:.0%} of their neighbouring tokens are one cluster; by this share "
            f"there are {tried}. {'; '.join(clusters.examples)}. `--cluster COLUMN` names a column instead, "
            f"`--cluster {NONE}` takes each prompt by itself."
        )
    return tuple(notes)
