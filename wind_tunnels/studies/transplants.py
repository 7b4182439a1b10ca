"""The study `transplants`: does the stream of a position inside the loss horizon restore the prediction beyond it?

At a position beyond the horizon the residual stream of a program x[t + 1] = a x[t] + b is replaced by that of a donor,
the last position inside the horizon of a sequence that begins later:

    matched      the sequence's own last values: same program, same value, same answer
    mismatched   another program at the same value
    random       noise ending in the same value
    update       only what the blocks added is replaced, from another program or from the same one at another value

Behind the last block the stream is the donor's answer, so restoring it there is a copy; only earlier depths are
informative. There the matched stream is also rotated within the span of the hypotheses' embeddings, its complement and
random subspaces.

Source: the authors' construction-boundary experiments (July 2026).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

import interp
from interp.edit import Edit
from interp.model import Model
from interp.need import Need
from interp.statistics.cosines import random_rotations, random_subspace
from interp.tunnel import Task

from .moving_programs import ending_in, modulus, moving_programs, onward, predicted_values, prompts_of, run
from .over_seeds import TunnelStudy

STREAM, PREDICTED = Need("resid"), Need("next_log_prob")
N_RANDOM = 20
MOST_DEPTH = 17
_UPDATES = ("elsewhere", "same_program")
"""Donors at another value, of which the update alone is taken."""
_CHANCE = "a uniform guess"
_RANDOM_DONOR, _UNEDITED = "noise that ends in the same value", "the unedited prediction"
_OTHER_UPDATE, _SUBSPACE = "the update of another program", "random subspaces of the same dimension"

_BY_DEPTH = {
    "rescued": (_RANDOM_DONOR, "how often the right value is predicted with a matched donor's stream"),
    "redirected": (_UNEDITED, "how often the donor's value is predicted with the stream of a mismatched donor"),
    "update_redirected": (_UNEDITED, "the same with the update alone, of a donor at another value"),
    "update_rescued": (_OTHER_UPDATE, "how often the right value is predicted with the update alone of the same "
                       "program at another value"),
}  # fmt: skip
_NUMBERS: Mapping[str, tuple[str, str, str]] = {
    "donor_accuracy": ("share", _CHANCE, "how often the right value is predicted inside the horizon"),
    "unedited_accuracy": ("share", _CHANCE, "how often it is predicted beyond the horizon"),
    **{
        f"{of}_depth{depth}": ("share", null, f"{meaning}, at depth {depth}")
        for of, (null, meaning) in _BY_DEPTH.items()
        for depth in range(1, MOST_DEPTH)
    },
    "frame_rotated": ("share", _SUBSPACE,
                      "how often the matched donor's answer survives a rotation within the hypotheses' embeddings"),
    "complement_rotated": ("share", _SUBSPACE, "how often it survives a rotation within their complement"),
}  # fmt: skip


@dataclass(frozen=True)
class Transplants(TunnelStudy):
    """Recurrence networks (a name or a folder pattern with `*`), `n` programs each, read after `seen` values."""

    tunnels: str = "tunnel:recurrence-gpt-neox-horizon"
    horizon: int = 5
    seen: int = 7
    n: int = 400
    seed: int = 0

    name: ClassVar[str] = "transplants"
    question: ClassVar[str] = "Does the stream of a position inside the loss horizon restore the prediction beyond it?"

    headline = ("rescued_depth1", "redirected_depth1")
    notes = ("Depth 1 lies behind the first block.",)
    numbers = _NUMBERS

    @property
    def rules(self) -> Mapping[str, int]:  # pyrefly: ignore[bad-override]
        return {"horizon": 4, "seen": self.horizon + 1, "n": 20}

    def read(self, model: Model, task: Task) -> dict[str, tuple[float, float]]:
        import torch

        from interp.reading.lens import Lens
        from interp.system.float64 import double

        p = modulus(task, self)
        rng, n_shown = np.random.default_rng(self.seed), self.horizon - 1
        program, other = moving_programs(rng, self.n, p)
        own = run(program, rng, self.seen + 1, p)
        current, answer = own[:, self.seen - 1], own[:, self.seen]
        elsewhere = (current + rng.integers(1, p, self.n)) % p
        windows = {
            "matched": own[:, self.seen - n_shown : self.seen],
            "mismatched": ending_in(other, current, n_shown, p),
            "random": np.concatenate([rng.integers(p, size=(self.n, n_shown - 1)), current[:, None]], axis=1),
            "elsewhere": ending_in(other, elsewhere, n_shown, p),
            "same_program": ending_in(program, elsewhere, n_shown, p),
        }
        donors = {name: interp.collect(model, prompts_of(shown, p), [STREAM, PREDICTED])
                  for name, shown in windows.items()}  # fmt: skip
        recipients = prompts_of(own[:, : self.seen], p)
        before = interp.collect(model, recipients, [STREAM, PREDICTED])
        streams = {name: read[STREAM].astype(np.float64) for name, read in donors.items()}
        mine = before[STREAM].astype(np.float64)

        def predicted(depth: int, values: Float[np.ndarray, "row feature"]) -> Int[np.ndarray, " row"]:
            edits: list[Edit] = [
                interp.ReplaceCoordinates(
                    layer=depth, site="resid", axis=np.eye(values.shape[1]), values=values, at="scored"
                )
            ]
            return predicted_values(interp.collect(model, recipients, [PREDICTED], edits=edits)[PREDICTED], p)

        def share(found: np.ndarray, sought: np.ndarray) -> float:
            return float((found == sought).mean())

        theirs = {name: onward(program if name in ("matched", "same_program") else other, values[:, -1], p)
                  for name, values in windows.items()}  # fmt: skip
        unedited = predicted_values(before[PREDICTED], p)
        found = {
            "donor_accuracy": (share(predicted_values(donors["matched"][PREDICTED], p), answer), 1 / p),
            "unedited_accuracy": (share(unedited, answer), 1 / p),
        }
        for depth in range(1, len(mine)):
            after = {}
            for name, stream in streams.items():
                values = mine[0] + stream[depth] - stream[0] if name in _UPDATES else stream[depth]
                after[name] = predicted(depth, values)
            for of, edited, chance, sought in (
                ("rescued", after["matched"], after["random"], answer),
                ("redirected", after["mismatched"], unedited, theirs["mismatched"]),
                ("update_redirected", after["elsewhere"], unedited, theirs["elsewhere"]),
                ("update_rescued", after["same_program"], after["elsewhere"], answer),
            ):
                found[f"{of}_depth{depth}"] = share(edited, sought), share(chance, sought)
        embedding = model.module.get_input_embeddings().weight[:p]  # pyrefly: ignore
        embedding = double(embedding.detach()).numpy()
        basis = np.linalg.svd(embedding - embedding.mean(axis=0))[2].T
        last, k, decode = streams["matched"][-1], p - 1, Lens(model).logits
        pairs = [(random_subspace(len(basis), len(basis), rng), int(rng.integers(2**31))) for _ in range(N_RANDOM)]
        for of, taken in (("frame_rotated", slice(k)), ("complement_rotated", slice(k, None))):
            rotated = [_rotated(last, axes[:, taken], seed) for random, seed in pairs for axes in (basis, random)]
            logits = [decode(torch.from_numpy(rows).float()).numpy() for rows in rotated]
            turned = [share(predicted_values(each, p), answer) for each in logits]
            found[of] = float(np.mean(turned[::2])), float(np.mean(turned[1::2]))
        return found


def _rotated(rows: Float[np.ndarray, "row feature"], axes: np.ndarray, seed: int) -> Float[np.ndarray, "row feature"]:
    """Rows with their coordinates along orthonormal axes rotated at random."""
    turn = random_rotations(axes.shape[1], 1, np.random.default_rng(seed))[0]
    return rows + rows @ axes @ (turn - np.eye(len(turn))) @ axes.T
