"""How many prompts a number wants, beside the `FEW_UNITS` of a mean. Below a `MIN_` there is no number; below a `FEW_`
it is called underpowered."""

from collections.abc import Mapping
from typing import Any

from interp.statistics.units import too_few

MIN_CLOUD = 3
"""Prompts of a cloud: two span a line, whatever they are."""

MIN_HALVES = 4
"""Prompts that are fitted on, and judged by, in halves: of fewer than two a half, nothing varies."""

MIN_FOLDS = 5
"""Prompts of a cross-validation: one for each of five folds."""

MIN_LEVEL = 5
"""Prompts that share a token, a domain or a position before a regression gives it a level of its own: fewer would be
told by their own mean."""

FEW_POINTS = 20
"""Different points of a cloud, or vectors that are compared in pairs: as for prompts, equal ones tell nothing new."""

FEW_PAIRS = 50
"""Pairs of prompts of which one is given what the other holds: the difference of two divergences is noisier."""

FEW_FITTED = 100
"""Prompts that an axis is fitted on: half of `FEW_HALVES`."""

FEW_HALVES = 200
"""Prompts that are fitted on and judged by in turn: intervals hold the fit fixed, and cover less than .9 of the time
below about 200 (docs/reference/probes/belief.md)."""

FEW_HALVED = 30
"""Clusters that are fitted on and judged by in turn where intervals contain the fitting: of 20 they cover as well, but
of 60 simulations with ρ = .63 along the first axis 23 were called at 20 clusters, 47 at 30."""

FEW_ROWS = 200
"""Rows of a readout that is refitted and then judged."""


def with_least(about: Mapping[str, Any], n: int, least: int, n_all: int | None = None) -> dict[str, Any]:
    """What is counted, marked underpowered where `n` is below `least`; a mark that it already has stays.

    If `n` of `n_all` clusters take part, `enough` says how many of these would do.
    """
    few = too_few(n, least)
    if few["underpowered"] and n_all is not None:
        few["enough"] = -(-least * n_all // n) if n else None
    return {**about, **few} if few["underpowered"] else {**about}
