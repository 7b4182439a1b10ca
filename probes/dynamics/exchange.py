"""Effects of exchanged attention patterns: a checkpoint's in the final network, and the final ones in the checkpoint.

With e(·) the error of a prediction (KL from the exact posterior in bits, or the loss on the text):

    excess     e(network of t) − e(end)                      what the training still has to learn after t
    patterns   e(end with the patterns of t) − e(end)        the error due to the attention patterns of t
    network    e(t with the patterns of the end) − e(end)    the error due to all the rest of t
    lead       network − patterns                            above 0 the patterns of t are closer to final than the rest

All are paired by prompt: where patterns and the rest of a checkpoint are equally close, the sign of a prompt's
difference is random, which is the null of the lead. One step represents the training: the last checkpoint before the
end whose excess has an interval above 0.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from interp.statistics.estimates import Estimates
from interp.statistics.intervals import band
from interp.statistics.ratio import ratio
from interp.statistics.units import Units
from interp.table import Table

from ..measures.sign_flips import flip_p, flipped_means
from .quantities import QUANTITIES


@dataclass(frozen=True)
class Exchange:
    """Errors by checkpoint and prompt, in bits: of the checkpoints, of both exchanges; and of the end."""

    steps: Int[np.ndarray, " checkpoint"]
    own: Float[np.ndarray, "checkpoint prompt"]
    with_patterns: Float[np.ndarray, "checkpoint prompt"]
    of_network: Float[np.ndarray, "checkpoint prompt"]
    end: Float[np.ndarray, " prompt"]
    units: Units

    @property
    def parts(self) -> dict[str, Float[np.ndarray, "checkpoint prompt"]]:
        """Excess, patterns, network and lead."""
        errors = {"excess": self.own, "patterns": self.with_patterns, "network": self.of_network}
        return {name: of - self.end for name, of in errors.items()} | {"lead": self.of_network - self.with_patterns}


def exchange_numbers(exchange: Exchange, n_flips: int, rng: np.random.Generator) -> dict[str, Estimates]:
    """The lead at the step that represents the training, and the two shares of the excess."""
    units, parts = exchange.units, exchange.parts
    clear = np.flatnonzero(band(units.resampled(parts["excess"].T))[0] > 0)
    if not len(clear):
        return unexchanged("no checkpoint is clearly worse than the end: there is nothing to compare", units)
    step = str(int(exchange.steps[clear[-1]]))
    parts = {name: of[clear[-1]] for name, of in parts.items()}
    lead, signs = parts["lead"][:, None], units.signs(n_flips, rng)
    low, high = band(flipped_means(lead, signs)[:, 0])
    found = units.estimates(lead, step=step).against(np.array([[0.0], [low], [high]]), flip_p(lead, signs))
    numbers = {"exchange_lead": replace(found, about={**found.about, "p_least": 1 / (1 + n_flips)})}
    for name in ("patterns", "network"):
        together = np.stack([parts[name], parts["excess"]], axis=1)
        share = ratio(*units.resampled(together).T)
        numbers[f"{name}_share"] = Estimates.resampled(
            ratio(*together.mean(axis=0)[:, None]), share[:, None], about=units.counted, words=found.words
        )
    return numbers


def unexchanged(reason: str, units: Units) -> dict[str, Estimates]:
    """The numbers where nothing was exchanged, or no checkpoint has an excess."""
    nothing = Estimates.undefined(reason, about=units.counted, words={"step": "t"})
    return dict.fromkeys(("exchange_lead", "patterns_share", "network_share"), nothing)


def exchange_table(exchange: Exchange, error: str) -> Table:
    """One row per checkpoint: the three errors and their differences, with intervals over prompts."""
    shown = {
        "own": exchange.own, "final_with_patterns": exchange.with_patterns, "with_final_patterns": exchange.of_network,
        **exchange.parts,
    }  # fmt: skip
    what = "KL(exact posterior || prediction)" if error == "kl" else "loss on the text"
    caption = (
        f"By checkpoint, {what}: of its own network, of the final network with its attention patterns, and of its "
        "network with the final patterns; less that of the end: excess, patterns, network; lead: network − patterns. "
        f"95 % intervals over {exchange.units.name}s, paired."
    )
    columns = {name: exchange.units.estimates(values.T) for name, values in shown.items()}
    return QUANTITIES.table({"step": exchange.steps, **columns}, caption)
