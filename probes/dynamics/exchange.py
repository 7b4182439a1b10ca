"""What attention patterns of a checkpoint do: the final network with them, and the checkpoint with the final ones.

With e(·) the error of a prediction (KL from the exact posterior in bits, or the loss on the text):

    excess     e(network of t) − e(end)                      what the training still has to learn after t
    patterns   e(end with the patterns of t) − e(end)        what is lost by the attention patterns of t alone
    network    e(t with the patterns of the end) − e(end)    what is lost by all the rest of t alone
    lead       network − patterns                            above 0 the patterns of t are further than the rest

All are paired by prompt: where patterns and the rest of a checkpoint are equally far, one prompt's difference is as
likely of either sign, which is the null of the lead. Distances between rows of attention say how much they moved; these
say what that does. One step stands for the training: the last checkpoint before the end whose excess is clear of 0 by
its interval, so that something is missing, and as little as the checkpoints resolve.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from interp.findings import Interval, Null, Scalar
from interp.statistics.estimate import band, percentile_interval
from interp.statistics.ratio import ratio
from interp.statistics.units import Units
from interp.table import Table, number_columns

from ..measures.sign_flips import flip_p, flipped_means

PARTS = ("excess", "patterns", "network", "lead")
METHOD = "percentile bootstrap over {}s, paired; checkpoints held fixed"
_NULL = "patterns and the rest of a checkpoint equally far"
MEANINGS = {
    "exchange_lead": "Error of the network of step {step} with the final attention patterns, less that of the final "
    "network with the patterns of step {step}: above 0 attention was there before the rest.",
    "patterns_share": "Share of the error still missing at step {step} that its attention patterns alone bring into "
    "the final network; 0: attention is done, 1: it is all that is missing.",
    "network_share": "Share of the error still missing at step {step} that is missing with the final attention "
    "patterns too; 1: everything but attention is missing.",
}  # fmt: skip
UNDEFINED = {
    name: words.replace(" of step {step}", "").replace(" at step {step}", "") for name, words in MEANINGS.items()
}


@dataclass(frozen=True)
class Exchange:
    """Errors by checkpoint and prompt, in bits: of the checkpoints, of both exchanges; and of the end."""

    steps: Int[np.ndarray, " checkpoint"]
    own: Float[np.ndarray, "checkpoint prompt"]
    with_patterns: Float[np.ndarray, "checkpoint prompt"]
    of_network: Float[np.ndarray, "checkpoint prompt"]
    end: Float[np.ndarray, " prompt"]
    units: Units

    def part(self, name: str) -> Float[np.ndarray, "checkpoint prompt"]:
        """One of `PARTS`, by checkpoint and prompt."""
        if name == "lead":
            return self.of_network - self.with_patterns
        return {"excess": self.own, "patterns": self.with_patterns, "network": self.of_network}[name] - self.end

    @property
    def told_at(self) -> int | None:
        """Which checkpoint stands for the training: the last whose excess is clear of 0; None where there is none."""
        low = band(self.units.resampled(self.part("excess").T))[0]
        clear = np.flatnonzero(low > 0)
        return int(clear[-1]) if len(clear) else None


def exchange_scalars(exchange: Exchange, n_flips: int, rng: np.random.Generator) -> dict[str, Scalar]:
    """The lead at the step that stands for the training, and the two shares of the excess."""
    at, units = exchange.told_at, exchange.units
    if at is None:
        reason = "no checkpoint is clearly worse than the end: there is nothing to compare"
        return unexchanged(reason, units.counted | {"underpowered": True})
    parts = {name: exchange.part(name)[at] for name in PARTS}
    signs = units.signs(n_flips, rng)
    flipped = flipped_means(parts["lead"][:, None], signs)[:, 0]
    about = units.counted
    words = {name: meaning.format(step=int(exchange.steps[at])) for name, meaning in MEANINGS.items()}
    method = METHOD.format(units.name)
    low, high = band(flipped)
    made = {
        "exchange_lead": Scalar.of(
            parts["lead"].mean(), "bits", units.mean_interval(parts["lead"], method, "no spread over prompts"),
            Null(_NULL, 0.0, (float(low), float(high))), p=float(flip_p(parts["lead"][:, None], signs)[0]),
            p_least=1 / (1 + n_flips), meaning=words["exchange_lead"], **about,
        )
    }  # fmt: skip
    for name in ("patterns", "network"):
        replicates = units.resampled(np.stack([parts[name], parts["excess"]], axis=1))  # [resample, 2]
        value = float(parts[name].mean() / parts["excess"].mean())
        bounds = percentile_interval(value, ratio(replicates[:, 0], replicates[:, 1]))
        made[f"{name}_share"] = Scalar.of(
            value, "1", Interval.of(bounds, method, "no resample defines it"), "a share: it is read by 0 and 1",
            meaning=words[f"{name}_share"], **about,
        )  # fmt: skip
    return made


def unexchanged(reason: str, about: Mapping[str, Any]) -> dict[str, Scalar]:
    """The scalars where nothing was exchanged, or nothing is missing."""
    units = {"exchange_lead": "bits"}
    return {
        name: Scalar.undefined(reason, units.get(name, "1"), meaning=meaning, **about)
        for name, meaning in UNDEFINED.items()
    }


def exchange_table(exchange: Exchange, error: str) -> Table:
    """One row a checkpoint: the three errors, and what follows from them, each with its interval over prompts."""
    columns: dict[str, np.ndarray] = {"step": exchange.steps}
    shown = {
        "own": exchange.own,
        "final_with_patterns": exchange.with_patterns,
        "with_final_patterns": exchange.of_network,
    }
    for name, values in {**shown, **{name: exchange.part(name) for name in PARTS}}.items():
        columns |= number_columns(name, values.mean(axis=1), band(exchange.units.resampled(values.T)))
    what = "KL(exact posterior || prediction)" if error == "kl" else "loss on the text"
    caption = (
        f"By checkpoint, {what}: of its own network, of the final network with its attention patterns, and of its "
        "network with the final patterns; less that of the end: excess, patterns, network; lead: network − patterns. "
        f"95 % intervals over {exchange.units.name}s, paired."
    )
    return Table(columns, {"step": "steps"} | dict.fromkeys((*shown, *PARTS), "bits"), caption)
