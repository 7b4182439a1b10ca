"""A compiled program as a task: sequences with exact answers and intermediate variables.

The rules in the card of a program are evaluated in Python, without the network; the card also holds the `mechanism`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int
from safetensors.numpy import load_file

from interp.capture import Mechanism
from interp.errors import UsageError, named
from interp.loading.sources import shipped_programs
from interp.system.foreign_files import read_json
from interp.tunnel import REQUIRED_UNITS, Sequences

from ..tasks.shipped_task import ShippedTask

CARD, TRUTH = "program.json", "truth.safetensors"
EMBEDDED = ("tokens", "indices")
_COMPILER = ("compiler_bos", "compiler_pad")


def read_card(folder: Path) -> dict[str, Any]:
    """The card in a folder, after its rules were evaluated once; see `interp.system.foreign_files.readable`."""
    card = read_json(folder / CARD)
    for word in words_of(card):
        evaluate(card, [word] * card["length"])
    return card


def true_directions(folder: Path, card: dict[str, Any]) -> np.ndarray:
    """The direction of every label of the card in the residual stream: `[label, d_model]`."""
    if not (folder / TRUTH).exists():
        return np.eye(len(card["labels"]), dtype=np.float32)
    return load_file(folder / TRUTH)["directions"]


def evaluate(
    card: Mapping[str, Any], tokens: Sequence[Any], given: Mapping[str, Sequence[Any]] | None = None
) -> dict[str, list[Any]]:
    """Every variable of a program at every position of an input, with those `given`; None where it has no value."""
    variables: Mapping[str, Mapping[str, Any]] = card["variables"]
    known = words_of(card)
    strange = [token for token in tokens if token not in known]
    if strange or len(tokens) > card["length"]:
        raise UsageError(
            asked=f"the program {card['program']!r} on {list(tokens)}",
            found=f"it does not know {strange[0]!r}" if strange else f"these are {len(tokens)} tokens",
            fix=f"Its tokens are {known}; at most {card['length']} of them.",
        )
    found: dict[str, Any] = {}
    inputs = {"tokens": list(tokens), "indices": list(range(len(tokens)))}
    for name, rule in variables.items():
        if given is not None and name in given:
            found[name] = list(given[name])
        elif rule["rule"] in inputs:
            found[name] = inputs[rule["rule"]]
        else:
            found[name] = _RULES[rule["rule"]](rule, *(found[of] for of in rule["of"]))
    return {name: found[name] for name, rule in variables.items() if "values" in rule}


def _mapped(rule: Mapping[str, Any], *given: list[Any]) -> list[Any]:
    table = {tuple(map(same_value, row[:-1])): row[-1] for row in rule["table"]}
    return [None if None in row else table[tuple(map(same_value, row))] for row in zip(*given, strict=True)]


def _linear(rule: Mapping[str, Any], *given: list[Any]) -> list[Any]:
    a, b = rule["factors"]
    return [None if None in row else a * row[0] + b * row[1] for row in zip(*given, strict=True)]


def _selected(rule: Mapping[str, Any], keys: list[Any], queries: list[Any]) -> list[list[int]]:
    """The positions up to itself that each position selects."""
    pairs = {tuple(map(same_value, pair)) for pair in rule["table"]}
    return [[i for i in range(p + 1) if (same_value(keys[i]), same_value(q)) in pairs] for p, q in enumerate(queries)]


def _mean(rule: Mapping[str, Any], selected: list[list[int]], values: list[Any]) -> list[Any]:
    return [sum(values[i] for i in row) / len(row) if row else rule["default"] for row in selected]


def _pick(rule: Mapping[str, Any], selected: list[list[int]], values: list[Any]) -> list[Any]:
    """The value that all selected positions share."""
    chosen = [{values[i] for i in row} for row in selected]
    return [(mine.pop() if len(mine) == 1 else None) if mine else rule["default"] for mine in chosen]


_RULES: Mapping[str, Any] = {
    "width": lambda rule, selected: [len(row) for row in selected],
    "map": _mapped, "linear": _linear, "select": _selected, "mean": _mean, "pick": _pick,
}  # fmt: skip


def same_value(value: Any) -> Any:
    """The value, rounded if it is a number, to compare values."""
    return round(float(value), 9) if isinstance(value, int | float) else value


def words_of(card: Mapping[str, Any]) -> list[Any]:
    """The tokens of the program, without those of the compiler."""
    return [token for token in card["tokens"] if not str(token).startswith("compiler_")]


@dataclass(frozen=True)
class ProgramMechanism(Mechanism):
    """A card, and the direction of each of its labels in the residual stream."""

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
            words, donated = ([self.card["tokens"][token] for token in row[1:]] for row in (mine, theirs))
            base, donor = evaluate(self.card, words), evaluate(self.card, donated)
            given = {name: list(base[name]) for name in (*EMBEDDED, *standing) if name in base}
            given[variable] = list(base[variable])
            for position in scored - 1:  # the card counts from the token after `compiler_bos`
                given[variable][position] = donor[variable][position]
            after = evaluate(self.card, words, given)[output]
            found.append([answers.get(same_value(after[position]), -1) for position in scored - 1])
        return np.array(found)

    def _labels(self, variable: str) -> set[str]:
        mine = {self.card["labels"][i] for i in self.card["directions"][variable]}
        return mine - {f"{variable}:{token}" for token in _COMPILER}


HOME = Path(__file__).parent / "compiled"
BEGINNING = "compiler_bos"
_ALWAYS = frozenset({*REQUIRED_UNITS, "answer"})


@cache
def read_program(name: str) -> Mapping[str, Any]:
    """The card of a shipped program: source, variables, directions, parts; `UnknownName` for another name."""
    folder = named("program", name, shipped_programs())
    return json.loads((folder / CARD).read_text(encoding="utf-8"))


def _drawn(card: Mapping[str, Any], rng: np.random.Generator, n: int) -> list[list[Any]]:
    words = words_of(card)
    return [[words[i] for i in row] for row in rng.integers(0, len(words), size=(n, card["length"]))]


@cache
def _first_scored(program: str) -> int:
    """The position after the last where a variable lacks a value, over random inputs."""
    card = read_program(program)
    found = [values for row in _drawn(card, np.random.default_rng(0), 200) for values in evaluate(card, row).values()]
    return max(p + 1 if value is None else 0 for values in found for p, value in enumerate(values))


@dataclass(frozen=True)
class Program(ShippedTask):
    """Sequences of a compiled program, tokens drawn uniformly, scored where every variable has a value.

    `program` is its name. Answers are certain; the variables are in columns of their names, and in `answer`.
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
        """Units of the required columns and of each variable; a categorical one is a label."""
        kinds = {name: rule.get("type") for name, rule in self.card["variables"].items()}
        mine = {name: "1" if kinds[name] == "numerical" else "label" for name in self.columns}
        return {**mine, **REQUIRED_UNITS, "answer": mine.get(self.card["output"], "1")}

    @property
    def columns(self) -> tuple[str, ...]:
        """The variables in a sample, without the inputs."""
        named = (name for name, rule in self.card["variables"].items() if "values" in rule)
        return tuple(name for name in named if name not in EMBEDDED and name not in _ALWAYS)

    def mechanism(self, folder: Path) -> Mechanism:
        card = read_card(folder)
        found = ProgramMechanism(card, true_directions(folder, card))
        for variable in found.directions:
            found.first_depth(variable)  # `ValueError` if nothing writes it
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

    def sample_orbits(self, rng: np.random.Generator, n: int, n_copies: int) -> Sequences:
        return self.encode(_drawn(self.card, rng, n))

    def encode(self, inputs: Sequence[Sequence[Any]]) -> Sequences:
        """These inputs, all of the full length, with the exact answers."""
        words, output = self.card["tokens"], self.card["output"]
        found = [evaluate(self.card, row) for row in inputs]
        scored = np.array([p + 1 for p in range(_first_scored(self.program), self.card["length"])])
        shape = len(inputs), len(scored)
        first = len(words)
        places = {same_value(answer): i for i, answer in enumerate(self.answers)}
        index = np.array([[places[same_value(row[output][p - 1])] for p in scored] for row in found]).reshape(shape)
        posterior = np.eye(len(self.answers))[index]
        columns: dict[str, np.ndarray] = {}
        for name in (*self.columns, "answer"):
            source = output if name == "answer" else name
            values = [[row[source][p - 1] for p in scored] for row in found]
            known = self.card["variables"][source]["values"]
            if all(isinstance(value, int | float) and not isinstance(value, bool) for value in known):
                columns[name] = np.array(values, dtype=np.float64)
            else:
                columns[name] = np.array([[str(value) for value in row] for row in values])
        tokens = np.array([[words.index(t) for t in (BEGINNING, *row)] for row in inputs])
        made = self._sequences(
            tokens, scored, index + first, posterior, first + np.arange(len(self.answers)), scored, columns
        )
        return replace(made, domain=np.full(len(inputs), self.program))
