"""The numbers and tables of the learning curves.

The speed-up of an arm is n_steps over the steps it needs to the final loss of plain descent; without one where a seed
never gets there. As published, loss and steps are averaged over seeds first; paired, every seed has its own threshold.
Losses are in bits; tables repeat them in nats, which the published script prints and calls bits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.findings import Findings, Null, Scalar
from interp.information import BITS_PER_NAT
from interp.statistics.intervals import TMean, t_half_width, t_mean
from interp.table import LABEL, Table, number_columns

from ..over_seeds import geometric, scalar_over_seeds
from .arms import Arm, Curves, LearningCurve, Start, kept_steps
from .process import StickyChain

BASE = "sgd"
"""The arm that the others are compared with."""

_EXCESS = ("sgd", "w_v", "all", "m_step")
"""Arms whose distance from the least loss is a scalar; the table has it for all."""

_METHOD = "t over seeds on the log scale"


def steps_to(loss: Float[np.ndarray, "step seed"], threshold: Float[np.ndarray, " seed"]) -> Float[np.ndarray, " seed"]:
    """The first step at which each seed's loss is at most its threshold; NaN where it never is."""
    below = loss <= threshold
    return np.where(below.any(axis=0), below.argmax(axis=0).astype(np.float64), np.nan)


def published_speedup(steps: Float[np.ndarray, " seed"], n_steps: int) -> TMean:
    """n_steps / mean steps, with the t interval of the mean on the log scale."""
    mean = float(steps.mean())
    half, value = float(t_half_width(steps)) / mean, n_steps / mean
    return TMean(value, value * float(np.exp(-half)), value * float(np.exp(half)), p=np.nan)


def findings_of(name: str, arms: Sequence[Arm], curves: Curves, start: Start) -> Findings:
    """Scalars, the tables `arms` and `curves`, and notes."""
    n_steps = len(curves[BASE].loss_nats) - 1
    final = curves[BASE].loss_nats[-1]
    pooled = {a.name: steps_to(curves[a.name].loss_nats, np.full(len(final), final.mean())) for a in arms}
    own = {a.name: steps_to(curves[a.name].loss_nats, final) for a in arms}
    base, scalars = np.full(len(final), n_steps), {}
    for arm in arms[1:]:
        scalars[f"speedup_{arm.name}"] = _times(
            base, pooled[arm.name], "plain descent by definition",
            f"speed-up of {arm.meaning}: {n_steps} over the mean number of steps to plain descent's mean final loss, "
            "as published", is_published=True,
        )  # fmt: skip
        scalars[f"paired_speedup_{arm.name}"] = _times(
            base, own[arm.name], "plain descent, in every seed exactly",
            f"paired speed-up of {arm.meaning}: geometric mean over seeds of {n_steps} over the steps to plain "
            "descent's final loss of the same seed",
        )  # fmt: skip
    for other, words in {"w_o": "W_O", "w_qk": "W_Q and W_K"}.items():
        scalars[f"w_v_over_{other}"] = _times(
            own[other], own["w_v"], "a larger rate helps equally wherever it acts",
            f"speed-up of the larger rate on W_V over that of the same rate on {words}, same seeds; above 1 W_V gains "
            "more",
        )  # fmt: skip
    for arm in arms:
        if arm.name in _EXCESS:
            scalars |= _distances(arm, curves[arm.name], start)
    tables = {"arms": _arms_table(arms, curves, pooled, scalars, start), "curves": _curves_table(arms, curves, start)}
    names = ("speedup_w_v", "speedup_w_o", "speedup_w_qk", "speedup_all", "w_v_over_w_o", "w_v_over_w_qk")
    headline = (*names, "excess_loss_sgd", "excess_loss_w_v")
    return Findings(name, scalars, tables, notes=_notes(scalars, curves, start.chain), headline=headline)


