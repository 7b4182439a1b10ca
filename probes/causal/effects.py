"""Effects of an intervention compared with its matched controls: effect, interval, z and rank.

A readout of a condition is a ratio of sums over prompts (1 minus it for R²); its effect is edited minus unedited.

    beyond  effect − mean of the controls, and z in their standard deviations
    p       (1 + #{controls as far from the centre}) / (1 + controls), two-sided; the centre is the mean of the axis and
            all controls, which are exchangeable under the null. None with random controls: an axis fitted to data is
            no random direction

Intervals resample clusters of prompts, with the same resamples for axis and controls. One readout of one intervention
is primary and tested alone; all others together, by the largest deviation of each control (Westfall and Young 1993).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, takewhile
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Num

from interp.probe import Readout
from interp.statistics.estimates import Estimates
from interp.statistics.ratio import ratio
from interp.statistics.resampling import bootstrap_weights
from interp.statistics.units import counted, resampled_unit

from ..measures.sample_sizes import FEW_ROWS
from .controls import HOW
from .edits import BASELINE, REMOVED, Name
from .quantities import READOUTS

Flagged = Callable[[Mapping[str, Any]], dict[str, Any]]

UNVARIED = "this readout does not vary here"


def readings(
    under: Mapping[str, Readout], names: Sequence[str], readout: str, weights: Num[np.ndarray, "resample prompt"]
) -> Float[np.ndarray, "condition value_and_resamples"]:
    """A readout in several conditions, the mean over its layers: of all prompts, then of every resample."""
    once_and_again = np.vstack([np.ones(weights.shape[1]), weights])
    sums = np.array([_by_prompt(under[name][readout]) for name in names])
    found = ratio(sums @ once_and_again.T, once_and_again @ _by_prompt(under[names[0]][f"{readout}.of"]))
    return 1 - found if readout == "later_r2" else found


def resampled(rows: Float[np.ndarray, "place value_and_resamples"], why: str = "") -> Estimates:
    """Values and their resamples; no interval where resamples differ by rounding alone."""
    found = Estimates.resampled(rows[:, 0], rows[:, 1:].T).because(why)
    assert found.interval is not None
    is_still = np.isclose(*found.interval, rtol=1e-9, atol=0)
    return replace(found, interval=np.where(is_still, np.nan, found.interval))


def among_others(values: Float[np.ndarray, "control *place"]) -> Float[np.ndarray, "control *place"]:
    """Each less the mean of the others."""
    return values - (values.sum(axis=0) - values) / (len(values) - 1)


@dataclass(frozen=True)
class Effects:
    """Every readout of every intervention on every set of prompts, one place each; the first is the primary one.

    `names` are the removals of the axis. `moved` is, at each place, edited minus unedited of every edit, by its kind
    (`axis`, `control`, `random`, `top`, `matched_top`, `resample`): of all prompts, then of the same resamples of them.
    `clusters` are those of the prompts. Only refitted controls give ranks (`is_refitted`).
    """

    names: Sequence[Name]
    readouts: Sequence[str]
    unedited: Float[np.ndarray, " place"]
    moved: Sequence[Mapping[str, Float[np.ndarray, "_edit value_and_resamples"]]]
    clusters: Sequence[Int[np.ndarray, " _prompt"]]
    is_refitted: bool

    @classmethod
    def of(cls, under: Mapping[str, Readout], n_bootstrap: int, rng: np.random.Generator) -> "Effects | None":
        """None where the axis was never removed."""
        found, weights = [], dict[str, np.ndarray]()
        for name in map(Name.parse, under):
            if (name.subject, name.how) != ("axis", REMOVED):
                continue
            baseline = under[baseline_of(name)]
            if name.on not in weights:
                weights[name.on] = bootstrap_weights(baseline["cluster"], None, n_bootstrap, rng)
            for readout in (readout for readout in READOUTS if readout in baseline):
                found.append((name, readout, *_moved(under, name, readout, weights[name.on]), baseline["cluster"]))
        if not found:
            return None
        names, readouts, unedited, moved, clusters = zip(*found, strict=True)
        is_refitted = all(_is_refit(under, name) for name in names)
        return cls(names, readouts, np.array(unedited), moved, clusters, is_refitted)

    def by(self, kind: str) -> Float[np.ndarray, "place value_and_resamples"]:
        """The effect of the edits of one kind, on average; NaN where there are none."""
        nothing = np.full_like(self.moved[0]["axis"], np.nan)
        return np.array([(of[kind] if len(of[kind]) else nothing).mean(axis=0) for of in self.moved])

    def more_than(self, kind: str) -> Float[np.ndarray, "place value_and_resamples"]:
        """How much more the axis does than edits of a kind do on average."""
        return self.by("axis") - self.by(kind)

    @cached_property
    def controls(self) -> Float[np.ndarray, "control place"]:
        return np.stack([of["control"][:, 0] for of in self.moved], axis=1)

    @property
    def control_z(self) -> Float[np.ndarray, "control place"]:
        """Every control among the others, as the axis is among them."""
        controls, n = self.controls, len(self.controls)
        centred, squares = among_others(controls), np.square(controls)
        square = (squares.sum(axis=0) - squares) / (n - 1)
        deviation = np.sqrt(np.clip(square - np.square(controls - centred), 0, None) * (n - 1) / (n - 2))
        return np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 0)

    @cached_property
    def effect(self) -> Estimates:
        """The effects as they are, beside what the controls do."""
        return resampled(self.by("axis"), UNVARIED).permuted(self.controls, asks="nothing")

    @cached_property
    def beyond(self) -> Estimates:
        """How far they go beyond what controls do on average: p of the primary one, and of all others together."""
        made = resampled(self.more_than("control"), UNVARIED)
        return made.permuted(among_others(self.controls), np.r_[self.p[:1], self.p_family[1:]], known=0.0)

    @cached_property
    def z(self) -> Estimates:
        spread = np.array([of["control"].std(axis=0, ddof=1) for of in self.moved])
        made = resampled(ratio(self.more_than("control"), spread), "all controls do the same")
        return made.permuted(self.control_z, asks="nothing")

    @cached_property
    def p(self) -> Float[np.ndarray, " place"]:
        """Two-sided, not corrected."""
        return np.concatenate([self._ranked([place]) for place in range(len(self.names))])

    @cached_property
    def p_family(self) -> Float[np.ndarray, " place"]:
        """The same, corrected over all but the primary readout, which has none."""
        return np.r_[np.nan, self._ranked(range(1, len(self.names)))]

    def _ranked(self, places: Sequence[int]) -> Float[np.ndarray, " place"]:
        if not self.is_refitted or not len(places):
            return np.full(len(places), np.nan)
        ranked = Estimates(self.effect.value[places]).permuted(self.controls[:, places], asks="either")
        return np.asarray(ranked.p)


def _moved(
    under: Mapping[str, Readout], name: Name, readout: str, weights: np.ndarray
) -> tuple[float, dict[str, np.ndarray]]:
    """A readout without edits, and how far each edit moves it, by kind."""
    others = {subject: str(replace(name, subject=subject)) for subject in ("top", "matched_top", "resample")}
    kinds = {
        "axis": [str(name)], "control": controls_of(under, name), "random": controls_of(under, name, "random"),
        **{subject: [key] * (key in under) for subject, key in others.items()},
    }  # fmt: skip
    names = [baseline_of(name), *(key for keys in kinds.values() for key in keys)]
    unedited, *edited = readings(under, names, readout, weights)
    ends = np.cumsum([len(keys) for keys in kinds.values()])
    moved = np.split(np.array(edited) - unedited, ends[:-1])
    return float(unedited[0]), dict(zip(kinds, moved, strict=True))


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
    return np.atleast_2d(np.asarray(values, dtype=np.float64)).sum(axis=0)


def estimates(
    effects: Effects, under: Mapping[str, Readout], flagged: Flagged, n_rows: int, unit: str
) -> dict[str, Estimates]:
    """The numbers at the primary intervention: the primary effect first, then every other readout.

    `flagged` marks what is counted where the axis was fitted on too few prompts.
    """
    first, found = effects.names[0], dict[str, Estimates]()
    for place, (name, readout) in enumerate(zip(effects.names, effects.readouts, strict=True)):
        if name.layers != first.layers or readout in found:
            continue  # where two sets give one readout, the run's own counts
        mine = {
            readout: replace(effects.effect, null=None).at([place]),
            f"{readout}_beyond_controls": effects.beyond.at([place]),
        }
        if place == 0:
            mine |= {"kl_z": effects.z.at([0])} | _beside(effects) | _sizes(first, under)
        clusters = effects.clusters[place]
        about = flagged(counted(np.arange(len(clusters)), clusters, unit))
        if readout.startswith("later") and n_rows < FEW_ROWS:
            about["underpowered"] = True
        found |= {name: described(of, about, n=str(len(effects.controls))) for name, of in mine.items()}
    return found


def described(found: Estimates, about: Mapping[str, Any], **words: str) -> Estimates:
    """Estimates with the number and the name of their units."""
    return replace(found, about=about, words={"drawn": resampled_unit(about), **words, **found.words})


def _beside(effects: Effects) -> dict[str, Estimates]:
    """The primary readout beside random directions and positive controls, as far as these were run."""
    axis, resample = effects.by("axis"), effects.by("resample")
    rows = {
        "kl_beyond_random": effects.more_than("random"), "top_kl": effects.by("top"),
        "matched_top_kl": effects.by("matched_top"), "resample_kl": resample, "kl_of_resample": ratio(axis, resample),
    }  # fmt: skip
    found = {name: resampled(row[:1]) for name, row in rows.items() if np.isfinite(row[0, 0])}
    if "kl_beyond_random" in found:
        random = effects.moved[0]["random"][:, :1]
        among = found["kl_beyond_random"].permuted(among_others(random), asks="nothing", known=0.0)
        found["kl_beyond_random"] = replace(among, words={"n": str(len(random))})
    return found


def _sizes(name: Name, under: Mapping[str, Readout]) -> dict[str, Estimates]:
    """How large the change was, in the edited tensor and in the logits, and how well the controls are matched."""
    axis, *controls = keys = [str(name), *controls_of(under, name)]
    sizes = {
        "change_size": np.array([under[key]["size"].mean() for key in keys]),
        "logit_change": np.array([logit_change(under, key) for key in keys]),
    }
    ratios = np.array([measured_ratio(under[key], under[axis]).mean() for key in controls])
    words = {"low": f"{ratios.min():.3f}", "high": f"{ratios.max():.3f}"}
    return {
        **{name: Estimates(of[:1]).permuted(of[1:, None], asks="nothing") for name, of in sizes.items()},
        "control_ratio": Estimates(np.array([ratios.mean()]), words=words),
    }


def measured_ratio(of_control: Readout, of_axis: Readout) -> np.ndarray:
    """Removed variance of a control over that of the axis, by edited layer."""
    return ratio(of_control["variance_share"], of_axis["variance_share"])


def logit_change(under: Mapping[str, Readout], key: str) -> float:
    """Mean over rows of the standard deviation over tokens of the change of log2 probability.

    Logits and log probabilities differ by a constant in each row, which a standard deviation does not see.
    """
    baseline = under[baseline_of(Name.parse(key))]["log_p"].astype(np.float64)
    return float((under[key]["log_p"].astype(np.float64) - baseline).std(axis=1).mean())
