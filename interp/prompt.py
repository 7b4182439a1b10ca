"""Prompts and prompt sets: texts or token ids with named columns, and a hash of their content."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import index
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from jaxtyping import Int

from interp.errors import Answering, PromptError
from interp.system.calls import AnsweringType
from interp.system.plain_numbers import plain

if TYPE_CHECKING:
    import pandas

Value = str | int | float | bool


@dataclass(frozen=True)
class Clusters:
    """Which prompts belong together: copies, fillings of one template, stretches of one document.

    `code` is the cluster of every prompt, `by` the criterion in words. If the criterion is shared wording, `code_at`
    has the clusters at each threshold that was tried, and `examples` describes some of the largest. `crossed` says if
    the target varies with another column than the clusters.
    """

    code: np.ndarray
    by: str
    code_at: Mapping[float, np.ndarray] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    crossed: str = ""

    @property
    def n(self) -> int:
        return len(np.unique(self.code))

    @property
    def n_at(self) -> dict[float, int]:
        """The number of clusters at each threshold of shared wording."""
        return {threshold: len(np.unique(code)) for threshold, code in self.code_at.items()}

    @property
    def n_effective(self) -> float:
        """(Σ size)² / Σ size²: the effective number of clusters."""
        size = np.unique(self.code, return_counts=True)[1]
        return float(size.sum() ** 2 / np.square(size).sum())

    def take(self, chosen: Sequence[int]) -> "Clusters":
        """The clusters of some prompts, without examples, which may be of other prompts."""
        picked = list(chosen)
        code_at = {threshold: code[picked] for threshold, code in self.code_at.items()}
        return Clusters(self.code[picked], self.by, code_at)


@dataclass(frozen=True, init=False)
class Prompt(metaclass=AnsweringType):
    """One text, or one sequence of token ids, with its columns.

    `columns` hold one value each (`domain`, `k`, ...). Token ids also have `scored` positions, from 0, and
    `scored_columns` with one value for each; a text is scored at its last token. Numbers of numpy, torch and pandas
    become Python's own. Raises `PromptError` for whatever does not fit.

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
            raise _refused("a prompt", "it is either a text or token ids", "Give one of the two.")
        if not isinstance(text, str | None):
            raise _refused("the text of a prompt", f"it is {text!r:.60}", "Give one string, or token_ids=[...].")
        if text is not None and scored is not None:
            found = "they are given with a text, which is scored at its last token"
            raise _refused("scored positions of a prompt", found, "Give token_ids=[...] instead.")
        for given in (columns, scored_columns):
            if not isinstance(given, Mapping):
                raise _refused("columns of a prompt", f"they are {given!r:.60}", 'Give them by name: {"domain": "x"}.')
        kept = {
            "text": plain(text),
            "token_ids": _whole(token_ids, "token_ids"),
            "columns": {name: _single(name, value) for name, value in columns.items()},
            "scored": _whole(scored, "scored"),
            "scored_columns": {name: plain(values) for name, values in scored_columns.items()},
        }
        for name, value in kept.items():
            object.__setattr__(self, name, value)
        n = 1 if self.token_ids is None else len(self.token_ids)
        beyond = [i for i in self.scored or () if not 0 <= i < n]
        if not n or beyond:
            found = f"position {beyond[0]} is scored, of {n} in all" if n else "there are none"
            fix = "Give at least one id, and scored positions from 0 to that of the last."
            raise _refused("token_ids of a prompt", found, fix)
        for name, values in self.scored_columns.items():
            if not isinstance(values, list | tuple) or len(values) != self.n_scored:
                found = f"{name!r} is {values!r:.60}; scored positions: {self.n_scored}"
                raise _refused("scored_columns of a prompt", found, "Give one value for each scored position.")
            kept["scored_columns"][name] = tuple(_single(name, each) for each in values)

    @property
    def n_scored(self) -> int:
        """The number of scored positions."""
        return 1 if self.scored is None else len(self.scored)


def _refused(asked: str, found: str, fix: str) -> PromptError:
    return PromptError(asked=asked, found=found, fix=fix)


def _single(name: str, given: Any) -> Value:
    """A value of a column as a Python value; `PromptError` unless it is one number, truth value or text."""
    value = plain(given)
    if not isinstance(value, Value):
        fix = "Give one number, truth value or text."
        raise _refused(f"the column {name!r} of a prompt", f"it holds {given!r:.60}", fix)
    return value


