"""The least that a probe can be, for tests that need one."""

from dataclasses import dataclass
from typing import ClassVar

from interp.findings import Findings
from interp.need import Need
from interp.probe import Probe


@dataclass(frozen=True)
class PlainProbe(Probe):
    """Reads the values and finds nothing."""

    name: ClassVar[str] = "plain"
    question: ClassVar[str] = "Is it called?"

    @property
    def needs(self):
        return (Need("v"),)

    def analyse(self, base, under):
        return Findings(self.name)
