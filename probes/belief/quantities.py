"""The numbers of the belief probe: what each means, and what it is compared with.

Slots: `{belief}` and `{beliefs}`, the exact one or the column in its place; `{unit}`, the resampled unit.
"""

from typing import Any

from interp.findings import Asks, Control
from interp.statistics.quantities import Quantities, Quantity
from interp.table import LABEL

from ..programs.swaps import FOUND

_FIXED = "bootstrap over {unit}s, fits held fixed"
_R2_METHOD = f"{_FIXED}, scale of log(1 − R²), at least the scatter of permuted {{beliefs}}"
_STILL = "no resample differs"
_PERMUTED = "{beliefs} permuted between {unit}s, predictions kept"
_PLACES = "layers and sites"
_BEYOND = "r2_beyond_token"


def _r2(meaning: str, p_over: str = _PLACES, **marks: Any) -> Quantity:
    null = "refitted after permuting {belief} between {unit}s"
    return Quantity("fraction", meaning, null, _R2_METHOD, _STILL, p_over=p_over, **marks)


def _baseline(rest: str) -> Quantity:
    meaning = f"Share of the variance of {{belief}} that {{positions}} alone {rest}"
    null = "a baseline for r2; the mean, fitted on other rows, has 0"
    return Quantity("fraction", meaning, null, f"{_FIXED}, scale of log(1 − R²)", _STILL, asks="nothing")


def _score(unit: str, meaning: str, asks: Asks, is_headline: bool = False) -> Quantity:
    return Quantity(unit, meaning, _PERMUTED, _FIXED, _STILL, asks, is_headline=is_headline)


def _redirected(how: str, is_headline: bool = False) -> Quantity:
    return Quantity(
        "bits",
        "Bits by which the prediction moves to another sequence's exact posterior when, in the residual stream at "
        f"depth {{depth}}, its own coordinates are replaced by that sequence's in the {{rank}} dimensions that the "
        f"belief is {how}; replacing the whole stream there moves it by {{whole}} bits.",
        "random subspaces of the same dimension", "bootstrap over {unit}s, subspaces held fixed", _STILL,
        is_headline=is_headline,
    )  # fmt: skip


_R2 = {
    "r2": "Share of the variance of {belief} that a linear readout of the activations predicts in held-out {unit}s, "
    "all components together; 0 is no better than the mean.",
    "r2_beyond_position": "Share of the variance of {belief} that a linear readout predicts in held-out {unit}s beyond "
    "position, which is removed from both.",
}
QUANTITIES = Quantities(
    {
        "r2": _r2(_R2["r2"], is_headline=True, controls=(Control("beyond the last token and position", _BEYOND),)),
        "r2_beyond_position": _r2(_R2["r2_beyond_position"], is_headline=True),
        "selectivity": Quantity(
            "fraction",
            "R² of {belief} minus that of control tasks, in which each token at each position has another row's value, "
            "chosen at random: what is found beyond identifying token and position.",
            "another control task in place of {belief}", _FIXED, _STILL, is_headline=True,
        ),
        "random_subspace_r2": Quantity(
            "fraction",
            "Share of the variance of {belief} that least squares predict from {rank} random directions of the "
            "activations, as many as it has dimensions: close to r2, no particular subspace holds it.",
            "a control: read r2 beside it", "t, mean of {n_subspaces} random subspaces", _STILL, is_headline=True,
        ),
        "tvd": _score(
            "fraction",
            "Mean total variation between exact and decoded belief, after the decoded one is moved to the nearest "
            "probability distribution; position alone: {position}.", "below", is_headline=True,
        ),
        "accuracy": _score("fraction", "Share of {right}; position alone: {position}.", "above", is_headline=True),
        "silhouette": Quantity(
            "1",
            "Silhouette of the activations grouped by the most likely state, in their first ten principal axes: 1 is "
            "tight, distant clusters, 0 overlapping ones. Below 0 there are no such clusters, even above the null.",
            "states permuted between {unit}s", "jackknife over {unit}s, {n_groups} groups", "no group differs",
            p_over=_PLACES, is_headline=True,
        ),
        "redirected": _redirected("written along", is_headline=True),
        "interchange_accuracy": FOUND,
        "kl_bits": _score(
            "bits",
            "Mean KL of the exact belief from the decoded one, which is moved to the nearest probability distribution "
            "and mixed with 1 % of what position predicts; position alone: {position} bits.", "below",
        ),
        **{f"{site}_{name}": _r2(meaning) for site in ("v", "z", "resid") for name, meaning in _R2.items()},
        "position_r2": _baseline("predicts: what a readout reaches without evidence."),
        "token_r2": _baseline("predict: what a readout reaches from the last token, without those before it."),
        _BEYOND: _r2(
            "Share of the variance of {belief} that a linear readout predicts in held-out {unit}s beyond position and "
            "the last token, which are removed from both.", p_over="",
        ),
        "output_tvd": _score(
            "fraction",
            "Mean total variation between the exact posterior and the model's prediction over its outcomes: how much "
            "of the belief the output uses, beside how much can be decoded.", "below",
        ),
        "redirected_by_readout": _redirected("read from"),
    },
    columns={
        **dict.fromkeys(("penalty", "mean", "exact_x", "exact_y", "decoded_x", "decoded_y"), "1"),
        "tvd_position": "fraction", "accuracy_position": "fraction", "kl_bits_position": "bits",
        "control_r2": "fraction", "n_dims_90": "dimensions", "n_dims_95": "dimensions", "state": "index",
        "value": LABEL, "subspace": LABEL, "redirected_bits": "bits", "donor_kl": "bits", "own_kl": "bits",
    },
)  # fmt: skip

SET = "the set's components that are decoded rightly (in or out, above or below one half)"
ROWS = "rows at which it is decoded rightly (of names the one predicted highest, of 0 and 1 above or below one half)"
"""What `accuracy` is a share of: components of a set, or of a column's values rows."""
