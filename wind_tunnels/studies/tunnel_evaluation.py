"""The study `tunnel_evaluation`: one trained tunnel compared with its exact posterior, every figure with its null."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

import interp
from interp.findings import Findings, Null, Scalar
from interp.information import entropy_bits, total_variation
from interp.statistics.intervals import band
from interp.statistics.resampling import random_orders
from interp.system.progress import Report
from interp.tunnel import Sequences

from ..evaluation.evaluation import figure_of, figure_scalar, figure_scalars, of_slice, resampled
from .over_seeds import CheckedStudy, fingerprint_table

SYMMETRIC = ("bijection", "recall")
"""Tasks whose outcomes may be renamed: every name is as likely as every other."""


@dataclass(frozen=True)
class TunnelEvaluation(CheckedStudy):
    """A tunnel, by name or folder, on `n` fresh sequences, and on sequences of `length` observations if that is set.

    `attention_off`: decoder blocks without attention. `n_relabellings`: random renamings of the outcomes.
    """

    tunnel: str = "bijection-gpt-neox"
    n: int = 2000
    length: int | None = None
    attention_off: tuple[int, ...] = ()
    n_relabellings: int = 3
    seed: int = 1

    name: ClassVar[str] = "tunnel_evaluation"
    question: ClassVar[str] = "How close is a trained network to the exact posterior, and does it follow each sequence?"
    rules: ClassVar = {"n": 20, "length": 1, "n_relabellings": 1}

    def measure(self, work: Path, progress: Report) -> Findings:
        from ..evaluation.checkpoint import evaluate_longer, evaluate_sides
        from ..networks.networks import predict
        from ..networks.weights import open_tunnel
        from ..training.sampling import evaluation_generators, evaluation_sequences

        where = self.tunnel if Path(self.tunnel).is_dir() else f"tunnel:{self.tunnel.removeprefix('tunnel:')}"
        origin, model = open_tunnel(where), interp.load(where)
        task = origin.task
        edits = [interp.AttentionOff(layer=self.attention_off)] if self.attention_off else []
        with interp.applied(model, *edits) if edits else nullcontext():
            longer = self.length and evaluate_longer(model.module, task, self.length, n=self.n, seed=self.seed)
            progress(1, 3)
            sequences = evaluation_sequences(task, self.n, self.seed)
            log_probs = predict(model.module, sequences.tokens, sequences.scored)
            horizon = origin.card["recipe"].get("horizon")
            evaluation = evaluate_sides(log_probs, sequences, evaluation_generators(self.seed)[1], horizon)
            progress(2, 3)
            log_probs, primary = of_slice(log_probs, sequences)
            weights = resampled(self.n, evaluation_generators(self.seed)[1])
            scalars = figure_scalars(evaluation) | _tracking(log_probs, primary, weights)
            notes = list(evaluation.notes)
            if task.name in SYMMETRIC:
                rng = np.random.default_rng([self.seed, 7])
                scalars |= _relabelling(
                    lambda tokens: predict(model.module, tokens, primary.scored), log_probs, primary, weights,
                    rng, self.n_relabellings,
                )  # fmt: skip
            else:
                notes.append(f"relabelling: the outcomes of {task.name} cannot be renamed without changing the task.")
            progress(3, 3)
        tables = {
            "by_position": evaluation.by_position,
            "baselines": evaluation.baselines,
            "models": fingerprint_table([(model.info.name, model.fingerprint)]),
        }
        if longer:
            scalars |= figure_scalars(longer)
            tables["by_position_longer"] = longer.by_position
        info = model.info
        off = f", attention off in layers {', '.join(map(str, self.attention_off))}" if edits else ""
        notes.append(
            f"{info.name} at step {origin.card['step']}, weights {model.fingerprint[:16]}, {info.n_parameters:,} "
            f"parameters{off}; sequences of a stream that no training sees."
        )
        return Findings(self.name, scalars, tables, notes=tuple(notes), headline=("kl_bits", "mae_per_sequence_bits"))


def _in_slice(log_probs: np.ndarray, sequences: Sequences) -> np.ndarray:
    q = np.exp(log_probs[..., sequences.slice_ids])
    return q / q.sum(axis=-1, keepdims=True)


def _tracking(log_probs: np.ndarray, sequences: Sequences, weights: np.ndarray) -> dict[str, Scalar]:
    """Entropy errors relative to a guess from the position, and the entropy where the exact one is 0."""
    n = len(sequences)
    predicted = entropy_bits(_in_slice(log_probs, sequences))
    exact = entropy_bits(sequences.posterior)
    by_position = np.abs(exact - np.median(exact, axis=0)).mean(axis=1)
    found: dict[str, Scalar] = {}
    if by_position.any():
        error = np.abs(predicted - exact).mean(axis=1)
        found["sequence_tracking"] = figure_scalar(
            figure_of(1.0 - (weights @ error) / (weights @ by_position), "1"),
            Null("who knows the position alone", 0.0, (0.0, 0.0)), n,
            "1 - entropy error / that of the best guess from the position",
        )  # fmt: skip
    repeats = sequences.columns.get("is_repeat")
    if repeats is not None and repeats.any():
        share, most = weights @ repeats.mean(axis=1), float(np.log2(sequences.posterior.shape[-1]))
        found["repeat_entropy_bits"] = figure_scalar(
            figure_of((weights @ (predicted * repeats).mean(axis=1)) / share, "bits"),
            Null("uniform over the answers", most, (most, most)), n,
            "entropy of the prediction at keys that came before, where the exact one is 0",
        )  # fmt: skip
    return found


def _relabelling(
    predict: Callable[[np.ndarray], np.ndarray],
    log_probs: np.ndarray,
    sequences: Sequences,
    weights: np.ndarray,
    rng: np.random.Generator,
    n_relabellings: int,
) -> dict[str, Scalar]:
    """How the prediction changes when the outcomes are renamed, one renaming per sequence and draw."""
    ids, n = sequences.slice_ids, len(sequences)
    own = _in_slice(log_probs, sequences)  # [sequence, scored, outcome]
    draws = []
    for _ in range(n_relabellings):
        order = random_orders(len(ids), n, rng)  # [sequence, outcome]
        table = np.tile(np.arange(log_probs.shape[-1]), (n, 1))  # [sequence, token]
        table[:, ids] = ids[order]
        renamed = _in_slice(predict(np.take_along_axis(table, sequences.tokens, axis=1)), sequences)
        # outcome i became order[i], so its probability should move there
        expected = np.empty_like(own)
        np.put_along_axis(expected, np.broadcast_to(order[:, None, :], own.shape), own, axis=-1)
        after, before = entropy_bits(renamed), entropy_bits(own)
        stranger = after[rng.permutation(n)]
        tvd = [total_variation(each, renamed) for each in (expected, own)]
        draws.append([*tvd, *(np.abs(each - before) for each in (after, stranger))])
    moved, kept, change, kept_change = np.mean(draws, axis=(0, 3))

    def null(name: str, values: np.ndarray) -> Null:
        low, high = band(weights[1:] @ values)
        return Null(name, float(values.mean()), (float(low), float(high)))

    return {
        "relabelling_tvd": figure_scalar(
            figure_of(weights @ moved, "1"), null("the prediction itself is not renamed", kept), n,
            "TVD of the renamed prediction and the prediction on renamed input",
        ),
        "relabelling_entropy_change_bits": figure_scalar(
            figure_of(weights @ change, "bits"), null("another sequence, at the same positions", kept_change), n,
            "mean change of the predictive entropy when outcomes are renamed",
        ),
    }  # fmt: skip
