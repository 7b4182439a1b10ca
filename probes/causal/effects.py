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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float, Int

from interp.probe import Readout
from interp.statistics.estimate import excess, maximum_statistic_p, percentile_interval
from interp.statistics.ratio import ratio
from interp.statistics.resampling import bootstrap_weights

from .edits import BASELINE, HOW, REMOVED, Name, control, random


@dataclass(frozen=True)
class ReadOut:
    """A readout: its unit, what its effect means, and whether its value is 1 minus the ratio."""

    unit: str
    meaning: str
    is_share: bool = False


PRIMARY = "kl"
READOUTS: Mapping[str, ReadOut] = {
    "kl": ReadOut("bits", "KL divergence of the edited model's next-token prediction from the unedited one"),
    "entropy_moved": ReadOut("bits", "mean size of the change of the next-token entropy"),
    "entropy_change": ReadOut("bits", "mean change of the next-token entropy"),
    "posterior_kl": ReadOut("bits", "change of the KL divergence of the prediction from the exact posterior"),
    "entropy_error": ReadOut("bits", "change of the mean distance of the prediction's entropy from the exact one"),
    "loss": ReadOut("bits", "change of the surprise at a token of the text"),
    "later_r2": ReadOut(
        "fraction", "change of the held-out R² with which refitted ridge predicts the unedited entropy", True
    ),
    "later_axis": ReadOut("1", "change of |cos| of the entropy axis refitted at later layers with the unedited one"),
    "sula_kl": ReadOut("bits", "change of the KL divergence of the label prediction from the exact posterior"),
    "slope": ReadOut("1", "change of the slope of label log-odds on the exact ones (1 is Bayes)"),
}  # fmt: skip


@dataclass(frozen=True)
class Values:
    """One readout in several conditions: sums by prompt `[condition, prompt]` over `of` `[prompt]`."""

    sums: Float[np.ndarray, "condition prompt"]
    of: Float[np.ndarray, " prompt"]
    is_share: bool

    @classmethod
    def of_conditions(cls, under: Mapping[str, Readout], names: Sequence[str], readout: str) -> "Values":
        """Layers of a readout are added up: each has the same totals, so that the result is their mean."""
        sums = np.array([_by_prompt(under[name][readout]) for name in names])
        return cls(sums, _by_prompt(under[names[0]][f"{readout}.of"]), READOUTS[readout].is_share)

    @property
    def whole(self) -> Float[np.ndarray, " condition"]:
        return self._value(np.ones((1, len(self.of))))[:, 0]

    def resampled(self, weights: Int[np.ndarray, "resample prompt"]) -> Float[np.ndarray, "condition resample"]:
        return self._value(weights.astype(np.float64))

    def _value(self, weights: np.ndarray) -> np.ndarray:
        found = ratio(self.sums @ weights.T, weights @ self.of)
        return 1 - found if self.is_share else found


@dataclass(frozen=True)
class Effect:
    """The effect of one intervention on one readout, and those of its controls.

    `replicates` are over the same resamples of prompts throughout; `p_family` is over everything but the primary
    readout. `random` are the random directions beside fitted controls, if there are.
    """

    on: str
    layers: tuple[int, ...]
    readout: str
    unedited: float
    value: float
    replicates: Float[np.ndarray, " resample"]
    controls: Float[np.ndarray, " control"]
    control_mean: Float[np.ndarray, " resample"]
    control_sd: Float[np.ndarray, " resample"]
    positive: Mapping[str, float]
    positive_replicates: Mapping[str, np.ndarray]
    p: float
    clusters: Int[np.ndarray, " prompt"]
    p_family: float = float("nan")
    random: Float[np.ndarray, " random"] = field(default_factory=lambda: np.empty(0))
    random_mean: Float[np.ndarray, " random_resample"] = field(default_factory=lambda: np.empty(0))

    @property
    def bounds(self) -> tuple[float, float] | None:
        return _unless_still(percentile_interval(self.value, self.replicates))

    @property
    def beyond(self) -> float:
        """How much more the axis does than its controls do on average."""
        return self.value - float(self.controls.mean())

    @property
    def beyond_bounds(self) -> tuple[float, float] | None:
        return _unless_still(percentile_interval(self.beyond, self.replicates - self.control_mean))

    @property
    def beyond_random(self) -> float:
        """How much more the axis does than random directions do on average."""
        return self.value - float(self.random.mean())

    @property
    def beyond_random_bounds(self) -> tuple[float, float] | None:
        return _unless_still(percentile_interval(self.beyond_random, self.replicates - self.random_mean))

    @property
    def z(self) -> float:
        return float(ratio(self.beyond, self.controls.std(ddof=1)))

    @property
    def z_bounds(self) -> tuple[float, float] | None:
        usable = self.control_sd > 0
        if not usable.any() or np.isnan(self.z):
            return None
        return _unless_still(
            percentile_interval(self.z, (self.replicates - self.control_mean)[usable] / self.control_sd[usable])
        )

    @property
    def control_z(self) -> Float[np.ndarray, " control"]:
        """Every control among the others, as the axis is among them."""
        n = len(self.controls)
        mean = (self.controls.sum() - self.controls) / (n - 1)
        square = (np.square(self.controls).sum() - np.square(self.controls)) / (n - 1)
        deviation = np.sqrt(np.clip(square - np.square(mean), 0, None) * (n - 1) / (n - 2))
        return np.divide(self.controls - mean, deviation, out=np.zeros(n), where=deviation > 0)


