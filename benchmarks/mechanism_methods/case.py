"""A compiled program as the methods see it: the model, sequences with exact answers, and values of its variables.

A method has `used_heads(case)`, `depth_of(case, variable)`, `directions(case, variable, depth)` and `matters(case,
direction, depth)`, as far as it can answer these.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from interp.wind_tunnels.programs.noise import Noise, write_noisy
from interp.wind_tunnels.programs.task import Program
from jaxtyping import Float, Int

import interp
from interp.model import Model
from interp.prompt import PromptSet
from interp.tunnel import Sequences

N_SEQUENCES = 60
Change = Callable[[torch.Tensor], torch.Tensor]
"""Maps the residual stream `[sequence, position, d_model]` to its replacement."""


@dataclass(frozen=True)
class Case:
    """One program under one noise, and one draw of sequences."""

    program: str
    noise: Noise
    model: Model
    sequences: Sequences
    donors: Int[np.ndarray, " sequence"]

    @classmethod
    def of(cls, program: str, noise: Noise, n_sequences: int = N_SEQUENCES) -> "Case":
        """The program with this noise; `noise.seed` draws the sequences and their donors too."""
        folder = Path(tempfile.mkdtemp(prefix="program-"))
        write_noisy(program, noise, folder)
        model = interp.load(str(folder), check=False)  # overlapping directions and hard attention magnify rounding
        return cls._drawn(program, noise, model, noise.seed, n_sequences)

    @classmethod
    def _drawn(cls, program: str, noise: Noise, model: Model, seed: int, n: int) -> "Case":
        order = np.random.default_rng([seed, 7]).permutation(n)
        donors = np.empty_like(order)
        donors[order] = np.roll(order, 1)  # no sequence is its own donor
        return cls(program, noise, model, Program(program).sample(np.random.default_rng(seed), n), donors)

    def redrawn(self) -> "Case":
        """Other sequences of the same model."""
        return self._drawn(self.program, self.noise, self.model, self.noise.seed + 1000, len(self.donors))

    @cached_property
    def prompts(self) -> PromptSet:
        """The same sequences as `interp` takes them."""
        return interp.sampled_prompts(Program(self.program), len(self.sequences.tokens), self.noise.seed)

    @property
    def module(self) -> torch.nn.Module:
        return self.model.module

    @cached_property
    def tokens(self) -> torch.Tensor:
        return torch.from_numpy(self.sequences.tokens)

    @cached_property
    def scored(self) -> torch.Tensor:
        return torch.from_numpy(np.asarray(self.sequences.scored))

    @property
    def n_layers(self) -> int:
        return self.model.info.n_layers

    @property
    def heads(self) -> list[tuple[int, int]]:
        return [(layer, head) for layer in range(self.n_layers) for head in range(self.model.info.n_heads)]

    @cached_property
    def answers(self) -> Int[np.ndarray, "sequence scored"]:
        """The exact answers, counted from the first outcome."""
        return np.asarray(self.sequences.targets) - int(self.sequences.slice_ids[0])

    @cached_property
    def outcomes(self) -> torch.Tensor:
        """Token ids of the answers."""
        return torch.from_numpy(np.asarray(self.sequences.slice_ids))

    def labels(self, variable: str) -> np.ndarray:
        """The variable at every scored position: `[sequence, scored]`."""
        return np.asarray(self.sequences.columns[variable])

    @property
    def variables(self) -> list[str]:
        """Variables in the residual stream that vary and are read after the depth at which they appear."""
        m = self.model.mechanism
        return [name for name in self.model.task.columns if m.variable(name) and len(np.unique(self.labels(name))) > 1
                and m.is_read(name, m.first_depth(name))]  # fmt: skip

    @torch.inference_mode()
    def log_probs(self, changes: Sequence[tuple[int, Change]] = ()) -> Float[torch.Tensor, "sequence scored outcome"]:
        """Log probabilities of the outcomes at the scored positions, under changes of the stream at some depths."""
        kept = [self.at(depth).register_forward_pre_hook(_changing(change)) for depth, change in changes]
        try:
            logits = self.module(self.tokens).logits[:, self.scored]
        finally:
            for hook in kept:
                hook.remove()
        return logits[..., self.outcomes].double().log_softmax(-1)

    @torch.inference_mode()
    def stream(self, depth: int) -> Float[torch.Tensor, "sequence position d_model"]:
        """The residual stream before a layer, or after the last one at depth `n_layers`."""
        seen = []
        self.log_probs([(depth, lambda x: seen.append(x.clone()) or x)])
        return seen[0]

    def scored_stream(self, depth: int) -> Float[np.ndarray, "sequence scored d_model"]:
        return self.stream(depth)[:, self.scored].double().numpy()

    def swap(self, frame: Float[np.ndarray, "axis d_model"], depth: int, at: slice = slice(None)) -> Change:
        """A change to the donors' coordinates along orthonormal rows, at the scored positions or those of `at`."""
        rows = torch.from_numpy(np.asarray(frame, dtype=np.float32))
        places = self.scored[at]
        theirs = self.stream(depth)[self.donors][:, places]

        def change(x: torch.Tensor) -> torch.Tensor:
            x = x.clone()
            x[:, places] += (theirs - x[:, places]) @ rows.T @ rows
            return x

        return change

    def interchange_accuracy(self, frame: Float[np.ndarray, "axis d_model"], variable: str, depth: int) -> float:
        """The share of answers that become the program's for the donor's value, of those that should change."""
        answered = self.log_probs([(depth, self.swap(frame, depth))]).argmax(-1).numpy()
        expected = self.expected(variable, depth)
        moved = expected != self.answers
        return float((answered == expected)[moved].mean()) if moved.any() else np.nan

    def expected(self, variable: str, depth: int, at: slice = slice(None)) -> Int[np.ndarray, "sequence scored"]:
        tokens = self.sequences.tokens
        return self.model.mechanism.swapped(variable, depth, tokens, tokens[self.donors], self.scored[at].numpy())

    def first_patched(
        self, variable: str, frame_at: Callable[[int], np.ndarray], answered: Callable[[int, Change], np.ndarray]
    ) -> int:
        """The first depth where patching one position at a time moves its answer as the program says.

        `answered(depth, change)` returns a method's answers under a patch.
        """
        places = [slice(i, i + 1) for i in range(len(self.scored))]
        first = self.model.mechanism.first_depth(variable)
        expected = np.concatenate([self.expected(variable, first, at) for at in places], axis=1)
        moved = expected != self.answers
        if not moved.any():
            return 0
        found = []
        for depth in range(self.n_layers + 1):
            frame = frame_at(depth)
            got = [answered(depth, self.swap(frame, depth, at))[:, at] for at in places]
            found.append(float((np.concatenate(got, axis=1) == expected)[moved].mean()))
        return first_above_half(found)

    def at(self, depth: int) -> torch.nn.Module:
        return self.module.layers[depth] if depth < self.n_layers else self.module.final_norm


def orthonormal(rows: Float[np.ndarray, "axis d_model"], tolerance: float = 1e-6) -> Float[np.ndarray, "kept d_model"]:
    """An orthonormal basis of the span of the rows."""
    _, sizes, frame = np.linalg.svd(rows, full_matrices=False)
    return frame[sizes > tolerance * max(float(sizes[0]), 1e-12)]


def class_means(points: Float[np.ndarray, "row d_model"], labels: np.ndarray) -> Float[np.ndarray, "value d_model"]:
    """The mean of each value of a label, less the mean of these."""
    means = np.stack([points[labels == value].mean(axis=0) for value in np.unique(labels)])
    return means - means.mean(axis=0)


def first_above_half(by_depth: Sequence[float]) -> int:
    """The first depth with at least half of the largest value."""
    values = np.nan_to_num(np.asarray(by_depth, dtype=float))
    return int(np.argmax(values >= values.max() / 2))


def _changing(change: Change) -> Callable[..., tuple[torch.Tensor, ...]]:
    return lambda module, args: (change(args[0]), *args[1:])
