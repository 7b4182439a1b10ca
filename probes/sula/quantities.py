"""The numbers of the SULA probe: what each means, what it is compared with, and which of them the page puts first.

Slots: `{unit}`, the resampled unit; `{amount}`, the column that counts the evidence.
"""

from itertools import product

from interp.findings import Control
from interp.statistics.quantities import Quantities, Quantity

from ..measures.calibration import CALIBRATION
from .movement import N_HALF_SPLITS

AFTER_FIRST = "_after_first"
_WITHOUT_FIRST = "on prompts with evidence alone"
_RHO = "rank correlation of the value coordinate with "
MOVEMENTS = {
    "movement": ("", "evidence", _RHO + "the amount of evidence"),
    "movement_same_length": ("padded", "evidence", "the same among prompts of equal length"),
    "entropy_movement": ("", "entropy", _RHO + "the entropy of the exact posterior"),
    "entropy_movement_within": ("", "entropy_within", "the same at equal amounts of evidence"),
}
"""In which condition (else the main one; `padded`: all equally long), with which variable, and in words."""

_HEADLINES = ("movement", "entropy_movement_within")


def _movement(name: str, suffix: str) -> Quantity:
    *_, meaning = MOVEMENTS[name]
    return Quantity(
        "1", f"{meaning}, {_WITHOUT_FIRST}" if suffix else meaning,
        null="no correlation in the test {unit}s, with the scatter of half splits",
        method=f"corrected resampled t over {N_HALF_SPLITS} half splits, Fisher z scale",
        no_interval="no resample differs",
        asks="either",
        p_over="layers and axes",
        is_headline=not suffix and name in _HEADLINES,
        controls=() if suffix else (Control(_WITHOUT_FIRST, name + AFTER_FIRST),),
    )  # fmt: skip


QUANTITIES = Quantities(
    {**CALIBRATION, **{name + s: _movement(name, s) for name, s in product(MOVEMENTS, ("", AFTER_FIRST))}},
    columns={
        **dict.fromkeys(("condition", "first", "variable"), "label"),
        **dict.fromkeys(("bayes_entropy", "model_entropy", "residual", "error", "kl"), "bits"),
        **dict.fromkeys(("error_mean_constant", "error_best_constant", "error_always_open", "kl_reverse"), "bits"),
        **dict.fromkeys(("error_noise_reader", "kl_noise_reader", "exact_log_odds", "model_log_odds"), "bits"),
        "excluded_mass": "fraction", "outcome_mass": "fraction", "n": "rows", "evidence": "observations",
        "rho": "1", "p": "probability", "coordinate": "deviations",
    },
)  # fmt: skip
