"""A training as its checkpoints were read: arrays by checkpoint, and the courses that are compared."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from interp.probe import Readout
from interp.statistics.units import Units

from .exchange import Exchange
from .frame import MATRICES
from .read import ERRORS, STATISTICS
from .training_curves import Curve

FRAME, VALUES = "frame", "values"


@dataclass(frozen=True)
class Training:
    """Checkpoints in order; arrays have them in front.

    `by_prompt` are readouts that are averaged over prompts, `[checkpoint, prompt, ...]`; `finished` have their
    interval and null, `[checkpoint, entry, layer]`; `of_weights` `[checkpoint, layer, ...]`, NaN where there is none
    before. `errors` are `[checkpoint, prompt]`, `end` the same of the end of the training; `exchanged` are the errors
    with exchanged attention patterns, NaN on prompts where there was no exchange, none where nothing was exchanged.
    """

    steps: Int[np.ndarray, " checkpoint"]
    units: Units
    layer: int
    by_prompt: Mapping[str, np.ndarray]
    errors: Mapping[str, Float[np.ndarray, "checkpoint prompt"]]
    end: Mapping[str, Float[np.ndarray, " prompt"]]
    finished: Mapping[str, Float[np.ndarray, "checkpoint entry layer"]]
    of_weights: Mapping[str, np.ndarray]
    shown: Mapping[str, np.ndarray]
    exchanged: Mapping[str, Float[np.ndarray, "checkpoint prompt"]]

    @classmethod
    def of(cls, under: Mapping[str, Readout], end: Mapping[str, np.ndarray], units: Units, layer: int) -> "Training":
        """Everything the readouts hold; prompts without an error (texts of one token) are left out of all courses."""
        read = list(under.values())
        n_layers = read[0]["drift"].shape[0]
        by_prompt = _stacked(read, ("tv", "js", "tv_exchanged", "entropy", "value_distance"))
        errors = {name: np.stack([r[f"error.{name}"] for r in read]) for name in ERRORS if f"error.{name}" in read[0]}
        exchanged = {}
        if "exchange.patterns" in read[0]:
            exchanged = {name: _exchanged(read, name, units.n) for name in ("patterns", "network")}
        kept = ~np.isnan(np.concatenate([*errors.values(), *(e[None] for e in end.values())])).any(axis=0)
        units = replace(
            units, index=units.index[kept], weights=_alive(units.weights[:, kept]), cluster=units.cluster[kept]
        )
        finished = {
            name: np.stack([_full(r[f"stat.{name}"], n_layers) for r in read])
            for name in STATISTICS
            if f"stat.{name}" in read[0]
        }
        nothing = np.full(n_layers, np.nan)
        weights = {"drift": np.stack([r["drift"] for r in read])}
        for matrix in MATRICES:
            weights[f"away.{matrix}"] = np.stack([r[f"away.{matrix}"] for r in read])
            weights[f"update.{matrix}"] = np.stack([r.get(f"update.{matrix}", nothing) for r in read])
        return cls(
            np.array([int(step) for step in under]), units, layer % n_layers,
            {name: x[:, kept] for name, x in by_prompt.items()}, {name: x[:, kept] for name, x in errors.items()},
            {name: x[kept] for name, x in end.items()}, finished, weights, _stacked(read, ("coordinates", "map")),
            {name: x[:, kept] for name, x in exchanged.items()},
        )  # fmt: skip

    @property
    def n_layers(self) -> int:
        return self.of_weights["drift"].shape[1]

    @property
    def error(self) -> str:
        """The error that the headline is about."""
        return "entropy_error" if "entropy_error" in self.errors else "loss"

    @property
    def exchange(self) -> Exchange | None:
        """What the patterns of every checkpoint do, and the rest of it; None where nothing was exchanged."""
        if not self.exchanged:
            return None
        name = self.exchanged_error
        with_patterns, of_network = self.exchanged["patterns"], self.exchanged["network"]
        has = ~np.isnan(np.concatenate([with_patterns, of_network])).any(axis=0)
        alive = _alive(self.units.weights[:, has])
        units = replace(self.units, index=self.units.index[has], weights=alive, cluster=self.units.cluster[has])
        return Exchange(
            self.steps, self.errors[name][:, has], with_patterns[:, has], of_network[:, has], self.end[name][has], units
        )

    @property
    def exchanged_error(self) -> str:
        """The error that exchanges are told in."""
        return "kl" if "kl" in self.errors else "loss"

    @property
    def frame(self) -> Curve | None:
        """Total variation to the end's attention, mean over layers and heads; None where no rows were kept."""
        tv = self.by_prompt["tv"].mean(axis=(2, 3))
        what = "total variation of attention to the end's, mean over layers and heads"
        return None if np.isnan(tv).any() else Curve(tv.T, what)

    def frame_by_layer(self) -> dict[str, Curve]:
        """The same for each layer; empty where no rows were kept."""
        if self.frame is None:
            return {}
        tv = self.by_prompt["tv"].mean(axis=3)
        return {
            f"{FRAME}, layer {layer}": Curve(tv[..., layer].T, f"the same at layer {layer}")
            for layer in range(self.n_layers)
        }

    def courses(self) -> dict[str, Curve]:
        """What the frame is compared with: the errors, the output and the values."""
        found = {name: Curve((values - self.end[name]).T, ERRORS[name]) for name, values in self.errors.items()}
        moved = self.by_prompt["value_distance"][..., self.layer]
        if not np.isnan(moved).any():
            found[VALUES] = Curve(moved.T, f"distance of the values of layer {self.layer} from the end's")
        return found


def _exchanged(read: list[Readout], name: str, n_prompts: int) -> Float[np.ndarray, "checkpoint prompt"]:
    found = np.full((len(read), n_prompts), np.nan)
    for row, each in zip(found, read, strict=True):
        row[each["exchange.prompts"]] = each[f"exchange.{name}"]
    return found


def _stacked(read: list[Readout], names: tuple[str, ...]) -> dict[str, np.ndarray]:
    return {name: np.stack([r[name] for r in read]) for name in names}


def _full(entries: np.ndarray, n_layers: int) -> np.ndarray:
    """NaN at the layers where a statistic is not defined (token keys above layer 0)."""
    return np.pad(entries, ((0, 0), (0, n_layers - entries.shape[1])), constant_values=np.nan)


def _alive(weights: np.ndarray) -> np.ndarray:
    """Resamples in which some prompt is left."""
    return weights[weights.sum(axis=1) > 0]
