"""One prompt token by token, for a page or a notebook: entropies and attention at every position.

A record keeps its strips in `tokens.json`: entropies and sink masses in 65,535 steps, attention weights in 255, as
base64. Packing an unpacked strip changes nothing.
"""

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from pydantic import Field, PositiveInt, model_validator

from interp.records.versioned_json import Strict, plain_json, read_versioned

FILE = "tokens.json"
FORMAT = 1
ENTROPY_STEPS, WEIGHT_STEPS = 65535, 255


@dataclass(frozen=True, eq=False)
class TokenStrip:
    """The tokens of one prompt with what was measured at each.

    `entropy` (bits) and `sink` (attention to the first position, a fraction) describe the attention of each position,
    by layer and head. `next_entropy` is the entropy of the model's next-token distribution, `belief` that of the exact
    posterior (NaN where none is known), both in bits. `weights` is the attention from `pos` to `key_pos`.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> strip = interp.show_tokens(model, interp.sampled_prompts(model.task, 1))
    >>> bool(np.allclose(strip.weights.sum(axis=-1), 1))
    True
    """

    model: str
    tokens: tuple[str, ...]
    entropy: Float[np.ndarray, "layer head pos"]
    sink: Float[np.ndarray, "layer head pos"]
    next_entropy: Float[np.ndarray, " pos"]
    belief: Float[np.ndarray, " pos"]
    weights: Float[np.ndarray, "layer head pos key_pos"]

    def packed(self) -> dict[str, Any]:
        """The strip as plain JSON; of the weights only the lower triangle, as no position attends to later ones."""
        n = len(self.tokens)
        most = math.log2(max(n, 2))
        return plain_json({
            "model": self.model,
            "tokens": list(self.tokens),
            "shape": self.entropy.shape[:2],
            "entropy": _base64(np.rint(self.entropy / most * ENTROPY_STEPS), "<u2"),
            "sink": _base64(np.rint(self.sink * ENTROPY_STEPS), "<u2"),
            "next_entropy": np.round(self.next_entropy, 4),
            "belief": np.round(self.belief, 4),
            "weights": _base64(np.rint(self.weights[..., *np.tril_indices(n)] * WEIGHT_STEPS), "u1"),
        })  # fmt: skip

    def _repr_html_(self) -> str:
        from interp.registry import load_entry

        return load_entry("report", "tokens")(self)

    def __repr__(self) -> str:
        n_layers, n_heads, n = self.entropy.shape
        return f"TokenStrip({self.model!r}: {n} tokens, {n_layers} layers, {n_heads} heads)"


class _Packed(Strict):
    model: str
    tokens: list[str] = Field(min_length=1)
    shape: tuple[PositiveInt, PositiveInt]
    entropy: str
    sink: str
    next_entropy: list[float | None]
    belief: list[float | None]
    weights: str

    @model_validator(mode="after")
    def _lengths_agree(self) -> "_Packed":
        n, rows = len(self.tokens), self.shape[0] * self.shape[1]
        wanted = {"entropy": 2 * rows * n, "sink": 2 * rows * n, "weights": rows * n * (n + 1) // 2}
        for name, n_bytes in wanted.items():
            found = len(base64.b64decode(getattr(self, name), validate=True))
            if found != n_bytes:
                raise ValueError(f"`{name}` has {found} bytes, {n} tokens have {n_bytes}")
        if {len(self.next_entropy), len(self.belief)} != {n}:
            raise ValueError(f"there is not one entropy for each of {n} tokens")
        return self

    def unpacked(self) -> TokenStrip:
        n = len(self.tokens)
        weights = np.zeros((*self.shape, n, n))
        weights[..., *np.tril_indices(n)] = _numbers(self.weights, "u1", (*self.shape, -1)) / WEIGHT_STEPS
        most = math.log2(max(n, 2))
        return TokenStrip(
            model=self.model,
            tokens=tuple(self.tokens),
            entropy=_numbers(self.entropy, "<u2", (*self.shape, n)) / ENTROPY_STEPS * most,
            sink=_numbers(self.sink, "<u2", (*self.shape, n)) / ENTROPY_STEPS,
            next_entropy=np.array(self.next_entropy, dtype=float),
            belief=np.array(self.belief, dtype=float),
            weights=weights,
        )


class _File(Strict):
    format: Literal[1] = FORMAT
    strips: list[_Packed]


def write_strips(strips: Sequence[TokenStrip], folder: Path) -> None:
    """Keep strips in the folder of a record."""
    content = {"format": FORMAT, "strips": [strip.packed() for strip in strips]}
    (folder / FILE).write_text(json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def read_strips(folder: Path) -> tuple[TokenStrip, ...]:
    """The strips of a record, empty without the file; a damaged file raises `RecordError`."""
    if not (folder / FILE).exists():
        return ()
    content = read_versioned(
        folder / FILE, _File, FORMAT, asked=f"the tokens of the record {folder}",
        written_by="Give the folder that a run printed.", again="repeat the run",
    )  # fmt: skip
    return tuple(strip.unpacked() for strip in content.strips)


def _base64(x: np.ndarray, kind: str) -> str:
    return base64.b64encode(x.astype(kind).tobytes()).decode()


def _numbers(packed: str, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(packed), kind).reshape(shape).astype(float)
