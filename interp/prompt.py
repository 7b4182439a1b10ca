"""Prompts and prompt sets: texts or token ids with named columns, and a hash of their content."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import index
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from interp.errors import Answering, PromptError
from interp.system.plain_numbers import plain

if TYPE_CHECKING:
    import pandas

Value = str | int | float | bool


@dataclass(frozen=True)
class Clusters:
    """Which prompts belong together: copies, fillings of one template, stretches of one document.

    `code` numbers the cluster of every prompt; `by` says in words what put them together. Where wording was looked at,
    `code_at` holds the clusters that it makes at each threshold that was tried, and `examples` some of the largest, in
    words. `crossed` says where what is sought goes by another column than they do.
    """

    code: np.ndarray
    by: str
    code_at: Mapping[float, np.ndarray] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    crossed: str = ""

    @property
    def n(self) -> int:
        """How many clusters there are."""
        return len(np.unique(self.code))

    @property
    def n_at(self) -> dict[float, int]:
        """How many clusters wording makes at each threshold that was tried."""
        return {threshold: len(np.unique(code)) for threshold, code in self.code_at.items()}

    @property
    def n_effective(self) -> float:
        """(Σ size)² / Σ size²: how many clusters of one size would weigh as much."""
        size = np.unique(self.code, return_counts=True)[1]
        return float(size.sum() ** 2 / np.square(size).sum())

    def take(self, chosen: Sequence[int]) -> "Clusters":
        """Those of some prompts, by their old numbers; examples may be of other prompts, and go."""
        picked = list(chosen)
        code_at = {threshold: code[picked] for threshold, code in self.code_at.items()}
        return Clusters(self.code[picked], self.by, code_at)


@dataclass(frozen=True, init=False)
class Prompt:
    """One text, or one sequence of token ids, with its columns.

    `columns` hold one value each (`domain`, `k`, ...). A wind-tunnel prompt also has `scored` positions, from 0, and
    `scored_columns` with one value for each; a text is scored at its last token. Numbers of numpy, torch and pandas
    become Python's own. Raises `ValueError` for both or neither of text and ids, `PromptError` for ids that are not
    whole numbers or none, and for scored positions beyond them.

    >>> interp.Prompt("The capital of France is", columns={"domain": "geography"}).text
    'The capital of France is'
    """

    text: str | None
    token_ids: tuple[int, ...] | None
    columns: Mapping[str, Value]
    scored: tuple[int, ...] | None
    scored_columns: Mapping[str, tuple[Value, ...]]

    def __init__(
        self,
        text: str | None = None,
        token_ids: Any = None,
        columns: Mapping[str, Any] = MappingProxyType({}),
        scored: Any = None,
        scored_columns: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        if (text is None) == (token_ids is None):
            raise ValueError("a prompt is either a text or token ids")
        kept = {
            "text": plain(text),
            "token_ids": _whole(token_ids, "token_ids"),
            "columns": {name: plain(value) for name, value in columns.items()},
            "scored": _whole(scored, "scored"),
            "scored_columns": {name: tuple(map(plain, plain(values))) for name, values in scored_columns.items()},
        }
        for name, value in kept.items():
            object.__setattr__(self, name, value)
        n = 1 if self.token_ids is None else len(self.token_ids)
        beyond = [i for i in self.scored or () if self.token_ids and not 0 <= i < n]
        if not n or beyond:
            found = f"position {beyond[0]} is scored, of {n} in all" if n else "there are none"
            fix = "Give at least one id, and scored positions from 0 to that of the last."
            raise PromptError(asked="token_ids of a prompt", found=found, fix=fix)
        n_scored = 1 if self.scored is None else len(self.scored)
        for name, values in self.scored_columns.items():
            if len(values) != n_scored:
                raise ValueError(f"column {name!r} has {len(values)} values for {n_scored} scored positions")


def _whole(given: Any, name: str) -> tuple[int, ...] | None:
    """Whole numbers as Python's own; `PromptError` where there is anything else, or more than one row."""
    values = plain(given)
    try:
        return None if values is None else tuple(map(index, values))
    except TypeError as error:
        raise PromptError(
            asked=f"{name} of a prompt",
            found=f"they are {values!r:.60}",
            fix="Give one row of whole numbers: a list, a tuple or an array of one axis.",
        ) from error


