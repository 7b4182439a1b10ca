"""The numbers of the causal probe, from the effects of its primary intervention."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from interp.findings import Null, Scalar
from interp.probe import Readout
from interp.statistics.nulls import null_from_permutations

from ..measures.halves import share_interval
from .edits import Name
from .effects import PRIMARY, READOUTS, Effect, baseline_of, controls_of

FEW_RUN = 20
"""Prompts run below which every effect is called underpowered."""

FEW_ROWS = 200
"""Rows below which a read-out that is refitted and then judged is called underpowered."""

STILL = "no resample of the prompts differs"
MEANINGS = {
    "beyond": "How much more the axis changes the prediction (KL) than its matched controls do on average.",
    "z": "Distance of the axis' KL from the mean of its matched controls, in their standard deviations.",
    "share": "KL of removing the axis over the KL of giving the same layers another prompt's head outputs.",
    "top": "KL of removing the first ten principal axes instead: what a cut can do here at all.",
    "resample": "KL of replacing the head outputs of the same layers by another prompt's: what these layers tell.",
    "axis_r2": "Share of the variance of the unedited next-token entropy that the axis tells on the run's prompts.",
    "size": "Length of the change relative to what is edited, at the edited positions, when the axis is removed.",
    "logits": "Standard deviation over the vocabulary of the change of the logits when the axis is removed.",
    "ratio": "Variance that controls take out relative to the axis, as measured in the passes; as drawn, a control "
    "outside 0.9 to 1.1 is drawn again.",
}  # fmt: skip


def scalars(
    found: Sequence[Effect], under: Mapping[str, Readout], is_small: bool, n_rows: int, unit: str
) -> dict[str, Scalar]:
    """The primary effect first, then every other read-out of the primary intervention."""
    first = found[0]
    mine = [e for e in found if e.layers == first.layers]
    named = {e.readout: e for e in reversed(mine)}  # where two sets give one read-out, the run's own counts
    made = {PRIMARY: _effect_scalar(first, first.p, "", is_small, unit)}
    made |= _primary_scalars(first, is_small, unit)
    for readout, effect in reversed(named.items()):
        if readout != PRIMARY:
            is_few = is_small or (readout.startswith("later") and n_rows < FEW_ROWS)
            made[readout] = _effect_scalar(effect, effect.p_family, "read-outs and interventions", is_few, unit)
    return made | _size_scalars(first, under, is_small, unit)


def _common(effect: Effect, is_small: bool, unit: str) -> dict[str, Any]:
    return {"n": effect.n, "n_unit": unit, "underpowered": is_small or effect.n < FEW_RUN}


def _method(interval: tuple[float, float] | None, unit: str) -> dict[str, Any]:
    words = f"percentile bootstrap over the {unit}s that were run, axis and controls held fixed"
    return {"interval_method": words if interval else "", "interval_reason": "" if interval else STILL}


def _effect_scalar(effect: Effect, p: float, p_over: str, is_small: bool, unit: str) -> Scalar:
    readout = READOUTS[effect.readout]
    meaning = f"Removing the axis: {readout.meaning}."
    if np.isnan(effect.value) or np.isnan(effect.controls).any():
        return undefined(readout.unit, "this read-out does not vary here", meaning, effect.n, unit)
    return Scalar(
        effect.value, readout.unit, interval=effect.interval, **_method(effect.interval, unit),
        null=null_from_permutations(_null(effect), effect.controls), p=p, p_over=p_over, meaning=meaning,
        **_common(effect, is_small, unit),
    )  # fmt: skip


def _null(effect: Effect) -> str:
    return f"{len(effect.controls)} random controls matched in removed variance"


def _primary_scalars(effect: Effect, is_small: bool, unit: str) -> dict[str, Scalar]:
    common = _common(effect, is_small, unit)
    n = len(effect.controls)
    others = (effect.controls.sum() - effect.controls) / (n - 1)
    made = {
        "kl_beyond_controls": Scalar(
            effect.beyond, "bits", interval=effect.beyond_interval, **_method(effect.beyond_interval, unit),
            null=null_from_permutations("one control among the others", effect.controls - others),
            meaning=MEANINGS["beyond"], **common,
        ),
    }  # fmt: skip
    if np.isnan(effect.z):
        made["kl_z"] = undefined("1", "all controls do the same", MEANINGS["z"], effect.n, unit)
    else:
        made["kl_z"] = Scalar(
            effect.z, "1", interval=effect.z_interval, **_method(effect.z_interval, unit),
            null=null_from_permutations("one control among the others", effect.control_z), meaning=MEANINGS["z"],
            **common,
        )  # fmt: skip
    for subject, value in effect.positive.items():
        replicates = effect.positive_replicates[subject]
        bounds = _bounds(value, replicates)
        made[f"{subject}_kl"] = Scalar(
            value, "bits", interval=bounds, **_method(bounds, unit), meaning=MEANINGS[subject],
            null=null_from_permutations(_null(effect), effect.controls), **common,
        )  # fmt: skip
    whole = effect.positive.get("resample", 0.0)
    if whole > 0:
        replicates = effect.positive_replicates["resample"]
        usable = replicates > 0
        bounds = _bounds(effect.value / whole, effect.replicates[usable] / replicates[usable])
        made["kl_of_resample"] = Scalar(
            effect.value / whole, "fraction", interval=bounds, **_method(bounds, unit), meaning=MEANINGS["share"],
            null=null_from_permutations(_null(effect), effect.controls / whole), **common,
        )  # fmt: skip
    return made


def _bounds(value: float, replicates: np.ndarray) -> tuple[float, float] | None:
    if len(replicates) < 2 or np.ptp(replicates) == 0:
        return None
    low, high = np.quantile(replicates, [0.025, 0.975])
    return min(value, float(low)), max(value, float(high))


def _size_scalars(effect: Effect, under: Mapping[str, Readout], is_small: bool, unit: str) -> dict[str, Scalar]:
    """How large the change was, in the edited tensor and in the logits, and how well the controls are matched."""
    common = _common(effect, is_small, unit)
    name = Name(effect.layers, "axis")
    axis = under[str(name)]
    keys = controls_of(under, name)
    size = np.array([under[key]["size"].mean() for key in keys])
    ratio = np.array([measured_ratio(under[key], axis).mean() for key in keys])
    logits = np.array([logit_change(under, key) for key in keys])
    by_table = "one axis and one set of prompts: `conditions` and `controls` give the others"
    spread = f"lowest {ratio.min():.3f}, highest {ratio.max():.3f} of {len(ratio)} controls"
    return {
        "change_size": Scalar(
            float(axis["size"].mean()), "fraction", interval_reason=by_table,
            null=null_from_permutations(_null(effect), size), meaning=MEANINGS["size"], **common,
        ),
        "logit_change": Scalar(
            logit_change(under, str(name)), "bits", interval_reason=by_table,
            null=null_from_permutations(_null(effect), logits), meaning=MEANINGS["logits"], **common,
        ),
        "control_ratio": Scalar(
            float(ratio.mean()), "1", interval_reason=spread, null=Null("the axis itself", 1.0, (0.9, 1.1)),
            meaning=MEANINGS["ratio"], **common,
        ),
    }  # fmt: skip


def measured_ratio(of_control: Readout, of_axis: Readout) -> np.ndarray:
    """Removed variance of a control over that of the axis, by edited layer."""
    share = np.asarray(of_axis["variance_share"], np.float64)
    mine = np.asarray(of_control["variance_share"], np.float64)
    return np.divide(mine, share, out=np.full(len(share), np.nan), where=share > 0)


def logit_change(under: Mapping[str, Readout], key: str) -> float:
    """Mean over rows of the standard deviation over tokens of the change of log2 probability.

    Logits and log probabilities differ by a constant in each row, which a standard deviation does not see.
    """
    baseline = under[baseline_of(Name.parse(key))]["log_p"].astype(np.float64)
    return float((under[key]["log_p"].astype(np.float64) - baseline).std(axis=1).mean())


def axis_scalar(errors: np.ndarray, totals: np.ndarray, weights: np.ndarray, unit: str, is_small: bool) -> Scalar:
    """R² of the axis on prompts that it was not fitted on; sums by prompt."""
    reason = "read `value_axis` for its nulls: here it is only what is cut"
    if not totals.sum() > 0:
        return undefined("fraction", "the entropy does not vary", MEANINGS["axis_r2"], len(errors), unit)
    bounds = share_interval(errors, totals, weights)
    return Scalar(
        1 - float(errors.sum() / totals.sum()), "fraction", interval=bounds,
        interval_method=f"bootstrap over the {unit}s that were run, the fit held fixed" if bounds else "",
        interval_reason="" if bounds else STILL, null_reason=reason, n=len(errors), n_unit=unit,
        underpowered=is_small, meaning=MEANINGS["axis_r2"],
    )  # fmt: skip


def undefined(unit: str, reason: str, meaning: str, n: int, n_unit: str) -> Scalar:
    return Scalar(
        float("nan"), unit, interval_reason=reason, null_reason=reason, n=n, n_unit=n_unit, underpowered=True,
        meaning=meaning,
    )  # fmt: skip
