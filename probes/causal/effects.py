"""What an intervention did, beside what its matched controls did: effect, interval, z and rank.

A readout of a condition is a ratio of sums over prompts (1 minus it for R²); its effect is edited minus unedited.

    beyond  effect − mean of the controls: what the numbers are about, 0 where there is nothing
    z       that over the standard deviation of the controls
    p       (1 + #{controls as far from the centre}) / (1 + controls), two-sided; the centre is the mean of the axis and
            all controls, so that under the null, where the axis is one more control, all are exchangeable. Of random
            controls there is none: an axis that follows the data is no random direction, whatever it is used for

Intervals resample prompts by whole clusters, of the axis and its controls alike. One readout of one intervention is
primary and judged alone; all others together, by the largest deviation of each control (Westfall and Young 1993).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, takewhile

import numpy as np
from jaxtyping import Float, Int

from interp.probe import Readout
from interp.statistics.estimates import Estimates
from interp.statistics.ratio import ratio
from interp.statistics.resampling import bootstrap_weights

from .edits import BASELINE, HOW, REMOVED, Name
from .quantities import READOUTS

SHARES = {"later_r2"}
"""Readouts whose value is 1 minus the ratio."""

UNVARIED = "this readout does not vary here"


def readings(
    under: Mapping[str, Readout], names: Sequence[str], readout: str, weights: Int[np.ndarray, "resample prompt"]
) -> Float[np.ndarray, "condition value_and_resamples"]:
    """A readout in several conditions: of all prompts, then of every resample of them.

    Layers of a readout are added up: each has the same totals, so that the result is their mean.
    """
    once_and_again = np.vstack([np.ones(weights.shape[1]), weights])
    sums = np.array([_by_prompt(under[name][readout]) for name in names])
    found = ratio(sums @ once_and_again.T, once_and_again @ _by_prompt(under[names[0]][f"{readout}.of"]))
    return 1 - found if readout in SHARES else found


def resampled(rows: Float[np.ndarray, "place value_and_resamples"], why: str = "") -> Estimates:
    """Values and their resamples; no interval where no resample differs by more than rounding.

    `why` says why there is no value where it is NaN.
    """
    found = Estimates.resampled(rows[:, 0], rows[:, 1:].T).because(why)
    assert found.interval is not None
    is_still = np.isclose(*found.interval, rtol=1e-9, atol=0)
    return replace(found, interval=np.where(is_still, np.nan, found.interval))


@dataclass(frozen=True)
class Effect:
    """The effect of one intervention on one readout, and those of its controls.

    `moved` is edited minus unedited of every edit, by its kind (`axis`, `control`, `random`, `top`, `matched_top`,
    `resample`): of all prompts, then of the same resamples of them. `clusters` are those of the prompts.
    """

    on: str
    layers: tuple[int, ...]
    readout: str
    unedited: float
    moved: Mapping[str, Float[np.ndarray, "edit value_and_resamples"]]
    clusters: Int[np.ndarray, " prompt"]

    def by(self, kind: str) -> Float[np.ndarray, " value_and_resamples"]:
        """The effect of the edits of one kind, on average; NaN where there are none."""
        return self.moved[kind].mean(axis=0) if len(self.moved[kind]) else np.full(self.moved["axis"].shape[1], np.nan)

    def beyond(self, kind: str) -> Float[np.ndarray, " value_and_resamples"]:
        """How much more the axis does than edits of a kind do on average."""
        return self.by("axis") - self.by(kind)

    @property
    def z(self) -> Float[np.ndarray, " value_and_resamples"]:
        return ratio(self.beyond("control"), self.moved["control"].std(axis=0, ddof=1))

    @property
    def controls(self) -> Float[np.ndarray, " control"]:
        return self.moved["control"][:, 0]

    @property
    def control_z(self) -> Float[np.ndarray, " control"]:
        """Every control among the others, as the axis is among them."""
        n, centred = len(self.controls), among_others(self.controls)
        mean = self.controls - centred
        square = (np.square(self.controls).sum() - np.square(self.controls)) / (n - 1)
        deviation = np.sqrt(np.clip(square - np.square(mean), 0, None) * (n - 1) / (n - 2))
        return np.divide(centred, deviation, out=np.zeros(n), where=deviation > 0)


def among_others(values: Float[np.ndarray, " control"]) -> Float[np.ndarray, " control"]:
    """Each less the mean of the others."""
    return values - (values.sum() - values) / (len(values) - 1)


@dataclass(frozen=True)
class Effects:
    """Every readout of every intervention wherever it was read, one place each; the first is the primary one.

    `is_refitted`: controls were fitted as the axis was, so that ranks among them say something.
    """

    found: Sequence[Effect]
    is_refitted: bool

    @classmethod
    def of(cls, under: Mapping[str, Readout], n_bootstrap: int, rng: np.random.Generator) -> "Effects | None":
        """None where the axis was never removed."""
        names = [name for name in map(Name.parse, under) if (name.subject, name.how, name.dose) == ("axis", REMOVED, 1)]
        found = []
        weights: dict[str, np.ndarray] = {}
        for name in names:
            baseline = under[baseline_of(name)]
            if name.on not in weights:
                weights[name.on] = bootstrap_weights(baseline["cluster"], None, n_bootstrap, rng)
            found += [_effect(under, name, readout, weights[name.on]) for readout in READOUTS if readout in baseline]
        return cls(found, all(_is_refit(under, name) for name in names)) if found else None

    @cached_property
    def controls(self) -> Float[np.ndarray, "control place"]:
        return np.stack([e.controls for e in self.found], axis=1)

    @cached_property
    def effect(self) -> Estimates:
        """The effects as they are, beside what the controls do."""
        made = resampled(np.array([e.by("axis") for e in self.found]), UNVARIED)
        return made.permuted(self.controls, asks="nothing")

    @cached_property
    def beyond(self) -> Estimates:
        """How far they go beyond what controls do on average: p of the primary one, and of all others together."""
        made = resampled(np.array([e.beyond("control") for e in self.found]), UNVARIED)
        others = np.array([among_others(e.controls) for e in self.found]).T
        return made.permuted(others, np.r_[self.p[:1], self.p_family[1:]], known=0.0)

    @cached_property
    def z(self) -> Estimates:
        made = resampled(np.array([e.z for e in self.found]), "all controls do the same")
        return made.permuted(np.array([e.control_z for e in self.found]).T, asks="nothing")

    @cached_property
    def p(self) -> Float[np.ndarray, " place"]:
        """Two-sided, of each place by itself."""
        return np.concatenate([self._ranked([place]) for place in range(len(self.found))])

    @cached_property
    def p_family(self) -> Float[np.ndarray, " place"]:
        """The same over everything but the primary readout, which has none."""
        return np.r_[np.nan, self._ranked(range(1, len(self.found)))]

    def _ranked(self, places: Sequence[int]) -> Float[np.ndarray, " place"]:
        if not self.is_refitted or not len(places):
            return np.full(len(places), np.nan)
        ranked = Estimates(self.effect.value[places]).permuted(self.controls[:, places], asks="either")
        return np.asarray(ranked.p)


def _effect(under: Mapping[str, Readout], name: Name, readout: str, weights: np.ndarray) -> Effect:
    others = {subject: str(replace(name, subject=subject)) for subject in ("top", "matched_top", "resample")}
    kinds = {
        "axis": [str(name)], "control": controls_of(under, name), "random": controls_of(under, name, "random"),
        **{subject: [key] * (key in under) for subject, key in others.items()},
    }  # fmt: skip
    names = [baseline_of(name), *(key for keys in kinds.values() for key in keys)]
    unedited, *edited = readings(under, names, readout, weights)
    ends = np.cumsum([len(keys) for keys in kinds.values()])
    moved = np.split(np.array(edited) - unedited, ends[:-1])
    clusters = under[names[0]]["cluster"]
    return Effect(name.on, name.layers, readout, float(unedited[0]), dict(zip(kinds, moved, strict=True)), clusters)


def baseline_of(name: Name) -> str:
    """The unedited model, read as this condition is."""
    return str(Name(name.layers, BASELINE, on=name.on))


def controls_of(under: Mapping[str, Readout], name: Name, kind: str = "control") -> list[str]:
    """The controls of a removal, in order: matched ones, or the random ones beside these."""
    names = (str(replace(name, subject=f"{kind} {i}")) for i in count())
    return list(takewhile(under.__contains__, names))


def _is_refit(under: Mapping[str, Readout], name: Name) -> bool:
    """Whether the controls of a removal were fitted as the axis was, to permuted entropies."""
    matching = under[controls_of(under, replace(name, on=""))[0]]["matching"]
    return all(HOW[int(how)] == "refit" for how in matching[:, 0])


def _by_prompt(values: np.ndarray) -> Float[np.ndarray, " prompt"]:
    values = np.asarray(values, dtype=np.float64)
    return values if values.ndim == 1 else values.sum(axis=0)
