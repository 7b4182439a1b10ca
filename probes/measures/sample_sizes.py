"""How many prompts a number needs. Below a `MIN_` it is undefined, below a `FEW_` (or `FEW_UNITS`) underpowered."""

from collections.abc import Mapping
from typing import Any

from interp.statistics.units import too_few

MIN_CLOUD = 3
"""Prompts of a cloud: two span a line, whatever they are."""

MIN_HALVES = 4
"""Prompts for half splits: with fewer than two in a half, nothing varies."""

MIN_FOLDS = 5
"""Prompts of a cross-validation: one for each of five folds."""

MIN_LEVEL = 5
"""Prompts that share a token, a domain or a position before a regression gives it its own level."""

FEW_POINTS = 20
"""Different points of a cloud, or vectors that are compared in pairs."""

FEW_PAIRS = 50
"""Pairs of prompts in interchange interventions: the difference of two divergences is noisier."""

FEW_FITTED = 100
"""Prompts that an axis is fitted on: half of `FEW_HALVES`."""

FEW_HALVES = 200
"""Prompts for half splits whose intervals hold the fit fixed: coverage is below .9 with fewer than about 200
(docs/reference/probes/belief.md)."""

FEW_HALVED = 30
"""Clusters for half splits whose intervals include refitting: 20 cover as well, but of 60 simulations with ρ = .63
along the first axis 23 were significant with 20 clusters, 47 with 30."""

FEW_ROWS = 200
"""Rows of a readout that is refitted and tested."""


def with_least(about: Mapping[str, Any], n: int, least: int, n_all: int | None = None) -> dict[str, Any]:
    """What is counted, marked underpowered where `n` is below `least`; a mark that it already has stays.

    If `n` of `n_all` clusters take part, `enough` says how many of these would do.
    """
    few = too_few(n, least)
    if few["underpowered"] and n_all is not None:
        few["enough"] = -(-least * n_all // n) if n else None
    return {**about, **few} if few["underpowered"] else {**about}
