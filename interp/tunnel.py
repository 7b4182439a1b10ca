"""Wind tunnels: tasks whose exact Bayesian posterior is known.

A task draws sequences with the posterior of an ideal observer at every scored position. Tasks are found through entry
points (`interp.tunnels`: `bijection = "interp.wind_tunnels.tasks.bijection:Bijection"`), their trained networks in
`<task>-<arch>[-<variant>]/` in the folder that the task names.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from interp.capture import Mechanism
from interp.errors import UsageError

REQUIRED_UNITS: Mapping[str, str] = {
    "position": "tokens",
    "evidence": "observations",
    "bayes_entropy_bits": "bits",
}


@dataclass(frozen=True)
class Sequences:
    """A sample of a task: the tokens that a network reads, scored positions, and exact posteriors.

    `scored` are the positions whose logits are read, the same in every sequence; the logits at a scored
    position predict `targets` (token ids). `posterior` is the exact distribution of the target given
    everything up to and including that position, over the token ids `slice_ids`. `columns` hold what is
    known of each scored position (`position`, `evidence`: observations before it, `bayes_entropy_bits`, and
    whatever the task adds), `domain` a name for each sequence. Raises `ValueError` where a column is
    missing or has another shape.

    `belief` is the ideal observer's belief about the latent of the process, such as the distribution over hidden
    states; None if that is the posterior itself. If positions ask different questions, `outcome_slice` names the slice
    of the vocabulary that each outcome belongs to and `scored_slice` the one that each scored position asks for (the
    posterior is zero outside it); the first outcome belongs to the primary slice, which headline figures are about.

    `windows` holds, by w, the posterior of a reader who sees only the last w observations; empty if there is none.
    """

    tokens: Int[np.ndarray, "sequence pos"]
    scored: Int[np.ndarray, " scored"]
    targets: Int[np.ndarray, "sequence scored"]
    posterior: Float[np.ndarray, "sequence scored outcome"]
    slice_ids: Int[np.ndarray, " outcome"]
    columns: Mapping[str, np.ndarray]
    domain: Shaped[np.ndarray, " sequence"]
    belief: Float[np.ndarray, "sequence scored component"] | None = None
    outcome_slice: Shaped[np.ndarray, " outcome"] | None = None
    scored_slice: Shaped[np.ndarray, " scored"] | None = None
    windows: Mapping[int, Float[np.ndarray, "sequence scored outcome"]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.outcome_slice is None) != (self.scored_slice is None):
            raise ValueError("slices are named for outcomes and scored positions both, or for neither")
        missing = set(REQUIRED_UNITS) - set(self.columns)
        if missing:
            raise ValueError(f"columns {sorted(missing)} are missing; there are {sorted(self.columns)}")
        wrong = {name: c.shape for name, c in self.columns.items() if c.shape != self.targets.shape}
        if wrong:
            raise ValueError(f"columns of shape {wrong}, but targets of shape {self.targets.shape}")

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, rows: Int[np.ndarray, " row"] | slice) -> "Sequences":
        """The sequences that an index array or a slice picks."""
        return self._along("sequence", rows)

    def at(self, which: Int[np.ndarray, " chosen"] | Bool[np.ndarray, " scored"] | slice) -> "Sequences":
        """The same sequences, scored only at these of their scored positions."""
        return self._along("scored", which)

    def _along(self, axis: str, which: np.ndarray | slice) -> "Sequences":
        """Select entries along one axis of every array that has it."""
        picked = {}
        for name, axes in _AXES.items():
            value = getattr(self, name)
            if axis in axes and value is not None:
                entries = (*(slice(None) for _ in axes[: axes.index(axis)]), which)
                many = isinstance(value, Mapping)
                picked[name] = {key: array[entries] for key, array in value.items()} if many else value[entries]
        return dataclasses.replace(self, **picked)

    @property
    def last(self) -> "Sequences":
        """The same sequences, scored only at their last scored position."""
        return self.at(slice(-1, None))

    @property
    def slices(self) -> tuple[str, ...]:
        """The names of the slices, the primary one first; empty if there is only one."""
        return () if self.outcome_slice is None else tuple(dict.fromkeys(self.outcome_slice.tolist()))

    def only(self, name: str) -> "Sequences":
        """The same sequences, with only the scored positions and outcomes of one slice."""
        assert self.outcome_slice is not None and self.scored_slice is not None
        asked = self.at(self.scored_slice == name)._along("outcome", self.outcome_slice == name)
        return dataclasses.replace(asked, outcome_slice=None, scored_slice=None)


_SCORED = ("sequence", "scored")
_AXES = {
    "tokens": ("sequence", "pos"), "scored": ("scored",), "targets": _SCORED, "posterior": (*_SCORED, "outcome"),
    "slice_ids": ("outcome",), "columns": _SCORED, "domain": ("sequence",), "belief": (*_SCORED, "component"),
    "outcome_slice": ("outcome",), "scored_slice": ("scored",), "windows": (*_SCORED, "outcome"),
}  # fmt: skip
"""The axes of the arrays of `Sequences`."""


@dataclass(frozen=True)
class Task(ABC):
    """A generative process with a known posterior: a final frozen dataclass whose fields are its parameters.

    The constructor raises `UsageError` for impossible sizes.
    """

    name: ClassVar[str]
    question: ClassVar[str]
    checkpoints: ClassVar[Path]
    units: ClassVar[Mapping[str, str]] = REQUIRED_UNITS

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """How many token ids there are; a network needs as many."""

    @property
    @abstractmethod
    def n_positions(self) -> int:
        """The length of a sequence, in tokens."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, n: int) -> Sequences:
        """Draw `n` independent sequences, at least 1."""

    def sample_orbits(self, rng: np.random.Generator, n: int, n_copies: int) -> Sequences:
        """Draw `n` sequences in groups of up to `n_copies` that are relabellings of one another.

        Each sequence alone is distributed as in `sample`; together they are balanced, which lowers the
        noise of a training batch. A task without a symmetry draws independent ones.
        """
        return self.sample(rng, n)

    def curriculum(self) -> tuple["Task", ...]:
        """Variants from the easiest to the task itself, all with one posterior rule; mostly one stage."""
        return (self,)

    def lengthened(self, n_observations: int) -> "Task":
        """The same task over another number of observations, for a network that was trained on this one.

        The vocabulary and the posterior's rule stay as they are; the positions beyond `n_positions` of the trained
        task are extrapolation. `UsageError` where the task has no such variant.
        """
        raise UsageError(
            asked=f"the task {self.name!r} over {n_observations} observations",
            found="its length cannot be changed without making it another task",
            fix="Evaluate it at the length it was trained on.",
        )

    def with_copied_context(self, sequences: Sequences, n_shown: int, n_copies: int) -> Sequences:
        """The question after the first `n_shown` observations, which are shown `n_copies` times.

        Scored only at the last position, with its exact posterior. `UsageError` if repeated evidence would count twice,
        or the sequence would be longer than `n_positions`.
        """
        raise UsageError(
            asked=f"the task {self.name!r} with its context copied",
            found="an observation that is shown again is one more observation here, and changes the posterior",
            fix="Use a task that repeats evidence without counting it twice, such as bijection with replacement.",
        )

    def mechanism(self, folder: Path) -> Mechanism | None:
        """How the network in this folder computes; None unless it is a compiled program."""
        return None

    def describe(self) -> dict[str, Any]:
        """The parameters by name: `type(task)(**task.describe())` is the same task."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}


def make_task(kind: type[Task], parameters: Mapping[str, Any]) -> Task:
    """The task with these parameters; `UsageError` for unknown names or impossible values."""
    known = [f.name for f in dataclasses.fields(kind)]
    strange = sorted(set(parameters) - set(known))
    if strange:
        raise UsageError(
            asked=f"task {kind.name!r} with {', '.join(strange)}",
            found="it has no such parameter",
            fix=f"Its parameters are {', '.join(known)}.",
        )
    return kind(**parameters)
