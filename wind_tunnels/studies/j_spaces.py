"""The study `j_spaces`: are hypotheses held in the directions that a network's prediction depends on?

Every number is a prediction that the note of July 2026 stated before it measured: P1 to P4 in the order of `_NUMBERS`;
P5, with `skip_first`, takes the mean Jacobian over positions beyond a loss horizon.

Source: the authors' note "The Workspace Survives Where the Circuit Dies" (July 2026), P1 to P5.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

import interp
from interp.capture import Capture
from interp.edit import Edit
from interp.information import entropy_bits, kl_bits, restricted
from interp.model import Model
from interp.need import Need
from interp.prompt import PromptSet
from interp.statistics.correlation import unit_ranks
from interp.statistics.cosines import random_subspace
from interp.statistics.linear_readout import PENALTY, balanced_accuracy, held_out_r2, read_out
from interp.statistics.ridge import absolute_penalty, ridge_axis
from interp.tunnel import Task

from .over_seeds import TunnelStudy

STREAM, EVERYWHERE, OUTCOMES = Need("resid"), Need("resid", at="tunnel"), Need("outcome_log_prob")
GRAM, EMBEDDING, WRITTEN, OUTPUT = Need("readout_gram"), Need("outcome_embedding"), Need("z", at="tunnel"), Need("W_O")
RANK, RANKS_READ = 8, (16, 24, 32)
N_RANDOM = 20
UNTRAINED, RANDOM, ZERO = "untrained copies", "random subspaces of the same dimension", "no effect"

_NUMBERS: Mapping[str, tuple[str, str, str]] = {
    "times_random": ("positive", UNTRAINED, "share of the hypotheses' embeddings in 8 J-directions after the first "
                     "block, over that of a random subspace"),
    "times_random_embedding": ("positive", UNTRAINED, "the same of the J-space of the embedding"),
    "identity_accuracy": ("share", UNTRAINED, "how often those 8 directions say which hypothesis stands there"),
    "first_layer_head_ratio": ("positive", UNTRAINED, "length that the loudest head of the first layer writes into the "
                               "hypotheses' embeddings, over the loudest of all others"),
    "written_and_needed": ("correlation", ZERO, "Spearman's ρ over heads of that length with what removing the head "
                           "adds"),
    "share_and_needed": ("correlation", ZERO, "the same of that length as a share of all that the head writes"),
    **{f"survivors_{rank}": ("share", RANDOM, f"balanced accuracy with which {rank} J-directions before the last "
                             "block say which hypotheses survive") for rank in RANKS_READ},
    "survivors_whole": ("share", UNTRAINED, "the same from the whole stream"),
    "swapped_bits": ("bits", RANDOM, "how far a donor's coordinates in 16 J-directions before the last block move the "
                     "prediction towards the donor's posterior"),
    "swapped_whole_bits": ("bits", ZERO, "the same with the donor's whole stream"),
    "axis_r2": ("r2", UNTRAINED, "R² of the exact entropy on other sequences, along one direction there"),
    "axis_removed_bits": ("bits", "random directions", "KL from the posterior that removing this direction adds"),
    "frame_removed_bits": ("bits", RANDOM, "KL that removing the span of the hypotheses' embeddings there adds"),
}  # fmt: skip


@dataclass(frozen=True)
class JSpaces(TunnelStudy):
    """J-spaces of `tunnels` (names or folder patterns with `*`, separated by commas), `n_pool` sequences each.

    The Jacobian is exact over `n_lens` sequences, from position `skip_first` on.
    """

    tunnels: str = ",".join(f"tunnel:bijection-{name}" for name in ("gpt-neox", "llama", "phi", "gpt-neox-deep"))
    n_pool: int = 200
    n_lens: int = 80
    skip_first: int = 0
    seed: int = 0

    name: ClassVar[str] = "j_spaces"
    question: ClassVar[str] = "Does a network keep its hypotheses in the directions that its prediction depends on?"

    headline = ("times_random", f"survivors_{RANKS_READ[0]}", "swapped_bits")
    rules: ClassVar = {"n_pool": 40, "n_lens": 10, "skip_first": 0}
    notes = ("Hypotheses are the possible outcomes.",)
    beside_untrained = True
    numbers = _NUMBERS

    def read(self, model: Model, task: Task) -> dict[str, Any]:
        if model.info.d_model < RANKS_READ[-1]:
            words = f"{model.name} has a stream of {model.info.d_model} dimensions"
            raise self.refusal(words, f"Name networks of {RANKS_READ[-1]} or more.")
        sampled = partial(interp.sampled_prompts, task)
        lens = interp.fit_lens(
            model, sampled(self.n_lens, self.seed + 1), precision_bits=0.0, skip_first=self.skip_first, quiet=True
        )
        prompts = sampled(self.n_pool, self.seed)
        read = interp.collect(
            lens.on(model), prompts, [STREAM, EVERYWHERE, OUTCOMES, GRAM, EMBEDDING, WRITTEN, OUTPUT]
        )  # fmt: skip
        embedding = read[EMBEDDING].astype(np.float64)
        frame = np.linalg.svd(embedding - embedding.mean(axis=0), full_matrices=False)[2][: len(embedding) - 1].T
        spaces = [np.linalg.eigh(gram.astype(np.float64))[1][:, ::-1] for gram in read[GRAM]]
        after, before, width = spaces[1][:, :RANK], spaces[-2], model.info.d_model
        found: dict[str, Any] = {
            name: float(np.square(frame.T @ space[:, :RANK]).sum() / frame.shape[1] * width / RANK)
            for name, space in (("times_random_embedding", spaces[0]), ("times_random", after))
        }
        found["identity_accuracy"] = _identity(read, after, prompts)
        rng, posterior = np.random.default_rng(self.seed), read.posterior
        assert posterior is not None, "a tunnel's prompts have one"
        rows, survives = read[STREAM][-2].astype(np.float64), posterior > 0
        is_fitted = read.rows["prompt"] % 2 == 0

        def harm(edit: Edit) -> float:
            after = interp.collect(model, prompts, [OUTCOMES], edits=[edit])
            return float(np.mean(_distance(posterior, after)) - np.mean(_distance(posterior, read)))

        found |= _heads(model, read, frame, harm)

        def accuracy(axes: np.ndarray) -> float:
            return balanced_accuracy(read_out(rows @ axes, survives, is_fitted), survives, is_fitted, ~is_fitted)

        for rank in RANKS_READ:
            random = [accuracy(random_subspace(width, rank, rng)) for _ in range(N_RANDOM)]
            found[f"survivors_{rank}"] = accuracy(before[:, :rank]), float(np.mean(random))
        found["survivors_whole"] = accuracy(np.eye(width))
        depth, space = model.info.n_layers - 1, before[:, : RANKS_READ[0]]
        put = partial(interp.ReplaceCoordinates, layer=depth, site="resid", at="scored")
        donor = np.roll(np.arange(len(rows)), -len(rows) // len(prompts.prompts))  # the next sequence, same place
        theirs = posterior[donor]
        differs = np.abs(theirs - posterior).max(axis=1) > 0

        def swapped(axes: np.ndarray) -> float:
            edit = put(axis=axes.T, values=rows[donor] @ axes)
            after = interp.collect(model, prompts, [OUTCOMES], edits=[edit])
            return float((_distance(theirs, read) - _distance(theirs, after))[differs].mean())

        def removed(axes: np.ndarray) -> float:
            mean = np.broadcast_to(rows.mean(axis=0) @ axes, (len(rows), axes.shape[1]))
            return harm(put(axis=axes.T, values=mean))

        entropy = entropy_bits(posterior)
        predicted = read_out(rows, entropy[:, None], is_fitted)[:, 0]
        axis = ridge_axis(rows, entropy, absolute_penalty(rows - rows.mean(axis=0), PENALTY))[:, None]
        ranks = {1, space.shape[1], frame.shape[1]}
        randoms = {rank: [random_subspace(width, rank, rng) for _ in range(N_RANDOM)] for rank in ranks}

        def beside_random(change: Callable[[np.ndarray], float], axes: np.ndarray) -> tuple[float, float]:
            return change(axes), float(np.mean([change(each) for each in randoms[axes.shape[1]]]))

        return found | {
            "swapped_bits": beside_random(swapped, space),
            "swapped_whole_bits": (swapped(np.eye(width)), 0.0),
            "axis_r2": held_out_r2(predicted, entropy, is_fitted, ~is_fitted),
            "axis_removed_bits": beside_random(removed, axis),
            "frame_removed_bits": beside_random(removed, frame),
        }


def _identity(read: Capture, space: np.ndarray, prompts: PromptSet) -> float:
    """Accuracy with which a linear readout of the J-space after the first block names the hypothesis at a position."""
    rows, outcomes = read.rows_at("tunnel"), prompts.outcome_ids
    assert outcomes is not None
    tokens = np.array([prompt.token_ids for prompt in prompts.prompts])[rows["prompt"], rows["position"]]
    stands = np.isin(tokens, outcomes)
    is_each = tokens[stands][:, None] == outcomes
    is_fitted = rows["prompt"][stands] % 2 == 0
    decoded = read_out(read[EVERYWHERE][1, stands].astype(np.float64) @ space, is_each, is_fitted)
    return float((decoded.argmax(axis=1) == is_each.argmax(axis=1))[~is_fitted].mean())


def _heads(
    model: Model, read: Capture, frame: np.ndarray, harm_of: Callable[[Edit], float]
) -> dict[str, float | tuple[float, float]]:  # fmt: skip
    writes = np.einsum("lrhe,lhed->lhrd", read[WRITTEN].astype(np.float64), read[OUTPUT].astype(np.float64))
    absolute = np.linalg.norm(writes @ frame, axis=-1).mean(axis=-1)
    share = absolute / np.linalg.norm(writes, axis=-1).mean(axis=-1)
    harm = [
        harm_of(interp.AblateHeads(layer=layer, heads=head))
        for layer in range(model.info.n_layers)
        for head in range(model.info.n_heads)
    ]
    by_length, by_share, by_harm = unit_ranks(np.array([absolute.ravel(), share.ravel(), harm]))
    loudest = int(absolute[0].argmax())
    return {
        "first_layer_head_ratio": float(absolute[0, loudest] / np.delete(absolute.ravel(), loudest).max()),
        "written_and_needed": (float(by_length @ by_harm), 0.0),
        "share_and_needed": (float(by_share @ by_harm), 0.0),
    }


def _distance(posterior: np.ndarray, read: Capture) -> Float[np.ndarray, " row"]:
    return kl_bits(posterior, np.exp2(restricted(read[OUTCOMES])))
