"""A probe on models of known truth: does a number stand where it is known to stand?"""

from dataclasses import dataclass, replace
from typing import Literal

from interp.findings import Standing
from interp.probe import Probe

from .simulations import Known, judged_name, shrunk_fields


@dataclass(frozen=True)
class Held:
    """What is known, and what was found."""

    known: Known
    number: str
    standing: Standing
    words: str

    @property
    def agrees(self) -> Literal["yes", "no", "not judged"]:
        """A number that is not judged neither agrees nor differs."""
        if self.standing == "unjudged":
            return "not judged"
        return "yes" if self.standing in self.known.standing else "no"


def held_against(known: Known, probe: Probe) -> Held:
    """Run the probe on the model; nothing is written."""
    from interp.running.run import run  # imports torch, which a list of studies does without

    asked = replace(probe, **shrunk_fields(probe, known.settings))
    prompts = None if known.prompts is None else known.prompts(known.n_pool)
    n_pool = known.n_pool if prompts is None else None
    found = run(known.model, prompts=prompts, probes=[asked], n_pool=n_pool, out=None, quiet=True)
    findings = found.findings[probe.name]
    number = judged_name(findings, known.number)
    return Held(known, number, findings.standing(number), findings[number].briefly)
