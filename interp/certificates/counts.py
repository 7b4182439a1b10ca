"""The simulations of one kind, counted for one number."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from .simulate import SIZES, Cells
from .simulations import Simulation
from .verdicts import NONE, Count


@dataclass(frozen=True)
class Counts:
    """In how many simulations a number is called, by size of the effect, and in how many its interval holds the truth.

    Of the `n_made` simulations without an effect only those count in which it is judged.
    """

    n_made: int = 0
    null: Count = NONE
    power_1: Count = NONE
    power_2: Count = NONE
    power_3: Count = NONE
    covered: Count = NONE
    covered_planted: Count = NONE

    @classmethod
    def of(cls, kind: str, cells: Cells, number: str) -> "Counts":
        """Of one kind of simulation, by its name."""
        seen = {size: [one[number] for one in cells.get((kind, size), ()) if number in one] for size in SIZES}
        null, *power = (Count.of(one.called for one in seen[size]) for size in SIZES)
        covered = Count.of(one.holds for one in seen[0])
        planted = Count.of(one.holds for size in SIZES[1:] for one in seen[size])
        return cls(len(seen[0]), null, *power, covered=covered, covered_planted=planted)

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def cells(self) -> dict[str, float | int]:
        """As cells of a table: a rate that too few simulations would say is empty."""
        shares: dict[str, float | int] = {"called": self.null.rate, "n_judged": self.null.n, "n_null": self.n_made}
        for name in ("covered", "covered_planted"):
            shares |= {name: getattr(self, name).share, f"n_{name}": getattr(self, name).n}
        shares |= {f"power_{size}": getattr(self, f"power_{size}").share for size in SIZES[1:]}
        return shares | {"n_planted": self.power_3.n}


Kinds = dict[str, Counts]
"""The counts of one number by kind of simulation."""


def counted(simulations: Sequence[Simulation], cells: Cells) -> dict[str, Kinds]:
    """By number: the kinds of simulations in which it has nothing to find."""
    numbers = dict.fromkeys(number for cell in cells.values() for one in cell for number in one)
    found = {number: {kind.name: Counts.of(kind.name, cells, number) for kind in simulations} for number in numbers}
    return {number: {name: c for name, c in kinds.items() if c.n_made} for number, kinds in found.items()}


def together(kinds: Kinds) -> Counts:
    """All kinds of simulations as one."""
    return sum(kinds.values(), start=Counts())
