"""The card of a compiled program, and its rules, followed step by step in Python and without the network.

This is what Tracr's own interpreter does, with the functions of a program as tables. A position sees those before it
and itself.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from interp.errors import UsageError
from interp.system.foreign_files import read_json

CARD, TRUTH = "program.json", "truth.safetensors"


def read_card(folder: Path) -> dict[str, Any]:
    """The card in a folder, whose rules were followed once; see `interp.system.foreign_files.readable`."""
    card = read_json(folder / CARD)
    for word in words_of(card):
        evaluate(card, [word] * card["length"])
    return card


def true_directions(folder: Path, card: dict[str, Any]) -> np.ndarray:
    """How every label of the card is written in the residual stream: `[label, d_model]`."""
    from safetensors.numpy import load_file

    if not (folder / TRUTH).exists():
        return np.eye(len(card["labels"]), dtype=np.float32)
    return load_file(folder / TRUTH)["directions"]


def evaluate(
    card: Mapping[str, Any], tokens: Sequence[Any], given: Mapping[str, Sequence[Any]] | None = None
) -> dict[str, list[Any]]:
    """Every variable of a program on one input, at every position; None where it has no value there.

    Variables that are `given` have those values, and what depends on them follows. Raises `UsageError` where the input
    is longer than the program can read, or has a token it does not know.
    """
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
    for name, rule in variables.items():
        if given is not None and name in given:
            found[name] = list(given[name])
        else:
            found[name] = _RULES[rule["rule"]](rule, [found[of] for of in rule.get("of", ())], tokens)
    return {name: found[name] for name, rule in variables.items() if "values" in rule}


def _mapped(rule: Mapping[str, Any], given: list[Any], tokens: Sequence[Any]) -> list[Any]:
    table = {tuple(same_value(x) for x in row[:-1]): row[-1] for row in rule["table"]}
    return [None if None in row else table[tuple(same_value(x) for x in row)] for row in zip(*given, strict=True)]


def _linear(rule: Mapping[str, Any], given: list[Any], tokens: Sequence[Any]) -> list[Any]:
    a, b = rule["factors"]
    return [None if None in row else a * row[0] + b * row[1] for row in zip(*given, strict=True)]


def _selected(rule: Mapping[str, Any], given: list[Any], tokens: Sequence[Any]) -> list[list[int]]:
    """Which positions each position selects, of those up to itself."""
    pairs = {(same_value(k), same_value(q)) for k, q in rule["table"]}
    keys, queries = given
    return [[i for i in range(p + 1) if (same_value(keys[i]), same_value(q)) in pairs] for p, q in enumerate(queries)]


def _mean(rule: Mapping[str, Any], given: list[Any], tokens: Sequence[Any]) -> list[Any]:
    selected, values = given
    return [sum(values[i] for i in row) / len(row) if row else rule["default"] for row in selected]


def _pick(rule: Mapping[str, Any], given: list[Any], tokens: Sequence[Any]) -> list[Any]:
    """The value that all selected positions share; these programs select one position, or none."""
    selected, values = given
    chosen = [{values[i] for i in row} for row in selected]
    return [(mine.pop() if len(mine) == 1 else None) if mine else rule["default"] for mine in chosen]


_RULES: Mapping[str, Any] = {
    "tokens": lambda rule, given, tokens: list(tokens),
    "indices": lambda rule, given, tokens: list(range(len(tokens))),
    "width": lambda rule, given, tokens: [len(row) for row in given[0]],
    "map": _mapped, "linear": _linear, "select": _selected, "mean": _mean, "pick": _pick,
}  # fmt: skip


def same_value(value: Any) -> Any:
    """Numbers that differ by rounding alone are one value."""
    return round(float(value), 9) if isinstance(value, int | float) else value


def words_of(card: Mapping[str, Any]) -> list[Any]:
    """The tokens of the program, without those of the compiler (beginning, padding)."""
    return [token for token in card["tokens"] if not str(token).startswith("compiler_")]
