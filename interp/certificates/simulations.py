"""What a probe is tested on: simulations without or with a planted effect, and models with known answers.

A package registers the simulations of a probe under the entry points `interp.simulations`, by the probe's name: a
function without arguments that returns `Trials`. Others are tested on `interp.certificates.text_simulations`.
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
"""The number of simulated models, used in turn."""

Make = Callable[[Probe, np.random.Generator, int, float], Findings]
Truth = Callable[[int, float], Mapping[str, float]]


@dataclass(frozen=True)
class Simulation:
    """One kind of simulation for one probe; `make(probe, rng, seed, size)` draws one and returns what was found.

    At size 0 the numbers in `null` (by default headline numbers with a p) have no effect. At sizes 1 to 3 an effect is
    planted, described by `effects`, except on the numbers in `unplanted`. `small` are fields of the probe that make
    hundreds of simulations take minutes: sizes of reference distributions, prompts of a causal probe. `n` is the size
    of a simulation. `truth(seed, size)` has the true values that are known, by construction or from 100 times the
    prompts; intervals should contain them.
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
        """The findings of the probe, with the `small` fields, in the simulation of this seed."""
        changed = shrunk_fields(probe, self.small) | ({"seed": seed} if "seed" in probe.parameters() else {})
        return self.make(replace(probe, **changed), np.random.default_rng([seed, int(size)]), seed, size)


@dataclass(frozen=True)
class Known:
    """A model for which the standing of a number is known, such as `above` its null.

    `prompts(n)` makes other prompts than the model's own, named by `on`.
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
    """The simulations and known models for a probe."""

    simulations: tuple[Simulation, ...]
    known: tuple[Known, ...] = ()


def trials_of(name: str) -> Trials | None:
    """The registered trials of a probe, or None."""
    return load_entry("simulations", name)() if name in entries("simulations") else None


def shrunk_fields(probe: Probe, small: Mapping[str, Any]) -> dict[str, Any]:
    """The fields in `small` that the probe has and that are at their defaults."""
    defaults = {f.name: f.default for f in fields(probe)}
    return {k: v for k, v in small.items() if k in defaults and getattr(probe, k) == defaults[k] != v}


def nothing(*numbers: str) -> Truth:
    """The truth of numbers that are 0 without an effect."""
    return lambda seed, size: {} if size else dict.fromkeys(numbers, 0.0)


def of_model(seed: int) -> np.random.Generator:
    """The generator for the model of a simulation, as opposed to its prompts."""
    return np.random.default_rng([7, seed % N_MODELS])


def noise(rng: np.random.Generator, size: tuple[int, ...], heavy: bool) -> np.ndarray:
    """Noise of variance 1; heavy tails are those of Student's t with three degrees of freedom."""
    return rng.standard_t(3, size) / 3**0.5 if heavy else rng.standard_normal(size)


Grouping = Literal["alone", "fives", "templates"]


def grouped(how: Grouping, n: int, rng: np.random.Generator) -> np.ndarray:
    """The cluster of each prompt: `n` prompts alone, `n` clusters of five, or at most `n` of three on average."""
    if how == "templates":
        return np.sort(rng.integers(0, n, 3 * n))
    return np.arange(n).repeat(5 if how == "fives" else 1)


def in_common(draw: Callable[[int], np.ndarray], cluster: np.ndarray, share: float) -> np.ndarray:
    """Draws of all prompts, along the first axis; prompts of a cluster share a part of the variance."""
    n = len(cluster)
    return (1 - share) ** 0.5 * draw(n) + share**0.5 * draw(n)[cluster]


def judged_name(findings: Findings, number: str) -> str:
    """The name of a number among the headlines, which may leave the first position out."""
    variant = f"{number}_no_first"
    return variant if variant in findings.headline else number


@dataclass(frozen=True)
class Held:
    """What is known about a number, and what was found."""

    known: Known
    number: str
    standing: Standing
    words: str

    @property
    def agrees(self) -> Literal["yes", "no", "not judged"]:
        if self.standing == "unjudged":
            return "not judged"
        return "yes" if self.standing in self.known.standing else "no"


def held_against(known: Known, probe: Probe) -> Held:
    """Run the probe on the model and compare the number; nothing is written."""
    from interp.running.run import run  # imports torch, which a list of studies does without

    asked = replace(probe, **shrunk_fields(probe, known.settings))
    prompts = None if known.prompts is None else known.prompts(known.n_pool)
    n_pool = known.n_pool if prompts is None else None
    found = run(known.model, prompts=prompts, probes=[asked], n_pool=n_pool, out=None, quiet=True)
    findings = found.findings[probe.name]
    number = judged_name(findings, known.number)
    return Held(known, number, findings.standing(number), findings[number].briefly)
