"""The target of a probe: the next-token entropy, or a column of the prompts that the user names.

A direction orders rows, so values are numbers: a numeric column, or `column=value`, which is 1 for that value, else 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from interp.errors import PromptError
from interp.prompt import PromptSet
from interp.table import LABEL, Table

from .sample_sizes import MIN_LEVEL

NEXT_ENTROPY, EXACT_ENTROPY = "next_entropy_bits", "bayes_entropy_bits"
COLUMN = "target"
"""The column of a table that names its target, if it is not the next-token entropy."""

ROUNDING_BITS = 1e-5
"""Range within which entropies differ by the rounding of float32 alone: ten times what one of 15 bits is off by."""

_MEASURED = frozenset({"length", NEXT_ENTROPY, "position"})
_PLACES = frozenset({"drawn", "prompt", "stratum", "token"})
"""Columns that captured rows have beside those of the prompts: numbers, and where a row is."""

_SHOWN = 6
_TRUE, _FALSE = {"True", "true"}, {"False", "false"}


@dataclass(frozen=True)
class Target:
    """A column, or one value of it (`column=value`). Only `takes_names` allows a column of names."""

    name: str = NEXT_ENTROPY
    takes_names: bool = False

    @property
    def is_entropy(self) -> bool:
        """Whether this is the default of a direction, the entropy of the model's next token."""
        return self.name == NEXT_ENTROPY and not self.takes_names

    @property
    def column(self) -> str:
        """The name before any `=`."""
        return self.name.partition("=")[0]

    @property
    def words(self) -> str:
        return {NEXT_ENTROPY: "the next-token entropy", EXACT_ENTROPY: "the entropy of the exact posterior"}.get(
            self.name, f"“{self.name}”"
        )

    @property
    def brief(self) -> str:
        """A short name."""
        return "entropy" if self.is_entropy else self.words

    @property
    def title(self) -> str:
        """The short name at the beginning of a title."""
        return "Entropy" if self.is_entropy else self.words

    @property
    def many(self) -> str:
        """Its values, in words."""
        return "entropies" if self.is_entropy else f"values of {self.words}"

    @property
    def slots(self) -> dict[str, str]:
        """What fills the slots of declared sentences and names."""
        return {"target": self.words, "targets": self.many, "brief": self.brief, "prefix": self.prefix}

    def say(self, text: str) -> str:
        """A text with slots, of this target."""
        return text.format_map(self.slots)

    @property
    def notes(self) -> tuple[str, ...]:
        """A note that names the target, if it is not the default."""
        return () if self.is_entropy else (f"Target: {self.words}, in the place of the model's next-token entropy.",)

    @property
    def prefix(self) -> str:
        """The beginning of its numbers' names."""
        return "entropy" if self.is_entropy else self.name

    @property
    def predicted(self) -> str:
        """The column of a table that holds predictions of it."""
        return "predicted_bits" if self.is_entropy else "predicted"

    def refuse(self, prompts: PromptSet) -> None:
        """Raise `PromptError` where prompts lack the column, or its values are no target."""
        if self.is_entropy:
            return
        column, level = self._parts(prompts.units)
        if column in prompts.units:
            values = [p.scored_columns.get(column) or (p.columns[column],) for p in prompts]
            units = np.repeat(np.arange(len(prompts)), [len(of_prompt) for of_prompt in values])
            found = [np.nan if value is None else value for of_prompt in values for value in of_prompt]
            self._checked(np.array(found), level, units, is_label=prompts.units[column] == LABEL)

    def added_to(self, rows: Table) -> Table:
        """The rows with a column of the target's name and values, entropies `steady`; raise `PromptError` as above."""
        for name in {NEXT_ENTROPY, EXACT_ENTROPY} & {*rows.columns}:
            rows = rows.with_column(name, steady(rows[name]), rows.units[name])
        if self.is_entropy:
            return rows
        column, level = self._parts(rows.units)
        is_label = rows.units[column] == LABEL
        values = self._checked(rows[column], level, rows["prompt"], is_label=is_label)
        is_plain = level is not None or (is_label and values.dtype.kind == "f")
        return rows.with_column(self.name, values, "1" if is_plain else rows.units[column])

    def named_in(self, table: Table) -> Table:
        """The table, with a column that names the target where that is not the next-token entropy."""
        return table if self.is_entropy else table.with_column(COLUMN, np.full(table.n_rows, self.name), LABEL)

    @classmethod
    def of(cls, table: Table, *, takes_names: bool = False) -> "Target":
        """The target that a table names."""
        return cls(str(table[COLUMN][0]), takes_names) if COLUMN in table and table.n_rows else cls()

    def _parts(self, units: Mapping[str, str]) -> tuple[str, str | None]:
        """The column and the value after `=`, if any; raise `PromptError` where there is no such column."""
        known = {*units} | _MEASURED
        if self.name in known - _PLACES:
            return self.name, None
        column, has_level, level = self.name.partition("=")
        if has_level and column in known - _PLACES:
            return column, level
        raise PromptError(
            asked=f"the target {self.name!r}",
            found="the prompts have no such column",
            fix=f"Name one of {', '.join(sorted(known - _PLACES))}, or one value of it: column=value.",
        )

    def _checked(
        self,
        values: Shaped[np.ndarray, " row"],
        level: str | None,
        units: Shaped[np.ndarray, " row"],
        *,
        is_label: bool,
    ) -> Shaped[np.ndarray, " row"]:
        """The target at every row; raise `PromptError` where it is no number, missing, or hardly ever varies.

        True and false, also as words, are 1 and 0. With `takes_names`, other labels are names.
        """
        names = np.array([_written(value) for value in values.tolist()])
        is_missing = ~np.isfinite(values) if values.dtype.kind == "f" else names == "nan"
        if is_missing.any():
            raise self._refused(
                f"{is_missing.sum()} of {len(values)} values are missing or not finite",
                "Leave those prompts out, or give them a value.",
            )
        is_number = values.dtype.kind in "biuf" and not (self.takes_names and is_label and values.dtype.kind != "b")
        if level is not None:
            if level not in names:
                raise self._refused(f"no row has this value; there are {_some(names)}", "Name one of them.")
            values, is_number = names == level, True
        elif {*names.tolist()} <= _TRUE | _FALSE:
            values, is_number = np.isin(names, [*_TRUE]), True
        elif self.takes_names and not is_number:
            values = names
        if not is_number and not self.takes_names:
            raise self._refused(
                f"it holds names ({_some(names)}), and one direction cannot put these in an order",
                f"Name one of them against the rest, such as target={self.name}={names[0]}; `belief` reads all of "
                "them at once.",
            )
        found = values.astype(np.float64 if is_number else str)
        names, code = np.unique(found, return_inverse=True)
        common = np.bincount(code).argmax()
        if len(names) == 1:
            raise self._refused(f"it is {_written(names.tolist()[0])} everywhere", "Name a column that varies.")
        n_others, n = len(np.unique(units[code != common])), len(np.unique(units))
        if n_others < MIN_LEVEL:
            raise self._refused(
                f"only {n_others} of {n} prompts have another value than {_written(names.tolist()[common])}",
                f"Give at least {MIN_LEVEL} that have; the statistics want two hundred prompts or more.",
            )
        return found

    def _refused(self, found: str, fix: str) -> PromptError:
        return PromptError(asked=f"the target {self.name!r}", found=found, fix=fix)


def steady(entropies: Float[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
    """Entropies in bits; where they differ by rounding alone, their median at every row."""
    return np.full_like(entropies, np.median(entropies)) if np.ptp(entropies) <= ROUNDING_BITS else entropies


OWN_ENTROPY = Target()
"""The entropy of the model's next token."""


def _written(value: Any) -> str:
    """A value as a user writes it behind `column=`: whole numbers without a point, nothing as two quotes."""
    return f"{value:g}" if isinstance(value, float) else str(value) or "''"


def _some(names: Shaped[np.ndarray, " row"]) -> str:
    shown = sorted({*names.tolist()})
    return ", ".join(shown[:_SHOWN]) + (" ..." if len(shown) > _SHOWN else "")
