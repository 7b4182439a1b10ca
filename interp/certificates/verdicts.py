"""Verdicts on shares of simulations, by exact binomial intervals.

A number that can be tested in fewer than 60 simulations without an effect (too few clusters, say) is *not tested*. It
is *liberal* if it is significant in more than 5 % of them beyond the Monte Carlo error, over all kinds together or in
one (its interval widened for the number of kinds), and again in three times as many fresh simulations. It is *without
power* if the interval of the share at the largest planted effect ends below one half, *conservative* if the interval
over all simulations without an effect ends below 5 %; else it *holds*, also for lack of evidence.

Source: Clopper and Pearson, Biometrika 26 (1934).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from interp.findings import ALPHA

Word = Literal["holds", "liberal", "conservative", "without power", "no p", "not tested"]

LEAST_JUDGED = 60
"""The fewest tested simulations for a rate: with fewer, even 0 is compatible with 5 %."""

MEANINGS: dict[Word, str] = {
    "holds": "significant in 5 % of the simulations without an effect, within counting error",
    "liberal": "significant in more than 5 % of the simulations without an effect, beyond counting error",
    "conservative": "significant in less than 5 % of the simulations without an effect: it may miss effects",
    "without power": "significant in fewer than half of the simulations even with the largest planted effect",
    "no p": "it has no p: read it beside its null",
    "not tested": f"testable in fewer than {LEAST_JUDGED} simulations without an effect",
}


@dataclass(frozen=True)
class Count:
    """`k` of `n` simulations."""

    k: int
    n: int

    @classmethod
    def of(cls, said: Iterable[bool | None]) -> "Count":
        """Count the true values among those that are not None."""
        known = [one for one in said if one is not None]
        return cls(sum(known), len(known))

    @property
    def share(self) -> float:
        return self.k / self.n if self.n else float("nan")

    @property
    def rate(self) -> float:
        """The share; NaN if too few simulations were tested."""
        return self.share if self.n >= LEAST_JUDGED else float("nan")

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The exact interval of the share; 0 to 1 if n is 0."""
        from interp.statistics.intervals import share_bounds  # scipy, which lists of certificates do without

        return share_bounds(self.k, self.n, confidence)


NONE = Count(0, 0)


def total(counts: Iterable[Count]) -> Count:
    """All simulations together."""
    every = tuple(counts)
    return Count(sum(one.k for one in every), sum(one.n for one in every))


def suspects(kinds: Mapping[str, Count]) -> list[list[str]]:
    """The kinds in which a number is significant too often: those that are so alone, and all if they are together."""
    each = 1 - 0.05 / max(1, len(kinds))  # the confidence with which all of them hold together
    alone = [name for name, kind in kinds.items() if kind.interval(each)[0] > ALPHA]
    return [names for names in (alone, list(kinds)) if total(kinds[name] for name in names).interval()[0] > ALPHA]


def judge(null: Mapping[str, Count], planted: Count, fresh: Mapping[str, Count] = {}) -> Word:
    """The verdict from counts without an effect, by kind, with the largest planted one, and repeated (`fresh`)."""
    every = total(null.values())
    if every.n < LEAST_JUDGED:
        return "not tested"
    again = [total(fresh.get(name, NONE) for name in names) for names in suspects(null)]
    if any(not each.n or each.interval()[0] > ALPHA for each in again):
        return "liberal"
    if planted.n and planted.interval()[1] < 0.5:
        return "without power"
    return "conservative" if every.interval()[1] < ALPHA else "holds"
