"""The numbers of the causal probe, from the effects of its primary intervention."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from interp.findings import Interval, Null, Scalar
from interp.probe import Readout
from interp.statistics.estimate import null_from_permutations, percentile_interval, share_interval
from interp.statistics.ratio import ratio
from interp.statistics.units import FEW_UNITS, counted, resampled_unit

from ..measures.sample_sizes import FEW_ROWS
from .edits import Name
from .effects import PRIMARY, READOUTS, Effect, baseline_of, controls_of

STILL = "no resample of the prompts differs"
POSITIVE = "a positive control: it says how much a cut can do here at all"
MEANINGS = {
    "random": "How much more the axis changes the prediction (KL) than random directions of its variance do.",
    "z": "Distance of the axis' KL from the mean of its matched controls, in their standard deviations.",
    "share": "KL of removing the axis over the KL of giving the same layers another prompt's head outputs.",
    "top": "KL of removing the first ten principal axes instead: what a cut can do here at all.",
    "resample": "KL of replacing the head outputs of the same layers by another prompt's: what these layers do.",
    "axis_r2": "Share of the variance of the unedited next-token entropy that the axis explains on the run's prompts.",
    "size": "Length of the change relative to what is edited, at the edited positions, when the axis is removed.",
    "logits": "Standard deviation over the vocabulary of the change of the logits when the axis is removed.",
    "ratio": "Variance that controls take out relative to the axis, over all edited positions, as measured in the "
    "passes; at the scored positions it is 1 (`matching`).",
}  # fmt: skip


def scalars(
    found: Sequence[Effect], under: Mapping[str, Readout], is_small: bool, n_rows: int, unit: str
) -> dict[str, Scalar]:
    """The primary effect first, then every other readout of the primary intervention."""
    first = found[0]
    mine = [e for e in found if e.layers == first.layers]
    named = {e.readout: e for e in reversed(mine)}  # where two sets give one readout, the run's own counts
    made = _effect_scalars(first, first.p, "", is_small, unit) | _primary_scalars(first, is_small, unit)
    for readout, effect in reversed(named.items()):
        if readout != PRIMARY:
            is_few = is_small or (readout.startswith("later") and n_rows < FEW_ROWS)
            made |= _effect_scalars(effect, effect.p_family, "readouts and interventions", is_few, unit)
    return made | _size_scalars(first, under, is_small, unit)


def _about(effect: Effect, is_small: bool, unit: str) -> dict[str, Any]:
    few = len(np.unique(effect.clusters)) < FEW_UNITS
    return counted_prompts(effect.clusters, unit) | {"underpowered": is_small or few}


def counted_prompts(clusters: Int[np.ndarray, " prompt"], unit: str) -> dict[str, Any]:
    """What a number over prompts of these clusters counts, as fields of a scalar."""
    return counted(np.arange(len(clusters)), clusters, unit)


def resampled_words(about: Mapping[str, Any]) -> str:
    """What intervals over the prompts that were run resample."""
    return f"{resampled_unit(about)}s that were run"


def _interval(bounds: tuple[float, float] | None, about: Mapping[str, Any]) -> Interval | str:
    method = f"percentile bootstrap over the {resampled_words(about)}, axis and controls held fixed"
    return Interval.of(bounds, method, STILL)


def _null(effect: Effect, values: np.ndarray) -> Null:
    """Of what the matched controls do."""
    return null_from_permutations(f"{len(effect.controls)} controls matched in removed variance", values)


def _beyond_null(values: np.ndarray) -> Null:
    """Of the difference that stands for one control among the others: 0, with its band."""
    others = (values.sum() - values) / (len(values) - 1)
    low, high = null_from_permutations("", values - others).band
    return Null(f"one of {len(values)} controls among the others", 0.0, (low, high))


def _effect_scalars(effect: Effect, p: float, p_over: str, is_small: bool, unit: str) -> dict[str, Scalar]:
    """The effect as it is, and what is judged: how far it goes beyond that of the controls."""
    readout, name = READOUTS[effect.readout], effect.readout
    meaning = f"Removing the axis: {readout.meaning}."
    beyond = f"{meaning[:-1]}, beyond what its matched controls do on average."
    about = _about(effect, is_small, unit)
    if np.isnan(effect.value) or np.isnan(effect.controls).any():
        nothing = "this readout does not vary here"
        return {
            name: undefined(readout.unit, nothing, meaning, about),
            f"{name}_beyond_controls": undefined(readout.unit, nothing, beyond, about),
        }
    judged = f"removing any direction does something: {name}_beyond_controls is tested"
    return {
        name: Scalar.of(effect.value, readout.unit, _interval(effect.bounds, about), judged, meaning=meaning, **about),
        f"{name}_beyond_controls": Scalar.of(
            effect.beyond, readout.unit, _interval(effect.beyond_bounds, about), _beyond_null(effect.controls), p=p,
            p_over=p_over, meaning=beyond, **about,
        ),
    }  # fmt: skip


def _primary_scalars(effect: Effect, is_small: bool, unit: str) -> dict[str, Scalar]:
    about = _about(effect, is_small, unit)
    among = "one control among the others"
    made: dict[str, Scalar] = {}
    if len(effect.random):
        made["kl_beyond_random"] = Scalar.of(
            effect.beyond_random, "bits", _interval(effect.beyond_random_bounds, about), _beyond_null(effect.random),
            meaning=MEANINGS["random"], **about,
        )  # fmt: skip
    if np.isnan(effect.z):
        made["kl_z"] = undefined("1", "all controls do the same", MEANINGS["z"], about)
    else:
        null = null_from_permutations(among, effect.control_z)
        made["kl_z"] = Scalar.of(effect.z, "1", _interval(effect.z_bounds, about), null, meaning=MEANINGS["z"], **about)
    for subject, value in effect.positive.items():
        held = _interval(_bounds(value, effect.positive_replicates[subject]), about)
        made[f"{subject}_kl"] = Scalar.of(value, "bits", held, POSITIVE, meaning=MEANINGS[subject], **about)
    whole = effect.positive.get("resample", 0.0)
    if whole > 0:
        replicates = effect.positive_replicates["resample"]
        usable = replicates > 0
        bounds = _bounds(effect.value / whole, effect.replicates[usable] / replicates[usable])
        made["kl_of_resample"] = Scalar.of(
            effect.value / whole, "fraction", _interval(bounds, about), POSITIVE, meaning=MEANINGS["share"], **about,
        )  # fmt: skip
    return made


def _bounds(value: float, replicates: np.ndarray) -> tuple[float, float] | None:
    return None if len(replicates) < 2 or np.ptp(replicates) == 0 else percentile_interval(value, replicates)


def _size_scalars(effect: Effect, under: Mapping[str, Readout], is_small: bool, unit: str) -> dict[str, Scalar]:
    """How large the change was, in the edited tensor and in the logits, and how well the controls are matched."""
    about = _about(effect, is_small, unit)
    name = Name(effect.layers, "axis")
    axis = under[str(name)]
    keys = controls_of(under, name)
    size = np.array([under[key]["size"].mean() for key in keys])
    ratio = np.array([measured_ratio(under[key], axis).mean() for key in keys])
    logits = np.array([logit_change(under, key) for key in keys])
    by_table = "one axis and one set of prompts: `conditions` and `controls` give the others"
    spread = f"lowest {ratio.min():.3f}, highest {ratio.max():.3f} of {len(ratio)} controls"
    return {
        "change_size": Scalar.of(
            axis["size"].mean(), "fraction", by_table, _null(effect, size), meaning=MEANINGS["size"], **about
        ),
        "logit_change": Scalar.of(
            logit_change(under, str(name)), "bits", by_table, _null(effect, logits), meaning=MEANINGS["logits"], **about
        ),
        "control_ratio": Scalar.of(
            ratio.mean(), "1", spread, "1 is the axis itself; controls are matched at scored positions alone",
            meaning=MEANINGS["ratio"], **about,
        ),
    }  # fmt: skip


def measured_ratio(of_control: Readout, of_axis: Readout) -> np.ndarray:
    """Removed variance of a control over that of the axis, by edited layer."""
    return ratio(of_control["variance_share"], of_axis["variance_share"])


def logit_change(under: Mapping[str, Readout], key: str) -> float:
    """Mean over rows of the standard deviation over tokens of the change of log2 probability.

    Logits and log probabilities differ by a constant in each row, which a standard deviation does not see.
    """
    baseline = under[baseline_of(Name.parse(key))]["log_p"].astype(np.float64)
    return float((under[key]["log_p"].astype(np.float64) - baseline).std(axis=1).mean())


def axis_scalar(
    errors: np.ndarray, totals: np.ndarray, weights: np.ndarray, about: Mapping[str, Any], is_small: bool
) -> Scalar:
    """R² of the axis on prompts that it was not fitted on; sums by prompt."""
    if not totals.sum() > 0:
        return undefined("fraction", "the entropy does not vary", MEANINGS["axis_r2"], about)
    bounds = share_interval(errors, totals, weights)
    return Scalar.of(
        1 - errors.sum() / totals.sum(), "fraction",
        Interval.of(bounds, f"bootstrap over the {resampled_words(about)}, the fit held fixed", STILL),
        "read `value_axis` for its nulls: here it is only what is cut", meaning=MEANINGS["axis_r2"],
        **{**about, "underpowered": is_small},
    )  # fmt: skip


def undefined(unit: str, reason: str, meaning: str, about: Mapping[str, Any]) -> Scalar:
    return Scalar.undefined(reason, unit, meaning=meaning, **{**about, "underpowered": True})
