"""The readouts of all checkpoints as arrays, and the curves that are compared."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from interp.probe import Readout
from interp.statistics.units import Units

from .exchange import Exchange
from .read import ERRORS, STATISTICS
from .training_curves import Curve

FRAME, VALUES = "frame", "values"
BY_PROMPT = ("tv", "js", "entropy", "value_distance", "error.", "exchange.")
"""How the names of readouts begin that have a value for every prompt."""


@dataclass(frozen=True)
class Training:
    """Checkpoints in order; `read` are their readouts (module `read`), checkpoints in front, NaN where one lacks it.

    `end` are the errors of the end of the training, by prompt.
    """

    steps: Int[np.ndarray, " checkpoint"]
    units: Units
    layer: int
    read: Mapping[str, np.ndarray]
    end: Mapping[str, Float[np.ndarray, " prompt"]]

    @classmethod
    def of(cls, under: Mapping[str, Readout], end: Mapping[str, np.ndarray], units: Units, layer: int) -> "Training":
        """All readouts; prompts without an error (texts of one token) are left out."""
        readouts = [_spread(readout, units.n) for readout in under.values()]
        n_layers = readouts[0]["drift"].shape[0]
        known = {name: array for readout in readouts for name, array in readout.items()}
        read = {name: np.stack([r.get(name, np.full_like(array, np.nan)) for r in readouts])
                for name, array in known.items()}  # fmt: skip
        errors = [array for name, array in read.items() if name.startswith("error.")]
        kept = ~np.isnan(np.concatenate([*errors, *(array[None] for array in end.values())])).any(axis=0)
        read = {name: array[:, kept] if name.startswith(BY_PROMPT) else array for name, array in read.items()}
        steps = np.array([int(step) for step in under])
        return cls(steps, _only(units, kept), layer % n_layers, read, {name: x[kept] for name, x in end.items()})

    @property
    def errors(self) -> dict[str, Float[np.ndarray, "checkpoint prompt"]]:
        return {name: self.read[f"error.{name}"] for name in ERRORS if f"error.{name}" in self.read}

    @property
    def statistics(self) -> dict[str, Float[np.ndarray, "checkpoint entry layer"]]:
        return {name: self.read[f"stat.{name}"] for name in STATISTICS if f"stat.{name}" in self.read}

    @property
    def n_layers(self) -> int:
        return self.read["drift"].shape[1]

    @property
    def error(self) -> str:
        """The error of the headline."""
        return "entropy_error" if "entropy_error" in self.errors else "loss"

    @property
    def exchange(self) -> Exchange | None:
        """The errors with exchanged patterns; None where nothing was exchanged."""
        if "exchange.patterns" not in self.read:
            return None
        name, patterns, network = self.exchanged_error, self.read["exchange.patterns"], self.read["exchange.network"]
        has = ~np.isnan(np.concatenate([patterns, network])).any(axis=0)
        return Exchange(
            self.steps, self.errors[name][:, has], patterns[:, has], network[:, has], self.end[name][has],
            _only(self.units, has),
        )  # fmt: skip

    @property
    def exchanged_error(self) -> str:
        """The error of the exchange."""
        return "kl" if "kl" in self.errors else "loss"

    @cached_property
    def curves(self) -> dict[str, Curve]:
        """The frame (if attention rows were kept), and what it is compared with: errors, output and values."""
        tv, values = self.read["tv"], self.read["value_distance"][..., self.layer]
        what = "total variation of attention to the end's, mean over layers and heads"
        followed = {FRAME: (tv.mean(axis=(2, 3)), what)}
        followed |= {name: (of - self.end[name], ERRORS[name]) for name, of in self.errors.items()}
        followed[VALUES] = values, f"distance of the values of layer {self.layer} from the end's"
        weights = self.units.weights
        return {name: Curve.of(of.T, weights, what) for name, (of, what) in followed.items() if not np.isnan(of).any()}


def _spread(readout: Readout, n_prompts: int) -> dict[str, np.ndarray]:
    """A readout with exchanges of all prompts, NaN for those without."""
    found = dict(readout)
    if (prompts := found.pop("exchange.prompts", None)) is not None:
        for name in ("exchange.patterns", "exchange.network"):
            found[name] = np.full(n_prompts, np.nan)
            found[name][prompts] = readout[name]
    return found


def _only(units: Units, kept: Any) -> Units:
    """Some of the prompts, and the resamples that contain any of them."""
    weights = units.weights[:, kept]
    weights = weights[weights.sum(axis=1) > 0]
    return replace(units, index=units.index[kept], weights=weights, cluster=units.cluster[kept])
