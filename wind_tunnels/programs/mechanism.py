"""How a compiled program computes, from its card: where variables lie, which are read, what other values lead to."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from safetensors.numpy import save

from interp.capture import Mechanism

from .card import CARD, TRUTH
from .rules import evaluate, same_value

EMBEDDED = ("tokens", "indices")
_COMPILER = ("compiler_bos", "compiler_pad")


@dataclass(frozen=True)
class ProgramMechanism(Mechanism):
    """A card, and how each of its labels is written in the residual stream."""

    card: Mapping[str, Any]
    written: Float[np.ndarray, "label d_model"]

    @cached_property
    def directions(self) -> Mapping[str, Float[np.ndarray, "axis d_model"]]:
        return {name: self.written[mine] for name, mine in self.card["directions"].items() if mine}

    def variable(self, column: str) -> str | None:
        name = self.card["output"] if column == "answer" else column
        return name if name in self.directions else None

    def first_depth(self, variable: str) -> int:
        if variable in EMBEDDED:
            return 0
        mine = self._labels(variable)
        return 1 + min(part["layer"] for part in self.card["parts"] if mine & {*part["writes"]})

    def is_read(self, variable: str, depth: int) -> bool:
        mine = self._labels(variable)
        later = [part["reads"] for part in self.card["parts"] if part["layer"] >= depth]
        return variable == self.card["output"] or any(mine & {*labels} for reads in later for labels in reads.values())

    def swapped(
        self, variable: str, depth: int, tokens: Int[np.ndarray, "prompt pos"], donors: Int[np.ndarray, "prompt pos"],
        scored: Int[np.ndarray, " scored"],
    ) -> Int[np.ndarray, "prompt scored"]:  # fmt: skip
        standing = [name for name in self.directions if name not in EMBEDDED and self.first_depth(name) <= depth]
        output = self.card["output"]
        answers = {same_value(value): i for i, value in enumerate(self.card["variables"][output]["values"])}
        found = []
        for mine, theirs in zip(tokens, donors, strict=True):
            words = [self.card["tokens"][token] for token in mine[1:]]
            base, donor = self._evaluated(mine), self._evaluated(theirs)
            given = {name: list(base[name]) for name in (*EMBEDDED, *standing) if name in base}
            given[variable] = list(base[variable])
            for position in scored - 1:  # the card counts from the first token behind the beginning
                given[variable][position] = donor[variable][position]
            after = evaluate(self.card, words, given)[output]
            found.append([answers.get(same_value(after[position]), -1) for position in scored - 1])
        return np.array(found)

    def write(self, folder: Path) -> None:
        (folder / CARD).write_text(json.dumps(dict(self.card)), encoding="utf-8")
        (folder / TRUTH).write_bytes(save({"directions": self.written}))

    def _evaluated(self, row: Int[np.ndarray, " pos"]) -> dict[str, list[Any]]:
        return evaluate(self.card, [self.card["tokens"][token] for token in row[1:]])

    def _labels(self, variable: str) -> set[str]:
        mine = {self.card["labels"][i] for i in self.card["directions"][variable]}
        return mine - {f"{variable}:{token}" for token in _COMPILER}
