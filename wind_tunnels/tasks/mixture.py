"""Mixture: several tasks, of which a sequence shows one, named by its first token.

The tokens of the components have ids of their own (`symbols` = `disjoint`) or `shared` ones. The posterior is that of
the component, and zero on outcomes of others.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Int

from interp.errors import named
from interp.registry import load_entry
from interp.tunnel import Sequences, Task, make_task

from ..validation import Conflict
from .shipped_task import ShippedTask

Components = Sequence[Mapping[str, Any]]
Symbols = Literal["disjoint", "shared"]

PRESETS: Mapping[str, tuple[Components, Symbols]] = {
    "different": (
        (
            {"task": "coin", "n_tosses": 12, "concentration": (0.3,) * 10},
            {"task": "regression", "L": 12, "noise": 0.4},
        ),
        "disjoint",
    ),
    "same": (({"task": "bijection", "V": 8, "L": 10}, {"task": "bijection", "V": 8, "L": 10}), "shared"),
}


@dataclass(frozen=True)
class Mixture(ShippedTask):
    """Sequences of several tasks of equal length and equal scored positions, behind a domain token.

    `components` is a preset (`different`, `same`) or a list of tasks with their parameters: [{"task": "bijection", "V":
    5, "L": 4}, {"task": "coin", "n_tosses": 4}]. `symbols` are `disjoint` or `shared` (default: as the preset says,
    `disjoint` for a list). Domain tokens are the ids 0 … C − 1 of C components.
    """

    components: str | Components = field(default="different", hash=False)
    symbols: Symbols | None = None

    name: ClassVar[str] = "mixture"
    question: ClassVar[str] = "Does one network keep several posteriors apart, and does a domain alone look simpler?"

    def __post_init__(self) -> None:
        if isinstance(self.components, str):
            named("mixture", self.components, PRESETS)
        else:
            entries: object = self.components
            if not isinstance(entries, Sequence) or not all(isinstance(e, Mapping) and "task" in e for e in entries):
                raise self.refusal(
                    f"components = {entries!r}",
                    'Give a preset (different, same) or a list such as [{"task": "coin"}, {"task": "regression"}].',
                )
            if len(entries) < 2:
                raise self.refusal(f"{len(entries)} component", "A mixture has two or more.")
            object.__setattr__(self, "components", _settled(self.components))
        super().__post_init__()

    def conflicts(self) -> Iterator[Conflict]:
        for what, found in {
            "lengths, in tokens": [task.n_positions for task in self.tasks],
            "scored positions": [example.scored.tolist() for example in self._examples],
        }.items():
            listed = ", ".join(f"{name} {value}" for name, value in zip(self.domains, found, strict=True))
            differ = any(other != found[0] for other in found)
            yield differ, f"components of different {what}: {listed}", "Choose sizes that make them equal."
        sliced = [n for n, e in zip(self.domains, self._examples, strict=True) if e.outcome_slice is not None]
        found = f"{', '.join(sliced)} asks different questions at different positions"
        yield bool(sliced), found, "Have it predict one thing only."

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """The components, in the order of their domain tokens."""
        entries = PRESETS[self.components][0] if isinstance(self.components, str) else self.components
        return tuple(
            make_task(load_entry("tunnel", e["task"]), {k: v for k, v in e.items() if k != "task"}) for e in entries
        )

    @cached_property
    def domains(self) -> tuple[str, ...]:
        """The names of the components in `domain`: those of their tasks, numbered if repeated."""
        names = [task.name for task in self.tasks]
        return tuple(
            name if names.count(name) == 1 else f"{name}-{names[: i + 1].count(name)}" for i, name in enumerate(names)
        )

    @property
    def vocab_size(self) -> int:
        return max(first + task.vocab_size for first, task in zip(self._first_ids, self.tasks, strict=True))

    @property
    def n_positions(self) -> int:
        return 1 + self.tasks[0].n_positions

    def sample(self, rng: np.random.Generator, n: int) -> Sequences:
        component = rng.integers(len(self.tasks), size=n)
        counts = np.bincount(component, minlength=len(self.tasks))
        return self._mixed(component, [task.sample(rng, int(k)) for task, k in zip(self.tasks, counts, strict=True)])

    def sample_orbits(self, rng: np.random.Generator, n: int, n_copies: int) -> Sequences:
        """Equally many sequences of each component (± 1), in groups of relabellings."""
        order = rng.permutation(len(self.tasks))
        component = np.sort(np.arange(n) % len(self.tasks))
        counts = np.bincount(component, minlength=len(self.tasks))[np.argsort(order)]
        parts = [task.sample_orbits(rng, int(k), n_copies) for task, k in zip(self.tasks, counts, strict=True)]
        return self._mixed(order[component], parts)

    def curriculum(self) -> tuple["Mixture", ...]:
        """The stages of all components in parallel; those with fewer stay at their last."""
        stages = [task.curriculum() for task in self.tasks]
        earlier = range(max(map(len, stages)) - 1)
        return (*(self._of([own[min(k, len(own) - 1)] for own in stages]) for k in earlier), self)

    def lengthened(self, n_observations: int) -> "Mixture":
        """The mixture with every component over `n_observations`."""
        return self._of([task.lengthened(n_observations) for task in self.tasks])

    def _of(self, tasks: Sequence[Task]) -> "Mixture":
        entries = [{"task": task.name, **task.describe()} for task in tasks]
        return replace(self, components=entries, symbols=self._symbols)

    @property
    def _symbols(self) -> Symbols:
        if self.symbols is not None:
            return self.symbols
        return PRESETS[self.components][1] if isinstance(self.components, str) else "disjoint"

    @cached_property
    def _examples(self) -> tuple[Sequences, ...]:
        """One sequence of each component, for scored positions, slices and the width of the belief."""
        return tuple(task.sample(np.random.default_rng(0), 1) for task in self.tasks)

    @cached_property
    def _first_ids(self) -> tuple[int, ...]:
        """The id that each component's token 0 becomes."""
        n_domains = len(self.tasks)
        if self._symbols == "shared":
            return (n_domains,) * n_domains
        return tuple(n_domains + sum(t.vocab_size for t in self.tasks[:i]) for i in range(n_domains))

    def _mixed(self, component: Int[np.ndarray, " sequence"], parts: Sequence[Sequences]) -> Sequences:
        """The sequences of `parts` in the order of `component`, in the vocabulary of the mixture."""
        n, n_scored = len(component), len(self._examples[0].scored)
        ids = [first + e.slice_ids for first, e in zip(self._first_ids, self._examples, strict=True)]
        slice_ids = np.unique(np.concatenate(ids))
        tokens = np.empty((n, self.n_positions), dtype=np.int64)
        tokens[:, 0] = component
        targets = np.empty((n, n_scored), dtype=np.int64)
        posterior = np.zeros((n, n_scored, len(slice_ids)))
        kinds = {name: np.result_type(*(example.columns[name] for example in self._examples)) for name in self.units}
        columns = {name: np.empty((n, n_scored), dtype=kind) for name, kind in kinds.items()}
        widths = [_belief(example).shape[-1] for example in self._examples]
        belief = np.zeros((n, n_scored, sum(widths)))
        for i, part in enumerate(parts):
            rows = np.flatnonzero(component == i)
            tokens[rows, 1:] = part.tokens + self._first_ids[i]
            targets[rows] = part.targets + self._first_ids[i]
            posterior[np.ix_(rows, np.arange(n_scored), np.searchsorted(slice_ids, ids[i]))] = part.posterior
            belief[rows, :, sum(widths[:i]) : sum(widths[: i + 1])] = _belief(part)
            for name, column in columns.items():
                column[rows] = part.columns[name] + (name == "position")
        has_belief = any(example.belief is not None for example in self._examples)
        return Sequences(
            tokens, 1 + self._examples[0].scored, targets, posterior, slice_ids, columns,
            np.array(self.domains)[component], belief if has_belief else None,
        )  # fmt: skip


def _settled(value: Any) -> Any:
    """Plain data with every list as a tuple, so that data from Python and from JSON are equal."""
    if isinstance(value, Mapping):
        return {key: _settled(each) for key, each in value.items()}
    return tuple(map(_settled, value)) if isinstance(value, list | tuple) else value


def _belief(sequences: Sequences) -> np.ndarray:
    return sequences.posterior if sequences.belief is None else sequences.belief
