"""The numbers of the causal probe at its primary intervention, or the reason why one cannot be given."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Int

from interp.probe import Readout
from interp.statistics.estimates import Estimates
from interp.statistics.ratio import ratio
from interp.statistics.units import counted, resampled_unit

from ..measures.sample_sizes import FEW_ROWS
from .edits import Name
from .effects import Effect, Effects, among_others, baseline_of, controls_of, resampled


def estimates(
    effects: Effects, under: Mapping[str, Readout], is_small: bool, n_rows: int, unit: str
) -> dict[str, Estimates]:
    """The primary effect first, then every other readout of the primary intervention."""
    first, found = effects.found[0], dict[str, Estimates]()
    for place, effect in enumerate(effects.found):
        if effect.layers != first.layers or effect.readout in found:
            continue  # where two sets give one readout, the run's own counts
        mine = {
            effect.readout: replace(effects.effect, null=None).at([place]),
            f"{effect.readout}_beyond_controls": effects.beyond.at([place]),
        }
        if place == 0:
            mine |= {"kl_z": effects.z.at([0])} | _beside(effect) | _sizes(effect, under)
        is_few = is_small or (effect.readout.startswith("later") and n_rows < FEW_ROWS)
        about = about_run(effect.clusters, unit, is_few)
        found |= {name: described(of, about, n=str(len(effect.controls))) for name, of in mine.items()}
    return found


def about_run(clusters: Int[np.ndarray, " prompt"], unit: str, is_small: bool) -> dict[str, Any]:
    """What a number over prompts of these clusters counts, as fields of a scalar."""
    about = counted(np.arange(len(clusters)), clusters, unit)
    return about | {"underpowered": is_small or about["underpowered"]}


def described(found: Estimates, about: Mapping[str, Any], **words: str) -> Estimates:
    """With what is counted and resampled."""
    return replace(found, about=about, words={"drawn": resampled_unit(about), **words, **found.words})


def _beside(effect: Effect) -> dict[str, Estimates]:
    """The primary readout beside random directions and positive controls, as far as these were run."""
    rows = {
        "kl_beyond_random": effect.beyond("random"), "top_kl": effect.by("top"),
        "matched_top_kl": effect.by("matched_top"), "resample_kl": effect.by("resample"),
        "kl_of_resample": ratio(effect.by("axis"), effect.by("resample")),
    }  # fmt: skip
    found = {name: resampled(row[None]) for name, row in rows.items() if np.isfinite(row[0])}
    if "kl_beyond_random" in found:
        random = effect.moved["random"][:, 0]
        among = found["kl_beyond_random"].permuted(among_others(random)[:, None], asks="nothing", known=0.0)
        found["kl_beyond_random"] = replace(among, words={"n": str(len(random))})
    return found


def _sizes(effect: Effect, under: Mapping[str, Readout]) -> dict[str, Estimates]:
    """How large the change was, in the edited tensor and in the logits, and how well the controls are matched."""
    name = Name(effect.layers, "axis")
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