@dataclass(frozen=True, repr=False)
class PromptSet(Answering):
    """Named prompts, all texts (strings or `Prompt`s) or all token ids, with the units of their columns.

    `unit` is what is resampled (`prompt`, `sequence`); `source` says where the set comes from; `window` is how many
    tokens at the end of each text are read (None: all). `posterior` `[row, outcome]` is the exact posterior of every
    scored position, if known, over the token ids `outcome_ids`: `[outcome]` if all prompts share them (a wind tunnel),
    else `[prompt, outcome]`. `belief` `[row, component]` is the exact belief over the latent, if that is more.
    `cluster` names the column that says which prompts belong together, or is `none`. By default it is the column
    `cluster` or `document`; without either, prompts with shared wording form `clusters`, found when they are read.
    `is_templated` texts went through a chat template, which adds the tokenizer's special tokens.
    Raises `PromptError` for an empty set, texts mixed with ids, or columns without a unit or not in every prompt.

    >>> texts = [interp.Prompt("One.", columns={"k": 1}), interp.Prompt("Two.", columns={"k": 2})]
    >>> len(interp.PromptSet("counted", texts, units={"k": "1"}))
    2
    """

    name: str
    prompts: Sequence[Prompt]
    units: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    unit: str = "prompt"
    seed: int | None = None
    window: int | None = None
    is_templated: bool = False
    cluster: str | None = None
    clusters: Clusters | None = field(default=None, compare=False, repr=False)
    posterior: np.ndarray | None = field(default=None, compare=False, repr=False)
    outcome_ids: np.ndarray | None = field(default=None, compare=False, repr=False)
    belief: np.ndarray | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if any(isinstance(each, str) for each in self.prompts):
            made = [Prompt(each) if isinstance(each, str) else each for each in self.prompts]
            object.__setattr__(self, "prompts", made)
        if all(prompt.scored == () for prompt in self.prompts):
            raise PromptError(
                asked=f"the prompt set {self.name!r}",
                found="no position is scored" if self.prompts else "it is empty",
                fix="Give at least one prompt; the statistics want a hundred or more.",
            )
        first = self.prompts[0]
        for i, prompt in enumerate(self.prompts):
            for kind, mine, theirs in (
                ("columns", prompt.columns, first.columns),
                ("scored columns", prompt.scored_columns, first.scored_columns),
            ):
                if mine.keys() != theirs.keys():
                    raise PromptError(
                        asked=f"prompt {i + 1} of {self.name!r}",
                        found=f"it has the {kind} {sorted(mine)}, the first prompt has {sorted(theirs)}",
                        fix="Give every prompt the same columns.",
                    )
            if (prompt.text is None) != (first.text is None):
                raise PromptError(
                    asked=f"prompt {i + 1} of {self.name!r}",
                    found="some prompts are texts and others token ids",
                    fix="Use one kind in a set.",
                )
        unnamed = {*first.columns, *first.scored_columns} - set(self.units)
        if unnamed:
            raise PromptError(
                asked=f"the prompt set {self.name!r}",
                found=f"the columns {sorted(unnamed)} have no unit",
                fix="Name a unit for every column (`label` for names).",
            )

    def __len__(self) -> int:
        return len(self.prompts)

    def __iter__(self) -> Iterator[Prompt]:
        return iter(self.prompts)

    def take(self, chosen: Sequence[int] | np.ndarray) -> "PromptSet":
        """These prompts (numbers from 0), in this order, with their posterior and belief."""
        picked = [int(i) for i in chosen]
        counts = np.array([1 if p.scored is None else len(p.scored) for p in self.prompts])
        ends = np.cumsum(counts)
        rows = np.concatenate([np.arange(ends[i] - counts[i], ends[i]) for i in picked])
        ids = self.outcome_ids
        return replace(
            self,
            prompts=[self.prompts[i] for i in picked],
            clusters=None if self.clusters is None else self.clusters.take(picked),
            posterior=None if self.posterior is None else self.posterior[rows],
            belief=None if self.belief is None else self.belief[rows],
            outcome_ids=ids if ids is None or ids.ndim == 1 else ids[picked],
        )

    def draw(self, n: int | None, seed: int, how: str, choose: Callable[[int], np.ndarray]) -> "PromptSet":
        """The `n` prompts that `choose(n)` numbers (None: all), with `, how` in `source`; `PromptError` if too few."""
        if n is None:
            return self
        if not 1 <= n <= len(self):
            raise PromptError(
                asked=f"{n} prompts of {self.name!r}",
                found=f"it has {len(self)}",
                fix=f"Ask for 1 to {len(self)}, or leave the number out.",
            )
        source = f"{n} (drawn with seed {seed}{how}) of {self.source or self.name}"
        return replace(self.take(choose(n)), source=source, seed=seed)

    def outcomes_of(self, prompt: np.ndarray) -> np.ndarray:
        """The token ids of the posterior `[row, outcome]` for rows of these prompts; no columns without one."""
        ids = np.empty(0, dtype=np.int64) if self.outcome_ids is None else self.outcome_ids
        return ids[prompt] if ids.ndim == 2 else np.broadcast_to(ids, (len(prompt), len(ids)))

    @property
    def cluster_codes(self) -> np.ndarray:
        """The cluster of every prompt, as a number; each its own before `clusters` are found."""
        return np.arange(len(self)) if self.clusters is None else self.clusters.code

    def described(self) -> dict[str, Any]:
        """The fields as plain values, without prompts, clusters, posterior and belief."""
        said = {f.name: getattr(self, f.name) for f in fields(self) if f.compare and f.name != "prompts"}
        return said | {"units": dict(self.units)}

    def to_frame(self) -> "pandas.DataFrame":
        """One prompt per row: text or token ids, scored positions, and the columns as JSON."""
        import pandas

        rows = [
            {
                "text": p.text,
                "token_ids": None if p.token_ids is None else list(p.token_ids),
                "columns": json.dumps(dict(p.columns)),
                "scored": None if p.scored is None else list(p.scored),
                "scored_columns": json.dumps(dict(p.scored_columns)),
            }
            for p in self.prompts
        ]
        return pandas.DataFrame(rows)

    @property
    def is_text(self) -> bool:
        """Whether the prompts are texts, not token ids."""
        return self.prompts[0].text is not None

    @property
    def is_tunnel(self) -> bool:
        """Whether these are a wind tunnel's own sequences: token ids whose exact posterior is known."""
        return not self.is_text and self.posterior is not None

    @property
    def content_hash(self) -> str:
        """SHA-256 of texts, ids, columns and scored positions, in order; the name does not count."""
        digest = hashlib.sha256()
        for p in self.prompts:
            content = [
                p.text,
                p.token_ids,
                sorted(p.columns.items()),
                p.scored,
                sorted(p.scored_columns.items()),
            ]
            digest.update(json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
        return digest.hexdigest()


@dataclass(frozen=True)
class Run:
    """A prompt set as a model reads it: the ids, one array a prompt, and what the window left out.

    `window` is the largest number of tokens kept of a text, the beginning-of-text token included; `n_truncated` texts
    lost tokens to it, always from their front. `has_bos` says that every text starts with the token that its tokenizer
    puts there. `notes` say in words whatever else a reader of the numbers should know.
    """

    prompts: PromptSet
    ids: Sequence[Int[np.ndarray, " _pos"]]
    n_truncated: int = 0
    has_bos: bool = False
    window: int | None = None
    notes: tuple[str, ...] = ()

    def take(self, chosen: Sequence[int] | np.ndarray | None) -> "Run":
        """Some of the prompts, in this order; None takes all."""
        return self if chosen is None else Run(self.prompts.take(chosen), [self.ids[int(i)] for i in chosen])

    @property
    def lengths(self) -> Int[np.ndarray, " prompt"]:
        """How many tokens of each prompt are read."""
        return np.array([len(x) for x in self.ids])


Prompts = PromptSet | str | Path | Iterable[Any]
"""What can be given as prompts: a set, a registered name, a file, or whatever holds texts in memory."""
