"""What is known to go wrong on a device, by the release of torch: said by `interp check`, beside its own checks.

Kept to reports of silently wrong numbers in operations that a pass makes. A release is named where the report names it.
"""

from dataclasses import dataclass

_ISSUE = "https://github.com/pytorch/pytorch/issues/{}"


@dataclass(frozen=True)
class Hazard:
    """`first` and `last` are releases of torch, both included; None where the report does not bound it."""

    device: str
    what: str
    issue: int
    first: tuple[int, int] | None = None
    last: tuple[int, int] | None = None

    def concerns(self, device: str, release: tuple[int, int]) -> bool:
        since, until = self.first or release, self.last or release
        return device.partition(":")[0] == self.device and since <= release <= until

    def __str__(self) -> str:
        return f"{self.device}: {self.what} ({_ISSUE.format(self.issue)})"


HAZARDS = (
    Hazard("mps", "products of transposed matrices may be wrong after large allocations", 193487, (2, 7), (2, 13)),
    Hazard("mps", "attention by sdpa may be wrong on queries, keys and values that are permuted views", 181133),
    Hazard("mps", "batched products over 32,767 numbers or more are wrong on M1 and M2", 195163),
    Hazard("mps", "batched products of more than 2**32 numbers are wrong on transposed views", 197636),
    Hazard("mps", "sums and means may be wrong when they follow one another quickly", 178497),
)


def hazards(device: str, torch_version: str) -> list[Hazard]:
    """Those that concern this device in this release (`2.13.0+cpu`)."""
    major, minor = torch_version.split(".")[:2]
    return [each for each in HAZARDS if each.concerns(device, (int(major), int(minor)))]
