"""What a probe is tried on: simulations without an effect or with a planted one, and models of known truth.

A package registers the simulations of its probes under the entry points `interp.simulations`, each by the name of its
probe: a function without arguments that returns `Trials`. A probe without an entry is tried on the simulations of
`interp.certificates.text_simulations`, which need nothing but its needs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np

from interp.findings import Findings, Standing
from interp.probe import Probe
from interp.prompt import PromptSet
from interp.registry import entries, load_entry

N_MODELS = 5
"""Simulations share so many models in turn."""

Make = Callable[[Probe, np.random.Generator, int, float], Findings]
Truth = Callable[[int, float], Mapping[str, float]]


@dataclass(frozen=True)
class Simulation:
    """One kind of simulation for one probe; `make(probe, rng, seed, size)` draws one and returns what was found.

    At size 0 nothing is there of the numbers in `null` (without them: of any headline number that has a p). At sizes 1
    to 3 an effect is planted, which `effects` says in words, but of the numbers in `unplanted`. `small` are fields of
    the probe that are set so that hundreds of simulations take minutes: reference distributions, prompts of a causal
    probe. `n` counts what a simulation holds. `truth(seed, size)` gives the numbers whose true value is known there,
    by how the simulation is made or from a hundred times the prompts: their intervals are to hold it.
    """

    probe: str
    name: str
    make: Make
    null: tuple[str, ...] = ()
    unplanted: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()
    n: str = ""
    small: Mapping[str, Any] = field(default_factory=dict)
    truth: Truth = lambda seed, size: {}

    def findings(self, probe: Probe, seed: int, size: float) -> Findings:
        """What the probe finds in the simulation of this seed, its fields at the sizes of the simulation."""
        changed = shrunk_fields(probe, self.small) | ({"seed": seed} if "seed" in probe.parameters() else {})
        return self.make(replace(probe, **changed), np.random.default_rng([seed, int(size)]), seed, size)


@dataclass(frozen=True)
class Known:
    """A model of which it is known where a number stands: `above` its null, or `within`.

    `prompts(n)` makes other prompts than the model's own, which `on` names.
    """

    model: str
    number: str
    standing: tuple[Standing, ...]
    why: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    n_pool: int = 200
    prompts: Callable[[int], PromptSet] | None = None
    on: str = ""


@dataclass(frozen=True)
class Trials:
    """All that a probe is tried on."""

    simulations: tuple[Simulation, ...]
    known: tuple[Known, ...] = ()


def trials_of(name: str) -> Trials | None:
    """The trials that are registered for a probe; None where there are none."""
    return load_entry("simulations", name)() if name in entries("simulations") else None


def shrunk_fields(probe: Probe, small: Mapping[str, Any]) -> dict[str, Any]:
    """Which of the fields in `small` apply: those the probe has and that stand at their defaults."""
    defaults = {f.name: f.default for f in fields(probe)}
    return {k: v for k, v in small.items() if k in defaults and getattr(probe, k) == defaults[k] != v}


def nothing(*numbers: str) -> Truth:
    """The truth of numbers that are 0 where no effect is planted."""
    return lambda seed, size: {} if size else dict.fromkeys(numbers, 0.0)


def of_model(seed: int) -> np.random.Generator:
    """What belongs to the model of a simulation, not to its prompts."""
    return np.random.default_rng([7, seed % N_MODELS])


def noise(rng: np.random.Generator, size: tuple[int, ...], heavy: bool) -> np.ndarray:
    """Of variance 1; heavy tails are those of Student's t with three degrees of freedom."""
    return rng.standard_t(3, size) / 3**0.5 if heavy else rng.standard_normal(size)


Grouping = Literal["alone", "fives", "templates"]


def grouped(how: Grouping, n: int, rng: np.random.Generator) -> np.ndarray:
    """The cluster of each prompt: `n` prompts alone, `n` clusters of five, or at most `n` of three on average."""
    if how == "templates":
        return np.sort(rng.integers(0, n, 3 * n))
    return np.arange(n).repeat(5 if how == "fives" else 1)


def in_common(draw: Callable[[int], np.ndarray], cluster: np.ndarray, share: float) -> np.ndarray:
    """Draws of all prompts, along the first axis; those of a cluster have a share of the variance in common."""
    n = len(cluster)
    return (1 - share) ** 0.5 * draw(n) + share**0.5 * draw(n)[cluster]


def judged_name(findings: Findings, number: str) -> str:
    """The name under which a number is the headline: without the first position where that is a sink."""
    variant = f"{number}_no_first"
    return variant if variant in findings.headline else number


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
    """Run the probe on the model, and see where the number stands; nothing is written."""
    from interp.running.run import run  # imports torch, which a list of studies does without

    asked = replace(probe, **shrunk_fields(probe, known.settings))
    prompts = None if known.prompts is None else known.prompts(known.n_pool)
    n_pool = known.n_pool if prompts is None else None
    found = run(known.model, prompts=prompts, probes=[asked], n_pool=n_pool, out=None, quiet=True)
    findings = found.findings[probe.name]
    number = judged_name(findings, known.number)
    return Held(known, number, findings.standing(number), findings[number].briefly)
