"""The findings of the study `gradient_laws`: residuals beside wrong laws, first-order changes, agreement by step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from interp.findings import Findings
from interp.statistics.estimates import Estimates
from interp.statistics.resampling import bootstrap_weights
from interp.table import Table

from .alignment import Aligned, alignments
from .quantities import LAWS, QUANTITIES
from .routing import MEASURES, Pairs, Routed, sampled_pairs

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
    found = {f"residual_{law}": _residual(measured, law) for law in LAWS}
    ratios, random = measured.first_order.T[:, :, None]
    found["first_order_values"] = _mean(ratios, weights).exchanged(random, asks="nothing")
    for step, routed in measured.routed.items():
        found |= {f"{name}_{step}": _agreement(measured, routed, i, weights) for i, name in enumerate(MEASURES)}
    aligned, alignment = alignments(measured.aligned, weights, measured.unit, rng)
    about, words = {"n": n, "n_unit": measured.unit}, {"unit": measured.unit}
    quantities = QUANTITIES.filled(**words)
    pairs = f"Advantage of a key and change of the attention to it: up to {_N_SHOWN} random pairs of each step."
    return quantities.findings(
        "gradient_laws",
        quantities.scalars({name: replace(of, about=about) for name, of in (found | aligned).items()}),
        {
            "laws": _laws_table(measured), "by_head": _by_head_table(measured, weights), "alignment": alignment,
            "pairs": quantities.table(sampled_pairs(measured.pairs, _N_SHOWN, rng), pairs),
        },
        notes=_notes(measured),
    )  # fmt: skip


def _mean(by_unit: Float[np.ndarray, "unit place"], weights: np.ndarray) -> Estimates:
    """Means over sequences with their bootstrap intervals."""
    return Estimates.resampled(by_unit.mean(axis=0), weights @ by_unit)


def _residual(measured: Measured, law: str) -> Estimates:
    wrong = np.array([each[law] for each in measured.wrong])
    value = np.array([max(each[law] for each in measured.residuals)])
    return Estimates(value).against(np.array([[wrong.mean()], [wrong.min()], [wrong.max()]]))


def _agreement(measured: Measured, routed: Routed, measure: int, weights: np.ndarray) -> Estimates:
    """The mean over heads."""
    by_unit, expected = (each[:, measure].mean(axis=1, keepdims=True) for each in (routed.observed, routed.expected))
    if np.isnan(by_unit).any():
        return Estimates.undefined(f"in some {measured.unit}s no attention moved")
    p, flipped = routed.test(by_unit, expected)
    return _mean(by_unit, weights).exchanged(flipped, p)


def _laws_table(measured: Measured) -> Table:
    rows = [
        {
            "law": law, "formula": formula, "residual": max(each[law] for each in measured.residuals),
            "wrong_law": min(each[law] for each in measured.wrong),
        }
        for law, formula in LAWS.items()
    ]  # fmt: skip
    return QUANTITIES.from_rows(
        rows,
        list(rows[0]),
        f"Layer {measured.layer}: largest residual of each law over {len(measured.loss_bits)} {measured.unit}s, "
        "relative to the largest gradient, and the smallest one of a law that is nearly right (b not centred; even "
        "attention).",
    )


def _by_head_table(measured: Measured, weights: np.ndarray) -> Table:
    """Every measure by step and head; p over the largest of all heads of a step, under the same signs."""
    parts = []
    for step, routed in measured.routed.items():
        heads = np.array(measured.heads)
        columns: dict[str, np.ndarray | Estimates] = {"step": np.full(len(heads), step), "head": heads}
        for i, name in enumerate(MEASURES):
            p, flipped = routed.test(routed.observed[:, i], routed.expected[:, i])
            columns[name] = _mean(routed.observed[:, i], weights).exchanged(flipped, p)
        parts.append(columns)
    caption = f"Layer {measured.layer}, head by head; p corrected over the heads of a step (flipped signs)."
    return QUANTITIES.stacked(parts, caption, head="index")


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
