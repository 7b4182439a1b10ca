"""The numbers of the gradient laws: what each means and what it is compared with.

Slot: `{unit}` what is counted.
"""

from interp.statistics.quantities import Quantities, Quantity

LAWS = {
    "scores": "∂L/∂s_ij = α_ij (b_ij − E_α[b])", "values": "∂L/∂v_j = Σ_i α_ij u_i",
    "queries": "∂L/∂q_i = c Σ_j ∂L/∂s_ij k_j", "keys": "∂L/∂k_j = c Σ_i ∂L/∂s_ij q_i",
    "rows": "Σ_j ∂L/∂s_ij = 0",
}  # fmt: skip
STEPS = {
    "queries_and_keys": "one descent step on the layer's queries and keys of the same sequence",
    "model": "one descent step on all weights, for the mean loss of all sequences",
}
_MEASURES = {
    "moved": ("fraction", "share of the attention that moved, moved to values of positive advantage or away from "
              "others"),
    "signs": ("fraction", "share of pairs in which attention changes with the sign of the advantage"),
    "rho": ("1", "Spearman's correlation of advantage and change of attention"),
}  # fmt: skip
_METHOD, _NO_INTERVAL = "percentile bootstrap over {unit}s", "undefined in every resample"


def _residual(law: str, formula: str) -> Quantity:
    wrong = "the law with even attention" if law == "values" else "the law without centring b"
    return Quantity(
        "1", f"largest |autograd − law| over the largest |autograd|, {formula}", f"{wrong}, range over {{unit}}s",
        no_interval="an identity: the largest residual over all {unit}s", asks="below",
        is_headline=law in ("scores", "values"),
    )  # fmt: skip


def _agreement(measure: str, step: str) -> Quantity:
    unit, meaning = _MEASURES[measure]
    null = "advantages permuted within rows; the excess of whole {unit}s changes sign"
    meaning = f"{meaning}, over {STEPS[step]}; mean over heads"
    return Quantity(unit, meaning, null, _METHOD, _NO_INTERVAL, "either", is_headline=measure == "moved")


QUANTITIES = Quantities(
    {
        **{f"residual_{law}": _residual(law, formula) for law, formula in LAWS.items()},
        "first_order_values": Quantity(
            "1",
            "change of the loss over −η Σ_j ‖Σ_i α_ij u_i‖² when values move along their law; 1 is the law",
            "steps of the same length in a random direction, one a {unit}", _METHOD, _NO_INTERVAL, is_headline=True,
        ),
        **{f"{measure}_{step}": _agreement(measure, step) for step in STEPS for measure in _MEASURES},
    },
    columns={
        **{measure: unit for measure, (unit, _) in _MEASURES.items()},
        **dict.fromkeys(("law", "formula", "step"), "label"), **dict.fromkeys(("residual", "wrong_law"), "1"),
        "head": "index",
    },
)  # fmt: skip
