"""Clusters of prompts, by a column or by shared wording.

Prompts of one document, template or source resemble one another, and resampling them one by one would make intervals
too narrow. Every statistic resamples, permutes and splits whole clusters.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Int

from interp.errors import PromptError
from interp.formatting import BY_COLUMN, counted, sample_size
from interp.prompt import Clusters, PromptSet
from interp.statistics.near_duplicates import THRESHOLD, in_order, linked

COLUMNS = ("cluster", "document")
"""The columns that are used as clusters if the user names none, in this order."""

NONE = "none"
"""The name, in place of a column, for clusters of one prompt each."""

_WORDING = "shared wording"
_SHOWN = 60


def with_clusters(prompts: PromptSet, ids: Sequence[Int[np.ndarray, " _pos"]]) -> PromptSet:
    """The prompts, whose token ids these are, with their clusters; unchanged if they have clusters already.

    Raises `PromptError` for a column that the prompts do not have.
    """
    return prompts if prompts.clusters is not None else replace(prompts, clusters=_clusters(prompts, ids))


def _clusters(prompts: PromptSet, ids: Sequence[np.ndarray]) -> Clusters:
    known = prompts[0].columns
    usual = next((column for column in COLUMNS if column in known), None)
    named = usual if prompts.cluster is None else prompts.cluster
    alone = np.arange(len(prompts))
    if named not in (None, NONE):
        if named not in known:
            raise PromptError(
                asked=f"clusters of {prompts.name!r} by the column {named!r}",
                found=f"the prompts have the columns {', '.join(sorted(known)) or 'none'}",
                fix=f"Name one of them, or {NONE!r}, which makes each prompt a cluster.",
            )
        values = np.array([str(prompt.columns[named]) for prompt in prompts])
        return Clusters(in_order(values), f"{BY_COLUMN}{named}")
    by_itself = f"each {prompts.unit} by itself"
    if prompts.unit != "prompt":
        return Clusters(alone, by_itself)
    code_at = linked(ids, (THRESHOLD / 2, THRESHOLD, 2 * THRESHOLD))
    examples = _examples(prompts, ids, code_at[THRESHOLD])
    code, by = (alone, by_itself) if named == NONE else (code_at[THRESHOLD], _WORDING)
    return Clusters(code, by, code_at, examples)


def _examples(prompts: PromptSet, ids: Sequence[np.ndarray], code: np.ndarray) -> tuple[str, ...]:
    sizes = np.bincount(code)
    found = []
    for cluster in np.argsort(-sizes, kind="stable")[:3]:
        if sizes[cluster] > 1:
            mine: list[int] = np.flatnonzero(code == cluster).tolist()
            one, *others = ({*pairwise(ids[i].tolist())} for i in mine)
            at = max(range(len(others)), key=lambda i: len(one & others[i]))
            two = (prompts[i].text or str(ids[i].tolist()) for i in (mine[0], mine[1 + at]))
            texts = " and ".join(repr(_short(text)) for text in two)
            shared = f"which share {len(one & others[at])} of {max(len(one), len(others[at]))} pairs"
            found.append(f"{sizes[cluster]} prompts, such as {texts}, {shared}")
    return tuple(found)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2].rstrip()} … {text[-_SHOWN // 2 :].lstrip()}"


def with_targets(prompts: PromptSet, targets: Sequence[str]) -> PromptSet:
    """The prompts, with a caution if a target is constant within the values of a column that are not within clusters.

    Of several such columns the one with most values counts. One of fewer than `_LEAST` values may be an amount, or name
    the target's values.
    """
    clusters, known = prompts.clusters, prompts[0].columns
    assert clusters is not None
    named = (each if each in known else each.partition("=")[0] for each in targets)
    sought = [name for name in named if name in known]
    if not sought:
        return prompts
    code = {name: in_order(np.array([str(prompt.columns[name]) for prompt in prompts])) for name in known}
    n_values = {name: int(code[name].max()) + 1 for name, value in known.items() if not isinstance(value, float)}
    for target in sought:
        for name in sorted(n_values.keys() - {target}, key=lambda name: -n_values[name]):
            n, pairs = n_values[name], [{*zip(code[name], of, strict=True)} for of in (code[target], clusters.code)]
            if _LEAST <= n <= len(prompts) / 2 and len(pairs[0]) == n < len(pairs[1]):
                caution = (
                    f"“{target}” has one value for each “{name}”, and prompts of one “{name}” are not in one cluster: "
                    f"if they are similar, intervals and p are too good. `--cluster {name}` uses this column."
                )
                return replace(prompts, clusters=replace(clusters, crossed=caution))
    return prompts


def described(prompts: PromptSet) -> dict[str, Any]:
    """The clusters as a record keeps them; `caution` is shown beside the numbers."""
    clusters, notes = prompts.clusters, notes_of(prompts)
    assert clusters is not None  # set by `with_clusters`
    n_shown = len(notes) if _are_unsure(clusters) else int(_FAR_FEWER * _n_found(clusters) <= len(prompts))
    return {
        "n": clusters.n, "n_effective": round(clusters.n_effective, 1), "by": clusters.by,
        "n_at": {f"{threshold:g}": n for threshold, n in clusters.n_at.items()}, "examples": list(clusters.examples),
        "caution": " ".join(dict.fromkeys([*notes[:n_shown], clusters.crossed])).strip(),
    }  # fmt: skip


def notes_of(prompts: PromptSet) -> tuple[str, ...]:
    """What readers of the numbers need to know about the clusters; nothing if each prompt is a cluster."""
    clusters, n = prompts.clusters, len(prompts)
    assert clusters is not None
    n_found = _n_found(clusters)
    counting = (sample_size(n, prompts.unit, clusters.n, clusters.n_effective, clusters.by),) * (n_found < n)
    if clusters.n > n_found:
        counting = (
            f"Each of the {counted(n, prompts.unit)} counts by itself, as asked; by shared wording they are "
            f"{counted(n_found, 'cluster')}, and intervals and p are too good if prompts of one are alike.",
        )
    crossed = (clusters.crossed,) * bool(clusters.crossed)
    if not clusters.n_at or not (counting or _are_unsure(clusters)):
        return counting + crossed
    quarter, _, whole = clusters.n_at.values()
    examples = "".join(f" The largest: {example}." for example in clusters.examples[:1])
    return (
        *counting,
        "By wording two prompts are of one cluster if they share half of their pairs of neighbouring tokens; at a "
        f"quarter the clusters would be {quarter:,}, at all of them {whole:,}.{examples} With fewer templates or "
        f"documents than clusters, intervals and p are too good: `--cluster COLUMN` uses a column, and `--cluster "
        f"{NONE}` makes each prompt a cluster.",
        *crossed,
    )


_LEAST = 6
_FAR_FEWER = 2
"""Prompts per cluster, or clusters by half of the wording per cluster by a quarter, from which a caution is shown."""


def _n_found(clusters: Clusters) -> int:
    """The number of clusters, or of those by wording if that is smaller."""
    return min(clusters.n, clusters.n_at.get(THRESHOLD, clusters.n))


def _are_unsure(clusters: Clusters) -> bool:
    return clusters.by == _WORDING and _FAR_FEWER * clusters.n_at[THRESHOLD / 2] <= clusters.n