def _times(above: np.ndarray, below: np.ndarray, null: str, meaning: str, *, is_published: bool = False) -> Scalar:
    """The ratio of two numbers of steps: the geometric mean over seeds, or as published."""
    n, steps = len(below), above + below
    if np.isnan(steps).any() or not (below.any() if is_published else (above * below).all()):
        reason = f"{int(np.isnan(steps).sum())} of {n} seeds never reached the loss of plain descent"
        return Scalar.undefined(reason, n=n, n_unit="seed", meaning=meaning)
    found = published_speedup(below, int(above[0])) if is_published else geometric(t_mean(np.log(above / below)))
    equal = "all seeds took the same number of steps"
    return scalar_over_seeds(found, "1", Null(null, 1.0, (1.0, 1.0)), n, meaning, method=_METHOD, no_spread=equal)


def _distances(arm: Arm, curve: LearningCurve, start: Start) -> dict[str, Scalar]:
    """The final loss above the true chain's on the same symbols, and the predictive entropy above the least."""
    least, uniform = start.chain.next_entropy_bits, start.chain.uniform_bits
    excess = curve.loss_nats[-1] * BITS_PER_NAT - start.surprise_bits
    gap = curve.entropy_nats[-1] * BITS_PER_NAT - least
    # a uniform prediction always loses log2 of the symbols; the chain's own loss varies with the sequence
    floor = uniform - start.surprise_bits
    found = {}
    for name, values, against, meaning in (
        (f"excess_loss_{arm.name}", excess, floor, "training loss at the end above the true chain's on these symbols"),
        (f"entropy_gap_{arm.name}", gap, np.full(len(gap), uniform - least), "mean predictive entropy at the end "
         "above H(Y_t | Y_t-1)"),
    ):  # fmt: skip
        band = float(against.min()), float(against.max())
        null = Null("uniform prediction (range over seeds)", float(against.mean()), band)
        found[name] = scalar_over_seeds(
            replace(t_mean(values), p=np.nan),  # the null is another than 0
            "bits", null, len(values), f"{meaning}: {arm.meaning}", method="t over seeds", no_spread="a seed diverged",
        )  # fmt: skip
    return found


_ARM_UNITS = {
    "arm": LABEL, "rate_w_q": "1", "rate_w_k": "1", "rate_w_v": "1", "rate_w_o": "1", "rule": LABEL,
    "loss_bits": "bits", "loss_nats": "nats", "loss_sd_nats": "nats", "fresh_loss_bits": "bits",
    "excess_bits": "bits", "entropy_bits": "bits", "entropy_nats": "nats", "accuracy": "fraction",
    "steps": "steps", "steps_sd": "steps", "n_reached": "seeds", "speedup": "1", "paired": "1",
}  # fmt: skip


def _arms_table(
    arms: Sequence[Arm], curves: Curves, pooled: Mapping[str, np.ndarray], scalars: Mapping[str, Scalar], start: Start
) -> Table:
    rows, n_steps, least = [], len(curves[BASE].loss_nats) - 1, start.chain.next_entropy_bits
    for arm in arms:
        curve, steps = curves[arm.name], pooled[arm.name]
        loss, reached = curve.loss_nats[-1], steps[~np.isnan(steps)]
        row: dict[str, Any] = {
            "arm": arm.name, "rule": arm.rule, "loss_bits": loss.mean() * BITS_PER_NAT, "loss_nats": loss.mean(),
            "loss_sd_nats": _sd(loss), "fresh_loss_bits": curve.fresh_loss_nats[-1].mean() * BITS_PER_NAT,
            "excess_bits": (loss * BITS_PER_NAT - start.surprise_bits).mean(),
            "entropy_bits": curve.entropy_nats[-1].mean() * BITS_PER_NAT,
            "entropy_nats": curve.entropy_nats[-1].mean(), "accuracy": curve.accuracy[-1].mean(),
            "steps": reached.mean() if len(reached) else np.nan, "steps_sd": _sd(reached), "n_reached": len(reached),
        }  # fmt: skip
        row |= {f"rate_{name}": rate for name, rate in arm.rates.items()}
        for column, scalar in (("speedup", f"speedup_{arm.name}"), ("paired", f"paired_speedup_{arm.name}")):
            found = scalars.get(scalar)
            bounds = (found.interval if found else None) or (np.nan, np.nan)
            row |= number_columns(column, found.value if found else 1.0, bounds)
        rows.append(row)
    caption = (
        f"Arms after {n_steps} steps, means over seeds (sd: over seeds); the sequence has {start.inputs.shape[1]} "
        f"predictions and H(Y_t | Y_t-1) = {least:.4f} bits. Steps: to plain descent's mean final loss, over the seeds "
        "that reach it. fresh: on a sequence that was not trained on."
    )
    return Table.from_rows(rows, _ARM_UNITS, caption)