def effects(under: Mapping[str, Readout], n_bootstrap: int, rng: np.random.Generator) -> list[Effect]:
    """Every readout of every intervention wherever it was read; the first is the primary one."""
    names = map(Name.parse, under)
    axes = [name for name in names if (name.subject, name.how, name.dose) == ("axis", REMOVED, 1)]
    found = []
    weights: dict[str, np.ndarray] = {}
    for name in axes:
        baseline = baseline_of(name)
        if name.on not in weights:
            clusters = under[baseline]["cluster"]
            weights[name.on] = bootstrap_weights(clusters, None, n_bootstrap, rng)
        for readout in READOUTS:
            if readout in under[baseline]:
                found.append(_effect(under, name, readout, weights[name.on]))
    is_refitted = all(is_refit(under, name) for name in axes)
    return _judged_together(found) if is_refitted else [replace(e, p=float("nan")) for e in found]


def _effect(under: Mapping[str, Readout], name: Name, readout: str, weights: np.ndarray) -> Effect:
    names = [baseline_of(name), str(name), *controls_of(under, name)]
    drawn = randoms_of(under, name)
    values = Values.of_conditions(under, [*names, *drawn], readout)
    whole, resampled = values.whole, values.resampled(weights)
    moved, moved_replicates = whole[1 : len(names)] - whole[0], resampled[1 : len(names)] - resampled[0]
    random, random_replicates = whole[len(names) :] - whole[0], resampled[len(names) :] - resampled[0]
    positive, positive_replicates = {}, {}
    for subject in ("top", "resample"):
        key = str(replace(name, subject=subject))
        if key in under:
            other = Values.of_conditions(under, [names[0], key], readout)
            positive[subject] = float(other.whole[1] - other.whole[0])
            replicates = other.resampled(weights)
            positive_replicates[subject] = replicates[1] - replicates[0]
    return Effect(
        name.on, name.layers, readout, float(whole[0]), float(moved[0]), moved_replicates[0], moved[1:],
        moved_replicates[1:].mean(axis=0), moved_replicates[1:].std(axis=0, ddof=1), positive, positive_replicates,
        float(two_sided_p(moved[:1], moved[1:, None])[0]), under[names[0]]["cluster"], random=random,
        random_mean=random_replicates.mean(axis=0) if drawn else np.empty(0),
    )  # fmt: skip


def two_sided_p(
    observed: Float[np.ndarray, " statistic"], controls: Float[np.ndarray, "control statistic"]
) -> Float[np.ndarray, " statistic"]:
    """p of each statistic by the largest deviation of every control over all of them; NaN ones take no part."""
    here, there = excess(observed, controls)
    return maximum_statistic_p(np.abs(here), np.abs(there))


def _judged_together(found: list[Effect]) -> list[Effect]:
    rest = found[1:]
    if not rest:
        return found
    p = two_sided_p(np.array([e.value for e in rest]), np.stack([e.controls for e in rest], axis=1))
    return [found[0], *(replace(e, p_family=float(p[i])) for i, e in enumerate(rest))]


def baseline_of(name: Name) -> str:
    """The unedited model, read as this condition is."""
    return str(Name(name.layers, BASELINE, on=name.on))


def controls_of(under: Mapping[str, Readout], name: Name) -> list[str]:
    """The matched controls of a removal, in order."""
    return _numbered(under, name, control)


def randoms_of(under: Mapping[str, Readout], name: Name) -> list[str]:
    """The random directions beside fitted controls, in order."""
    return _numbered(under, name, random)


def _numbered(under: Mapping[str, Readout], name: Name, subject: Callable[[int], str]) -> list[str]:
    keys: list[str] = []
    while (key := str(replace(name, subject=subject(len(keys))))) in under:
        keys.append(key)
    return keys


def is_refit(under: Mapping[str, Readout], name: Name) -> bool:
    """Whether the controls of a removal were fitted as the axis was, to permuted entropies."""
    matching = under[controls_of(under, replace(name, on=""))[0]]["matching"]
    return all(HOW[int(how)] == "refit" for how in matching[:, 0])


def _by_prompt(values: np.ndarray) -> Float[np.ndarray, " prompt"]:
    values = np.asarray(values, dtype=np.float64)
    return values if values.ndim == 1 else values.sum(axis=0)


def _unless_still(bounds: tuple[float, float] | None) -> tuple[float, float] | None:
    """None where no resample differs by more than rounding."""
    return None if bounds is None or np.isclose(bounds[0], bounds[1], rtol=1e-9, atol=0) else bounds
