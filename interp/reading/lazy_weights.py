"""Weights as a capture holds them: read from the model when they are asked for, so that they are not held twice."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from interp.families import iterate_weights
from interp.model import Model
from interp.need import Need
from interp.reading.early_exit import layers_of


@dataclass(frozen=True)
class WeightStack(Mapping[str, np.ndarray]):
    """`rows` `[layer, head, ...]` in float32, the layers one behind the other; only `layers` where these are given.

    It keeps the model, and every reading gives what the weights are at that moment.
    """

    model: Model
    need: Need
    layers: Sequence[int] | None = None

    def __getitem__(self, name: str) -> np.ndarray:
        if name != "rows":
            raise KeyError(name)
        wanted = layers_of(self.need, self.layers, self.model.info)
        weights = iterate_weights(self.model.module, self.model.family, self.need.site)  # pyrefly: ignore[bad-argument-type]
        found: np.ndarray | None = None
        for layer, w in zip(self.model.info.layers_with_attention, weights, strict=True):
            if layer in wanted:
                if found is None:
                    found = np.empty((len(wanted), *w.shape), dtype=np.float32)
                found[wanted.index(layer)] = w.detach().float().cpu().numpy()
        assert found is not None
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(("rows",))

    def __len__(self) -> int:
        return 1
