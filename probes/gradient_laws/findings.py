"""The findings of the study `gradient_laws`: residuals beside wrong laws, first-order changes, agreement by step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.findings import Findings, Interval, Null, Scalar
from interp.statistics.estimate import band, mean_and_band, null_from_permutations, percentile_interval
from interp.statistics.resampling import bootstrap_weights
from interp.table import LABEL, Table, number_columns

from .alignment import Aligned, alignment_findings
from .routing import MEASURES, Pairs, Routed, sampled_pairs

LAWS = {
    "scores": "∂L/∂s_ij = α_ij (b_ij − E_α[b])", "values": "∂L/∂v_j = Σ_i α_ij u_i",
    "queries": "∂L/∂q_i = c Σ_j ∂L/∂s_ij k_j", "keys": "∂L/∂k_j = c Σ_i ∂L/∂s_ij q_i",
    "rows": "Σ_j ∂L/∂s_ij = 0",
}  # fmt: skip
_WRONG = {"values": "the law with even attention"}
_STEPS = {
    "queries_and_keys": "one descent step on the layer's queries and keys of the same sequence",
    "model": "one descent step on all weights, for the mean loss of all sequences",
}
_MEANINGS = {
    "moved": "share of the attention that moved, moved to values of positive advantage or away from others",
    "signs": "share of pairs in which attention changes with the sign of the advantage",
    "rho": "Spearman's correlation of advantage and change of attention",
}
_UNITS = {"moved": "fraction", "signs": "fraction", "rho": "1"}
_N_SHOWN = 1500


@dataclass(frozen=True)
class Measured:
    """What was read of one layer, one entry a sequence; `first_order` along the value law and a random direction."""

    model: str
    layer: int
    heads: tuple[int, ...]
    unit: str
    residuals: Sequence[Mapping[str, float]]
    wrong: Sequence[Mapping[str, float]]
    first_order: Float[np.ndarray, "unit direction"]
    loss_bits: Float[np.ndarray, " unit"]
    aligned: Aligned
    routed: Mapping[str, Routed]
    pairs: Mapping[str, Sequence[Pairs]]


def findings_of(measured: Measured, n_bootstrap: int, rng: np.random.Generator) -> Findings:
    """Scalars, the tables `laws`, `by_head`, `alignment` and `pairs`, notes."""
    n = len(measured.loss_bits)
    weights = bootstrap_weights(np.arange(n), None, n_bootstrap, rng)
    weights = weights / weights.sum(axis=1, keepdims=True)
    scalars = {f"residual_{law}": _residual(measured, law) for law in LAWS}
    scalars["first_order_values"] = _first_order(measured, weights)
    for step, routed in measured.routed.items():
        for place, measure in enumerate(MEASURES):
            scalars[f"{measure}_{step}"] = _agreement(measured, step, routed, place, weights)
    alignments, alignment = alignment_findings(measured.aligned, weights, measured.unit, rng)
    scalars |= alignments
    tables = {
        "laws": _laws_table(measured),
        "by_head": _by_head_table(measured, weights),
        "alignment": alignment,
        "pairs": Table(
            sampled_pairs(measured.pairs, _N_SHOWN, rng), {"step": LABEL, "advantage": "bits", "change": "fraction"},
            f"Advantage of a key and change of the attention to it: up to {_N_SHOWN} random pairs of each step.",
        ),
    }  # fmt: skip
    steps = [f"moved_{step}" for step in measured.routed]
    headline = ("residual_scores", "residual_values", "first_order_values", *steps)
    return Findings("gradient_laws", scalars, tables, notes=_notes(measured), headline=headline)


def _about(measured: Measured, meaning: str) -> dict[str, Any]:
    return {"n": len(measured.loss_bits), "n_unit": measured.unit, "meaning": meaning}


def _mean(by_unit: np.ndarray, measured: Measured, weights: np.ndarray) -> tuple[float, Interval | str]:
    """The mean over sequences with its interval."""
    value, method = float(by_unit.mean()), f"percentile bootstrap over {measured.unit}s"
    return value, Interval.of(percentile_interval(value, weights @ by_unit), method, "undefined in every resample")


def _residual(measured: Measured, law: str) -> Scalar:
    wrong = np.array([each[law] for each in measured.wrong])
    words = _WRONG.get(law, "the law without centring b")
    return Scalar.of(
        max(each[law] for each in measured.residuals), "1",
        f"an identity: the largest residual over all {measured.unit}s",
        Null(f"{words}, range over {measured.unit}s", float(wrong.mean()), (float(wrong.min()), float(wrong.max()))),
        **_about(measured, f"largest |autograd − law| over the largest |autograd|, {LAWS[law]}"),
    )  # fmt: skip


def _first_order(measured: Measured, weights: np.ndarray) -> Scalar:
    ratios, random = measured.first_order.T
    value, bounds = _mean(ratios, measured, weights)
    return Scalar.of(
        value, "1", bounds,
        null_from_permutations(f"steps of the same length in a random direction, one a {measured.unit}", random),
        **_about(measured, "change of the loss over −η Σ_j ‖Σ_i α_ij u_i‖² when values move along their law; 1 is "
                           "the law"),
    )  # fmt: skip


def _agreement(measured: Measured, step: str, routed: Routed, place: int, weights: np.ndarray) -> Scalar:
    measure = MEASURES[place]
    by_unit, expected = (each[:, place].mean(axis=1) for each in (routed.observed, routed.expected))
    about = _about(measured, f"{_MEANINGS[measure]}, over {_STEPS[step]}; mean over heads")
    if np.isnan(by_unit).any():
        return Scalar.undefined(f"in some {measured.unit}s no attention moved", _UNITS[measure], **about)
    value, bounds = _mean(by_unit, measured, weights)
    p, flipped = routed.test(by_unit[:, None], expected[:, None])
    name = f"advantages permuted within rows; the excess of whole {measured.unit}s changes sign"
    return Scalar.of(value, _UNITS[measure], bounds, null_from_permutations(name, flipped[:, 0]), p=p[0], **about)


def _laws_table(measured: Measured) -> Table:
    rows = [
        {
            "law": law, "formula": formula,
            "residual": max(each[law] for each in measured.residuals),
            "wrong_law": min(each[law] for each in measured.wrong),
        }
        for law, formula in LAWS.items()
    ]  # fmt: skip
    caption = (
        f"Layer {measured.layer}: largest residual of each law over {len(measured.loss_bits)} {measured.unit}s, "
        "relative to the largest gradient, and the smallest one of a law that is nearly right (b not centred; even "
        "attention)."
    )
    return Table.from_rows(rows, {"law": LABEL, "formula": LABEL, "residual": "1", "wrong_law": "1"}, caption)


def _by_head_table(measured: Measured, weights: np.ndarray) -> Table:
    """Every measure by step and head; p over the largest of all heads of a step, under the same signs."""
    rows: list[dict[str, Any]] = []
    for step, routed in measured.routed.items():
        means = routed.observed.mean(axis=0)
        tested = [routed.test(routed.observed[:, i], routed.expected[:, i]) for i in range(len(MEASURES))]
        p = np.stack([each for each, _ in tested])
        bounds = band(np.einsum("rn,nmh->rmh", weights, routed.observed))  # [bound, measure, head]
        null = mean_and_band(np.stack([flipped for _, flipped in tested], axis=1))  # [mean and bounds, measure, head]
        for place, head in enumerate(measured.heads):
            row: dict[str, Any] = {"step": step, "head": head}
            for i, measure in enumerate(MEASURES):
                row |= number_columns(measure, means[i, place], bounds[:, i, place], null[:, i, place], p[i, place])
            rows.append(row)
    caption = f"Layer {measured.layer}, head by head; p corrected over the heads of a step (flipped signs)."
    return Table.from_rows(rows, {"step": LABEL, "head": "index", **_UNITS}, caption)


def _notes(measured: Measured) -> tuple[str, ...]:
    return (
        f"Layer {measured.layer} of {measured.model}, {len(measured.loss_bits)} {measured.unit}s with a mean loss of "
        f"{measured.loss_bits.mean():.4f} bits; a copy of the model in float64, gradients through its own kernel.",
        "Residuals are of identities: above about 1e-10 something is read wrongly. They are no evidence for any "
        "account of what training does.",
        "The law is of scores. A step on weights or on queries and keys moves all scores of a key together, and α is "
        "renormalised, so agreement below 1 is no fault.",
        "Primary: moved. signs and rho are exploratory.",
    )
