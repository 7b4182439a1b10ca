"""The study `transplants`: does the stream of a position inside the loss horizon restore the prediction beyond it?

Networks that were trained on recurrences up to a `horizon` read programs x[t + 1] = a x[t] + b beyond it. At one late
position the stream of a depth is exchanged for that of a donor: the last position inside the horizon of a sequence that
begins later.

    matched      the donor is the sequence's own last values: same program, same value, same answer
    mismatched   another program at the same value: the answer becomes the donor's
    random       noise ending in the same value
    update       the own embedding stays, and what the donor's blocks added replaces what the own blocks added; of a
                 mismatched donor at another value, and of the same program at another value, whose update could bring
                 the own answer only if it held the program rather than the donor's answer

Before it is put in behind the last block, the matched stream is rotated within the span of the hypotheses' embeddings,
within its complement, and within random subspaces of the same dimensions. A stream behind the last block is the donor's
answer: what it restores is no more than a copy, so that the first block is what can tell.

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

from .moving_programs import ending_in, modulus, moving_programs, onward, prompts_of, run
from .moving_programs import said as said_of
from .over_seeds import NetworkStudy

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
_MEANINGS: Mapping[str, tuple[str, str, str]] = {
    "donor_accuracy": ("fraction", _CHANCE, "how often the right value is predicted inside the horizon"),
    "unedited_accuracy": ("fraction", _CHANCE, "how often it is predicted beyond the horizon"),
    **{
        f"{of}_depth{depth}": ("fraction", null, f"{meaning}, at depth {depth}")
        for of, (null, meaning) in _BY_DEPTH.items()
        for depth in range(1, MOST_DEPTH)
    },
    "frame_rotated": ("fraction", _SUBSPACE,
                      "how often the matched donor's answer survives a rotation within the hypotheses' embeddings"),
    "complement_rotated": ("fraction", _SUBSPACE, "how often it survives a rotation within their complement"),
}  # fmt: skip


@dataclass(frozen=True)
class Transplants(NetworkStudy):
    """Recurrence networks (a name, or folders by a pattern with `*`), `n` programs each, read after `seen` values."""

    tunnels: str = "tunnel:recurrence-gpt-neox-horizon"
    horizon: int = 5
    seen: int = 7
    n: int = 400
    seed: int = 0

    name: ClassVar[str] = "transplants"
    question: ClassVar[str] = "Does the stream of a position inside the loss horizon restore the prediction beyond it?"

    headline = ("rescued_depth1", "redirected_depth1")
    notes = ("Depth 1 lies behind the first block.",)
    meanings = _MEANINGS

    @property
    def rules(self) -> Mapping[str, int]:  # pyrefly: ignore[bad-override]
        return {"horizon": 4, "seen": self.horizon + 1, "n": 20}

    def read(self, model: Model) -> dict[str, tuple[float, float]]:
        import torch

        from interp.reading.lens import Lens
        from interp.system.float64 import double

        p = modulus(model, self)
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
            return said_of(interp.collect(model, recipients, [PREDICTED], edits=edits)[PREDICTED], p)

        def share(said: np.ndarray, sought: np.ndarray) -> float:
            return float((said == sought).mean())

        theirs = {name: onward(program if name in ("matched", "same_program") else other, values[:, -1], p)
                  for name, values in windows.items()}  # fmt: skip
        unedited = said_of(before[PREDICTED], p)
        found = {
            "donor_accuracy": (share(said_of(donors["matched"][PREDICTED], p), answer), 1 / p),
            "unedited_accuracy": (share(unedited, answer), 1 / p),
        }
        for depth in range(1, len(mine)):
            said = {}
            for name, stream in streams.items():
                values = mine[0] + stream[depth] - stream[0] if name in _UPDATES else stream[depth]
                said[name] = predicted(depth, values)
            for of, says, chance, sought in (
                ("rescued", said["matched"], said["random"], answer),
                ("redirected", said["mismatched"], unedited, theirs["mismatched"]),
                ("update_redirected", said["elsewhere"], unedited, theirs["elsewhere"]),
                ("update_rescued", said["same_program"], said["elsewhere"], answer),
            ):
                found[f"{of}_depth{depth}"] = share(says, sought), share(chance, sought)
        embedding = model.module.get_input_embeddings().weight[:p]  # pyrefly: ignore
        embedding = double(embedding.detach()).numpy()
        basis = np.linalg.svd(embedding - embedding.mean(axis=0))[2].T
        last, k, decode = streams["matched"][-1], p - 1, Lens(model).logits
        pairs = [(random_subspace(len(basis), len(basis), rng), int(rng.integers(2**31))) for _ in range(N_RANDOM)]
        for of, taken in (("frame_rotated", slice(k)), ("complement_rotated", slice(k, None))):
            rotated = [_rotated(last, axes[:, taken], seed) for random, seed in pairs for axes in (basis, random)]
            turned = [share(said_of(decode(torch.from_numpy(rows).float()).numpy(), p), answer) for rows in rotated]
            found[of] = float(np.mean(turned[::2])), float(np.mean(turned[1::2]))
        return found


def _rotated(rows: Float[np.ndarray, "row feature"], axes: np.ndarray, seed: int) -> Float[np.ndarray, "row feature"]:
    """Rows whose coordinates along orthonormal axes are turned at random, and nothing else of them."""
    turn = random_rotations(axes.shape[1], 1, np.random.default_rng(seed))[0]
    return rows + rows @ axes @ (turn - np.eye(len(turn))) @ axes.T