def _sd(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else float("nan")


def _curves_table(arms: Sequence[Arm], curves: Curves, start: Start) -> Table:
    kept, parts = kept_steps(len(curves[BASE].loss_nats) - 1), []
    for name in (arm.name for arm in arms):
        curve = curves[name]
        loss, entropy, right = (of[kept].ravel() for of in (curve.loss_nats, curve.entropy_nats, curve.accuracy))
        parts.append({
            "arm": name, "seed": np.tile(start.seeds, len(kept)), "step": np.repeat(kept, len(start.seeds)),
            "loss_bits": loss * BITS_PER_NAT, "loss_nats": loss,
            "fresh_loss_bits": curve.fresh_loss_nats.ravel() * BITS_PER_NAT, "entropy_bits": entropy * BITS_PER_NAT,
            "accuracy": right,
        })  # fmt: skip
    units = {"seed": LABEL, "step": "steps"} | {name: _ARM_UNITS[name] for name in parts[0] if name in _ARM_UNITS}
    return Table.stacked(parts, units, "Training of every arm and seed, after the steps kept.")


def _verdict(scalars: Mapping[str, Scalar]) -> str:
    against = [scalars[name] for name in ("w_v_over_w_o", "w_v_over_w_qk")]
    if all(s.interval is not None and s.interval[0] > 1 for s in against):
        return "The gain is larger on W_V than on any other matrix."
    if any(s.value <= 1 or (s.interval is not None and s.interval[0] <= 1 <= s.interval[1]) for s in against):
        return (
            "At least one other matrix gains as much or more from the same rate: what is measured is the effect of a "
            "larger learning rate, and no evidence that values act as slow prototypes."
        )
    return "Not every seed got there in every arm: whether values gain more than other matrices is left open."


def _notes(scalars: Mapping[str, Scalar], curves: Curves, chain: StickyChain) -> tuple[str, ...]:
    def times(arm: str) -> str:
        value = scalars[f"speedup_{arm}"].value
        return f"{value:.2f}" if np.isfinite(value) else "none for every seed"

    least, uniform = chain.next_entropy_bits, chain.uniform_bits
    end = curves[BASE].loss_nats[-1].mean() * BITS_PER_NAT
    overfit = [name for name, c in curves.items() if c.fresh_loss_nats[-1].mean() * BITS_PER_NAT > uniform]
    worse = (
        f"There these arms end above a uniform prediction, so what they learnt fast is noise: {', '.join(overfit)}."
        if overfit
        else "There no arm ends above a uniform prediction."
    )
    return (
        f"Speed-up with the larger rate on W_V, the published comparison: {times('w_v')}; on W_O: {times('w_o')}; on "
        f"W_Q and W_K: {times('w_qk')}; on all four, which is plain descent at another rate: {times('all')}. "
        f"{_verdict(scalars)}",
        f"Plain descent ends at {end:.3f} bits; the least is {least:.3f}, a uniform prediction loses {uniform:.3f}. "
        "A speed-up is how fast an arm comes to where plain descent stopped, wherever that is.",
        "One pass a step in every arm, so steps compare like floating-point operations; the M-step adds the solution "
        "of two small linear systems a seed.",
        f"Losses are on the sequence that is trained on, as published; columns fresh_loss are on another one. {worse}",
        "p and intervals are of each arm by itself; the arms share seeds and are not independent.",
    )