def _whole(given: Any, name: str) -> tuple[int, ...] | None:
    """Integers as a tuple; `PromptError` for anything else, or more than one row."""
    values = plain(given)
    try:
        return None if values is None else tuple(map(index, values))
    except TypeError as error:
        fix = "Give one row of whole numbers: a list, a tuple or an array of one axis."
        raise _refused(f"{name} of a prompt", f"they are {values!r:.60}", fix) from error


@dataclass(frozen=True, repr=False)
class PromptSet(Answering, metaclass=AnsweringType):
    """Named prompts, all texts (strings or `Prompt`s) or all token ids, with the units of their columns.

    `unit` is what is resampled (`prompt`, `sequence`); `source` says where the set comes from; `window` is how many
    tokens at the end of each text are read (None: all). `posterior` `[row, outcome]` is the exact posterior of every
    scored position, if known, over the token ids `outcome_ids`: `[outcome]` if all prompts share them (a wind tunnel),
    else `[prompt, outcome]`. `belief` `[row, component]` is the exact belief over the latent, if that is more.
    `cluster` names the column that says which prompts belong together, or is `none`. By default it is the column
    `cluster` or `document`; without either, prompts with shared wording form `clusters`, found when they are read.
    `is_templated` texts went through a chat template, which adds the tokenizer's special tokens.
    Raises `PromptError` for an empty set, texts mixed with ids, columns without a unit or not in every prompt, and a
    posterior or belief without a row for each scored position.

    >>> texts = [interp.Prompt("One.", columns={"k": 1}), interp.Prompt("Two.", columns={"k": 2})]
    >>> prompts = interp.PromptSet("counted", texts, units={"k": "1"})
    >>> len(prompts), len(prompts[:1]), prompts[-1].text
    (2, 1, 'Two.')
    """

    _habits = "`prompts[3]` is one prompt; `prompts[:10]`, `prompts[[0, 5]]` and a mask are some of them, as a set."

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
        asked = f"the prompt set {self.name!r}"
        is_table = isinstance(self.prompts, Mapping) or hasattr(self.prompts, "columns")
        if isinstance(self.prompts, str) or is_table or not isinstance(self.prompts, Iterable):
            fix = 'Give a list of texts or of `interp.Prompt`: ["One.", "Two."].'
            raise _refused(asked, f"its prompts are {self.prompts!r:.60}", fix)
        made = [Prompt(each) if isinstance(each, str) else each for each in self.prompts]
        object.__setattr__(self, "prompts", made)
        for i, each in enumerate(made):
            if not isinstance(each, Prompt):
                fix = "Give texts or `interp.Prompt`s; of token ids interp.Prompt(token_ids=[...])."
                raise _refused(f"prompt {i + 1} of {self.name!r}", f"it is {each!r:.60}", fix)
        if all(prompt.scored == () for prompt in made):
            found = "no position is scored" if made else "it is empty"
            raise _refused(asked, found, "Give at least one prompt; the statistics want a hundred or more.")
        first = made[0]
        for i, prompt in enumerate(made):
            for kind in ("columns", "scored_columns"):
                mine, theirs = getattr(prompt, kind).keys(), getattr(first, kind).keys()
                if mine != theirs:
                    found = f"it has the {kind.replace('_', ' ')} {sorted(mine)}, the first prompt has {sorted(theirs)}"
                    raise _refused(f"prompt {i + 1} of {self.name!r}", found, "Give every prompt the same columns.")
            if (prompt.text is None) != (first.text is None):
                found = "some prompts are texts and others token ids"
                raise _refused(f"prompt {i + 1} of {self.name!r}", found, "Use one kind in a set.")
        if not isinstance(self.units, Mapping):
            raise _refused(asked, f"its units are {self.units!r:.60}", 'Give them by column: {"k": "1"}.')
        unnamed = {*first.columns, *first.scored_columns} - self.units.keys()
        if unnamed:
            found = f"the columns {sorted(unnamed)} have no unit"
            raise _refused(asked, found, "Name a unit for every column (`label` for names).")
        n_rows = sum(prompt.n_scored for prompt in made)
        for name in ("posterior", "belief", "outcome_ids"):
            given = getattr(self, name)
            found = None if given is None else np.asarray(plain(given)) if not isinstance(given, np.ndarray) else given
            object.__setattr__(self, name, found)
            if found is not None and name != "outcome_ids" and (found.ndim != 2 or len(found) != n_rows):
                shapes = f"its {name} has the shape {found.shape}; scored positions: {n_rows}"
                raise _refused(asked, shapes, "Give one row for each scored position, prompt by prompt.")
        if self.posterior is not None:
            outcomes, ids = self.posterior.shape[1:], getattr(self.outcome_ids, "shape", ())
            if ids not in (outcomes, (len(made), *outcomes)):
                found = f"its posterior has {outcomes[0]} outcomes, and outcome_ids the shape {ids}"
                raise _refused(asked, found, "Give the token id of each outcome: [outcome], or [prompt, outcome].")

    def __len__(self) -> int:
        return len(self.prompts)

    def __iter__(self) -> Iterator[Prompt]:
        return iter(self.prompts)

    @overload
    def __getitem__(self, chosen: int, /) -> Prompt: ...

    @overload
    def __getitem__(self, chosen: slice | Sequence[int] | np.ndarray, /) -> "PromptSet": ...

    def __getitem__(self, chosen: Any, /) -> "Prompt | PromptSet":
        """One prompt by its number; by a slice, several numbers or a mask a set of them."""
        try:
            picked = np.arange(len(self))[list(chosen) if isinstance(chosen, tuple) else plain(chosen)].tolist()
        except IndexError:
            picked = []
        if isinstance(picked, int):
            return self.prompts[picked]
        if not picked or not isinstance(picked[0], int):
            fix = f"Name one or several from 0 to {len(self) - 1}, or give {len(self)} truth values."
            raise _refused(f"some prompts of {self.name!r}", f"they are {chosen!r:.60}", fix)
        counts = np.array([prompt.n_scored for prompt in self])
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
            fix = f"Ask for 1 to {len(self)}, or leave the number out."
            raise _refused(f"{n} prompts of {self.name!r}", f"it has {len(self)}", fix)
        source = f"{n} (drawn with seed {seed}{how}) of {self.source or self.name}"
        return replace(self[choose(n)], source=source, seed=seed)

    def outcomes_of(self, prompt: np.ndarray) -> np.ndarray:
        """The token ids of the posterior `[row, outcome]` for rows of these prompts; no columns without one."""
        ids = np.empty(0, dtype=np.int64) if self.outcome_ids is None else self.outcome_ids
        return ids[prompt] if ids.ndim == 2 else np.broadcast_to(ids, (len(prompt), len(ids)))

    @property
    def cluster_codes(self) -> np.ndarray:
        """The cluster of every prompt; before `clusters` are known every prompt is its own."""
        return np.arange(len(self)) if self.clusters is None else self.clusters.code

    def described(self) -> dict[str, Any]:
        """The fields as plain values, without prompts, clusters, posterior and belief."""
        described = {f.name: getattr(self, f.name) for f in fields(self) if f.compare and f.name != "prompts"}
        return described | {"units": dict(self.units)}

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
        return self[0].text is not None

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
    """A prompt set as a model reads it: one array of ids per prompt.

    `window` is the largest number of tokens of a text, with the beginning-of-text token; `n_truncated` texts were cut
    to it at their front. `has_bos` says whether every text starts with the tokenizer's first token. `notes` are further
    facts for readers of the numbers.
    """

    prompts: PromptSet
    ids: Sequence[Int[np.ndarray, " _pos"]]
    n_truncated: int = 0
    has_bos: bool = False
    window: int | None = None
    notes: tuple[str, ...] = ()

    def take(self, chosen: Sequence[int] | np.ndarray | None) -> "Run":
        """Some of the prompts, by number or by a truth value for each, in this order; None takes all."""
        if chosen is None:
            return self
        return Run(self.prompts[chosen], [self.ids[i] for i in np.arange(len(self.ids))[np.asarray(chosen)]])

    @property
    def lengths(self) -> Int[np.ndarray, " prompt"]:
        """The number of tokens of each prompt."""
        return np.array([len(x) for x in self.ids])


Prompts = PromptSet | str | Path | Iterable[Any]
"""What can be given as prompts: a set, a registered name, a file, or texts in memory."""
