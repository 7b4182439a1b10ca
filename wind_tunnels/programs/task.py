"""A compiled program as a task: sequences with its answers and with every variable on the way, exactly.

The rules of its card say which answer is exact (`rules`), and how the network computes it (`mechanism`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from interp.capture import Mechanism
from interp.errors import UnknownName
from interp.tunnel import REQUIRED_UNITS, Sequences, Task

from ..tasks.shipped_task import required_columns
from .card import CARD, read_card, true_directions
from .mechanism import ProgramMechanism
from .rules import evaluate, same_value, words_of

HOME = Path(__file__).parent / "compiled"
BEGINNING = "compiler_bos"
_ALWAYS = frozenset({*REQUIRED_UNITS, "answer"})


def shipped_programs() -> dict[str, Path]:
    """The folder of every shipped program, by name."""
    return {path.parent.name: path.parent for path in sorted(HOME.glob(f"*/{CARD}"))}


@cache
def read_program(name: str) -> Mapping[str, Any]:
    """The card of a shipped program: source, variables, directions, parts; `UnknownName` for another name."""
    folders = shipped_programs()
    if name not in folders:
        raise UnknownName("program", name, folders)
    return json.loads((folders[name] / CARD).read_text(encoding="utf-8"))


def _drawn(card: Mapping[str, Any], rng: np.random.Generator, n: int) -> list[list[Any]]:
    words = words_of(card)
    return [[words[i] for i in row] for row in rng.integers(0, len(words), size=(n, card["length"]))]


@cache
def _first_scored(program: str) -> int:
    """One past the last position where some variable lacked a value, over drawn inputs."""
    card = read_program(program)
    found = [values for row in _drawn(card, np.random.default_rng(0), 200) for values in evaluate(card, row).values()]
    return max(p + 1 if value is None else 0 for values in found for p, value in enumerate(values))


@dataclass(frozen=True)
class Program(Task):
    """Sequences of a compiled program, tokens drawn uniformly, scored where every variable has a value.

    `program` is its name. The answer at a position is certain, so the exact posterior has no entropy; what varies are
    the program's own variables, each in a column of its name (`answer` is the last). Categorical ones are named.
    """

    program: str = "frac_prevs"

    name: ClassVar[str] = "program"
    question: ClassVar[str] = "Does a probe find what a program computes, where it holds it?"
    checkpoints: ClassVar[Path] = HOME

    def __post_init__(self) -> None:
        read_program(self.program)

    @property
    def card(self) -> Mapping[str, Any]:
        return read_program(self.program)

    @property
    def units(self) -> Mapping[str, str]:  # pyrefly: ignore[bad-override]
        """Those of every task, and one for each variable: a label where it is held as one direction a value."""
        kinds = {name: rule.get("type") for name, rule in self.card["variables"].items()}
        mine = {name: "1" if kinds[name] == "numerical" else "label" for name in self.columns}
        return {**mine, **REQUIRED_UNITS, "answer": mine.get(self.card["output"], "1")}

    @property
    def columns(self) -> tuple[str, ...]:
        """The variables that a sample carries, inputs left out."""
        named = (name for name, rule in self.card["variables"].items() if "values" in rule)
        return tuple(name for name in named if name not in ("tokens", "indices") and name not in _ALWAYS)

    def mechanism(self, folder: Path) -> Mechanism:
        card = read_card(folder)
        found = ProgramMechanism(card, true_directions(folder, card))
        for variable in found.directions:
            found.first_depth(variable)  # `ValueError` for one that nothing writes
        return found

    @property
    def answers(self) -> list[Any]:
        return self.card["variables"][self.card["output"]]["values"]

    @property
    def vocab_size(self) -> int:
        return len(self.card["tokens"]) + len(self.answers)

    @property
    def n_positions(self) -> int:
        return self.card["length"] + 1

    def sample(self, rng: np.random.Generator, n: int) -> Sequences:
        return self.encode(_drawn(self.card, rng, n))

    def encode(self, inputs: Sequence[Sequence[Any]]) -> Sequences:
        """These inputs, all of the full length, with the exact answers."""
        words, output = self.card["tokens"], self.card["output"]
        found = [evaluate(self.card, row) for row in inputs]
        scored = np.array([p + 1 for p in range(self.first_scored, self.card["length"])])
        shape = len(inputs), len(scored)
        first = len(words)
        places = {same_value(answer): i for i, answer in enumerate(self.answers)}
        index = np.array([[places[same_value(row[output][p - 1])] for p in scored] for row in found]).reshape(shape)
        posterior = np.eye(len(self.answers))[index]
        columns = required_columns(scored, scored, posterior)
        for name in (*self.columns, "answer"):
            source = output if name == "answer" else name
            values = [[row[source][p - 1] for p in scored] for row in found]
            if self._is_numeric(source):
                columns[name] = np.array(values, dtype=np.float64)
            else:
                columns[name] = np.array([[str(value) for value in row] for row in values])
        tokens = np.array([[words.index(t) for t in (BEGINNING, *row)] for row in inputs])
        domain = np.full(len(inputs), self.program)
        return Sequences(
            tokens, scored, index + first, posterior, first + np.arange(len(self.answers)), columns, domain
        )

    @property
    def first_scored(self) -> int:
        """The first position from which on no variable lacks a value, whatever the input."""
        return _first_scored(self.program)

    def _is_numeric(self, name: str) -> bool:
        return all(
            isinstance(v, int | float) and not isinstance(v, bool) for v in self.card["variables"][name]["values"]
        )
