"""The numbers of the causal probe: what each readout means, and what the effect of a cut on it is compared with.

Slots: those of `Target`; `{drawn}`, the resampled unit; `{n}`, how many controls there are.
"""

from typing import Any

from interp.findings import Control
from interp.statistics.quantities import Quantities, Quantity
from interp.table import LABEL

from ..programs.swaps import FOUND

PRIMARY = "kl"
READOUTS = {
    "kl": ("bits", "KL divergence of the edited model's next-token prediction from the unedited one"),
    "entropy_moved": ("bits", "mean size of the change of the next-token entropy"),
    "entropy_change": ("bits", "mean change of the next-token entropy"),
    "posterior_kl": ("bits", "change of the KL divergence of the prediction from the exact posterior"),
    "entropy_error": ("bits", "change of the mean distance of the prediction's entropy from the exact one"),
    "loss": ("bits", "change of the loss on the text"),
    "later_r2": ("fraction", "change of the held-out R² with which refitted ridge predicts {target} (unedited)"),
    "later_axis": ("1", "change of |cos| of the axis refitted at later layers with that of the unedited model"),
    "sula_kl": ("bits", "change of the KL divergence of the label prediction from the exact posterior"),
    "slope": ("1", "change of the slope of label log-odds on the exact ones (1 is Bayes)"),
}
"""Unit and meaning of the effect on each readout."""

_HEADLINES = ("kl", "entropy_moved", "later_r2", "posterior_kl", "loss", "slope")
_METHOD = "percentile bootstrap over the {drawn}s that were run, axis and controls held fixed"
_STILL = "no resample of the prompts differs"
_AMONG = "each of {n} matched directions compared with the others"
_POSITIVE = "a positive control: how much a removal can do here at all"
_MATCHED = "{n} controls matched in removed variance"
_BY_TABLE = "one axis and one set of prompts: `conditions` and `controls` give the others"


def _number(unit: str, meaning: str, null: str, **marks: Any) -> Quantity:
    return Quantity(unit, meaning, null, _METHOD, _STILL, **marks)


def _effect(readout: str) -> Quantity:
    unit, meaning = READOUTS[readout]
    untested = f"removing any direction does something: {readout}_beyond_controls is tested"
    return _number(unit, f"Removing the axis: {meaning}.", untested, asks="nothing", is_headline=readout == PRIMARY)


def _beyond(readout: str) -> Quantity:
    unit, meaning = READOUTS[readout]
    control = Control("beyond random directions that alter as much", "kl_beyond_random", essential=False)
    return _number(
        unit, f"Removing the axis: {meaning}, minus the mean of its matched controls.", _AMONG, asks="either",
        p_over="" if readout == PRIMARY else "readouts and interventions", is_headline=readout in _HEADLINES,
        controls=(control,) if readout == PRIMARY else (),
    )  # fmt: skip


def _explained(what: str, role: str) -> Quantity:
    return Quantity(
        "fraction", f"Share of the variance of {{target}} that {what}.", f"`value_axis` has its nulls: {role}",
        "bootstrap over the {drawn}s that were run, the fit held fixed", _STILL,
    )  # fmt: skip


_FIRST = {
    "kl_beyond_controls": _beyond("kl"),
    "kl": _effect("kl"),
    "kl_of_resample": _number(
        "fraction", "KL of removing the axis divided by that of replacing head outputs by another prompt's.",
        _POSITIVE, is_headline=True,
    ),
    "interchange_accuracy": FOUND,
    **{f"{name}_beyond_controls": _beyond(name) for name in _HEADLINES[1:]},
}  # fmt: skip
QUANTITIES = Quantities(
    {
        **_FIRST,
        **{name: _effect(name) for name in READOUTS if name != PRIMARY},
        **{f"{name}_beyond_controls": _beyond(name) for name in READOUTS if name not in _HEADLINES},
        "kl_beyond_random": _number(
            "bits", "KL of removing the axis minus that of removing random directions of its variance.",
            _AMONG, asks="either",
        ),
        "kl_z": _number(
            "1", "Distance of the axis' KL from the mean of its matched controls, in their standard deviations.",
            "each control compared with the others", asks="either",
        ),
        "top_kl": _number(
            "bits", "KL of removing the first ten principal axes: how much a removal can do here.", _POSITIVE
        ),
        "matched_top_kl": _number(
            "bits",
            "KL of a change along the first ten principal axes that is as large as that of removing the axis: how much "
            "a change of this size can do here.",
            "a positive control: how much a change of this size can do here",
        ),
        "resample_kl": _number(
            "bits",
            "KL of replacing the layers' head outputs by another prompt's: what these layers contribute.", _POSITIVE,
        ),
        "change_size": Quantity(
            "fraction",
            "Length of the change relative to what is edited, at the edited positions, when the axis is removed.",
            _MATCHED, _BY_TABLE, asks="nothing",
        ),
        "logit_change": Quantity(
            "bits", "Standard deviation over the vocabulary of the change of the logits when the axis is removed.",
            _MATCHED, _BY_TABLE, asks="nothing",
        ),
        "control_ratio": Quantity(
            "1",
            "Variance that controls take out relative to the axis, over all edited positions, as measured in the "
            "passes; at the scored positions it is 1 (`matching`).",
            "1 is the axis itself; controls are matched at scored positions alone",
            "lowest {low}, highest {high} of {n} controls", asks="nothing",
        ),
        "axis_r2": _explained(
            "the axis explains on the run's prompts, unedited, over the layers edited", "this is what is removed"
        ),
        "remaining_r2": _explained(
            "ridge explains on the run's prompts after the removal, axis and ridge each fitted on half of the others",
            "this is what the removal leaves",
        ),
    },
    columns={
        **dict.fromkeys(("layers", "on", "readout", "role", "unit", "matched_by", "subject", "edit"), LABEL),
        **dict.fromkeys(("effect", "beyond", "unedited", "top_ten", "resample", "random"), "as in unit"),
        **dict.fromkeys(("dose", "z", "axis_cosine", "alike"), "1"),
        **{f"{ratio}{end}": "1" for ratio in ("drawn", "measured") for end in ("", "_lowest", "_highest")},
        **dict.fromkeys(("p", "p_family"), "probability"),
        "n_prompts": "prompts", "control": "index", "variance_share": "fraction", "dimensions": "dimensions",
        "rejected": "draws", "later_layer": "layer", "r2": "fraction",
    },
)  # fmt: skip
