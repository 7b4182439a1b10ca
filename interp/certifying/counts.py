"""The worlds of one kind, counted for one number."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from .trying import SIZES, Cells
from .verdicts import NONE, Count
from .worlds import World


@dataclass(frozen=True)
class Counts:
    """In how many worlds a number is called, by size of the effect, and in how many its interval holds the truth.

    Of the `n_made` worlds without an effect only those count in which it is judged.
    """

    n_made: int = 0
    null: Count = NONE
    power_1: Count = NONE
    power_2: Count = NONE
    power_3: Count = NONE
    covered: Count = NONE
    covered_planted: Count = NONE

    @classmethod
    def of(cls, world: str, cells: Cells, number: str) -> "Counts":
        """Of one kind of world, by its name."""
        seen = {size: [one[number] for one in cells.get((world, size), ()) if number in one] for size in SIZES}
        null, *power = (Count.of(one.called for one in seen[size]) for size in SIZES)
        covered = Count.of(one.holds for one in seen[0])
        planted = Count.of(one.holds for size in SIZES[1:] for one in seen[size])
        return cls(len(seen[0]), null, *power, covered=covered, covered_planted=planted)

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def cells(self) -> dict[str, float | int]:
        """As cells of a table: a rate that too few worlds would say is empty."""
        shares: dict[str, float | int] = {"called": self.null.rate, "n_judged": self.null.n, "n_null": self.n_made}
        for name in ("covered", "covered_planted"):
            shares |= {name: getattr(self, name).share, f"n_{name}": getattr(self, name).n}
        shares |= {f"power_{size}": getattr(self, f"power_{size}").share for size in SIZES[1:]}
        return shares | {"n_planted": self.power_3.n}


Kinds = dict[str, Counts]
"""The counts of one number by kind of world."""


def counted(worlds: Sequence[World], cells: Cells) -> dict[str, Kinds]:
    """By number: the kinds of worlds in which it has nothing to find."""
    numbers = dict.fromkeys(number for cell in cells.values() for one in cell for number in one)
    found = {number: {world.name: Counts.of(world.name, cells, number) for world in worlds} for number in numbers}
    return {number: {name: c for name, c in kinds.items() if c.n_made} for number, kinds in found.items()}


def together(kinds: Kinds) -> Counts:
    """All kinds of worlds as one."""
    return sum(kinds.values(), start=Counts())
