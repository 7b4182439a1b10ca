"""The card of a compiled program as its file has it, checked before anything follows its rules."""

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, model_validator

from interp.system.foreign_files import read_json

from .rules import evaluate, words_of

CARD, TRUTH = "program.json", "truth.safetensors"


class _Rule(BaseModel):
    """How one variable follows from others."""

    model_config = ConfigDict(extra="allow")

    rule: Literal["tokens", "indices", "width", "map", "linear", "select", "mean", "pick"]
    of: list[str] = []
    type: Literal["categorical", "numerical"] | None = None
    values: list[str | int | float | bool | None] = []
    table: list[list[str | int | float | bool | None]] = []


class _Part(BaseModel):
    """A head or a feed-forward layer: what it reads and writes, by label."""

    model_config = ConfigDict(extra="allow")

    layer: NonNegativeInt
    reads: dict[str, list[str]]
    writes: list[str]


class _Card(BaseModel):
    model_config = ConfigDict(extra="allow")

    program: str
    format: Literal[1] = 1
    origin: str
    length: int = Field(ge=1, le=1000)
    tokens: list[str | int | float | bool]
    output: str
    variables: dict[str, _Rule]
    labels: list[str]
    directions: dict[str, list[NonNegativeInt]]
    parts: list[_Part]
    idle_heads: list[tuple[NonNegativeInt, NonNegativeInt]]

    @model_validator(mode="after")
    def _names_are_known(self) -> "_Card":
        if not self.variables.get(self.output, _Rule(rule="tokens")).values:
            raise ValueError(f"the output {self.output!r} is no variable with values")
        strange = [i for named in self.directions.values() for i in named if i >= len(self.labels)]
        if strange or self.directions.keys() - self.variables.keys():
            raise ValueError("`directions` name what is no label or no variable")
        return self


def read_card(folder: Path) -> dict[str, Any]:
    """The card in a folder, whose rules were followed once; see `interp.system.foreign_files.readable`."""
    card = read_json(folder / CARD)
    _Card.model_validate_json(json.dumps(card), strict=True)
    for word in words_of(card):
        evaluate(card, [word] * card["length"])
    return card


def true_directions(folder: Path, card: dict[str, Any]) -> np.ndarray:
    """How every label of the card is written in the residual stream: `[label, d_model]`."""
    from safetensors.numpy import load_file

    n = len(card["labels"])
    if not (folder / TRUTH).exists():
        return np.eye(n, dtype=np.float32)
    written = load_file(folder / TRUTH)["directions"]
    if written.ndim != 2 or len(written) != n or written.dtype.kind != "f" or not np.isfinite(written).all():
        raise ValueError(f"{TRUTH} holds no finite numbers of the shape ({n}, width), but {written.shape}")
    return written
