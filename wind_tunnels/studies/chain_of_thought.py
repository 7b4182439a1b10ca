"""The study `chain_of_thought`: does a scratchpad let a network answer questions that are deeper than itself?

With a scratchpad, figures of k steps are of the whole way: the product of the probabilities of its symbols, and the sum
of their KLs (chain rule). Beliefs are read one step at a time, so position says nothing. In swaps the residual stream
becomes that of another sequence: does the network go on from the other's symbol in its own permutation?

Source: the notes on Paper III (arXiv 2512.23752) on chains of thought, tested where every intermediate belief is known.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int, Shaped

import interp
from interp.findings import Null, Scalar
from interp.information import entropy_bits, kl_bits
from interp.model import Model
from interp.need import Need
from interp.statistics.ratio import ratio
from interp.table import Table
from interp.tunnel import Sequences, Task

from ..tasks.permutation import IteratedPermutation, answer_posterior, ways
from ..validation import DISTINCT
from .over_seeds import (
    Rows,
    TrainedStudy,
    Trainings,
    beside_null,
    by_network,
    difference_scalar,
    mean_over_seeds,
    plans_over_seeds,
    read_by,
)

OUTCOMES, STREAM = Need("outcome_log_prob"), Need("resid")
ARMS = {"scratchpad": "with a scratchpad", "none": "without", "deep": "without, more layers"}

Read = Callable[[Int[np.ndarray, "sequence pos"], int], Float[np.ndarray, "sequence symbol"]]
"""A network's probabilities of the symbol at a step, from sequences written up to there."""

Way = Int[np.ndarray, "sequence step"]
Columns = dict[str, Float[np.ndarray, " row"]]


BY_DEPTH: Mapping[str, str] = {
    "right": "fraction",
    "greedy": "fraction",
    "chance": "fraction",
    "kl_bits": "bits",
    "start_kl_bits": "bits",
    "bayes_bits": "bits",
    "tracking": "fraction",
    "calibration_error": "fraction",
    "calibration_exchanged": "fraction",
}
"""By number of steps. Where the pairs show a way without return: probability of the right answer, accuracy of greedy
decoding, chance. Of all sequences: KL, KL of a reader of the start and the number of steps alone, exact entropy; how
closely the network's entropy tracks it (0: no better than one number); calibration error in tenths of confidence, and
with confidences permuted."""

BY_STEP, SWAPS = ("r2", "exchanged"), ("swapped", "random")
"""R² of the belief, and of one permuted between sequences with the same token; probability of the way after a swap."""

LAYOUTS = {
    "by_depth": ({"steps": "steps", **BY_DEPTH}, "Every network by the number of steps."),
    "by_step": ({"step": "steps", **dict.fromkeys(BY_STEP, "fraction")},
                "The belief at every step, read from the final stream."),
    "swaps": ({"depth": "depth", **dict.fromkeys(SWAPS, "fraction")}, "Probability of the way on from the state "
              "swapped in, and after a move as long in a random direction."),
}  # fmt: skip
"""The tables, one row per network and step (from 1) or depth (from 0): the columns with their units, the caption."""


@dataclass(frozen=True)
class ChainOfThought(TrainedStudy):
    """Networks of `n_layers` from each of `seeds`, with a scratchpad and without, and of `n_layers_deep` without.

    `settings` are field=value of the task `permutation`, the network or the recipe. `n_eval` fresh sequences for
    figures, `n_pool` for beliefs and for swaps at step `swap_step`, from 1.
    """

    settings: tuple[str, ...] = ()
    n_layers: int = 2
    n_layers_deep: int = 4
    seeds: tuple[int, ...] = (1, 2, 3)
    n_eval: int = 4000
    n_pool: int = 300
    swap_step: int = 3

    name: ClassVar[str] = "chain_of_thought"
    question: ClassVar[str] = "Does a scratchpad let a network answer questions that are deeper than itself?"
    rules: ClassVar = {
        "seeds": DISTINCT, "n_layers": 1, "n_layers_deep": 1, "n_eval": 200, "n_pool": 50, "swap_step": 1
    }  # fmt: skip

    headline = ("right_with", "right_without", "belief_r2", "followed")

    @property
    def notes(self) -> tuple[str, ...]:
        return (
            f"Sequences have the same positions and answers with a scratchpad and without. Questions beyond the "
            f"network ask for more than {self.n_layers} steps, as many as it has layers.",
        )

    def trainings(self) -> Trainings:
        of_arms = []
        for arm, words in ARMS.items():
            n_layers = self.n_layers_deep if arm == "deep" else self.n_layers
            fixed = {"scratchpad": arm == "scratchpad", "n_layers": n_layers}
            plans = plans_over_seeds(self, IteratedPermutation.name, fixed=fixed, variant=f"{arm}-")
            of_arms.append([({"arm": words, "layers": n_layers}, plan) for plan in plans])
        task = of_arms[0][0][1].task
        assert isinstance(task, IteratedPermutation)
        if task.depth <= max(self.n_layers, self.swap_step):
            raise task.refusal(
                f"depth = {task.depth}, {self.n_layers} layers and a swap at step {self.swap_step}",
                "Choose a depth beyond both: there has to be a question that is deeper than the network.",
            )
        return [each for of_seed in zip(*of_arms, strict=True) for each in of_seed]

    def read(self, model: Model, task: Task) -> dict[str, Any]:
        from ..networks.networks import predict
        from ..training.sampling import evaluation_sequences

        assert isinstance(task, IteratedPermutation) and model.card is not None
        drawn = evaluation_sequences(task, self.n_eval, model.card["seed"])

        def read(tokens: Int[np.ndarray, "sequence pos"], k: int) -> Float[np.ndarray, "sequence symbol"]:
            return np.exp(predict(model.module, tokens, drawn.scored[[k]])[:, 0, drawn.slice_ids])

        steps = {"steps": np.arange(1, task.depth + 1)}
        found = {"by_depth": steps | depth_figures(task, drawn, read)}
        if not model.card["variant"].startswith("deep-"):
            found["by_step"] = {"step": steps["steps"]} | self._beliefs(model, task)
        if task.scratchpad:
            found["swaps"] = {"depth": np.arange(model.info.n_layers + 1)} | self._swapped(model, task)
        return {name: Table(columns, *LAYOUTS[name]) for name, columns in found.items()}

    def _beliefs(self, model: Model, task: IteratedPermutation) -> Columns:
        from interp.prompting.tunnel_sequences import as_prompts

        probes = {"belief": {"sites": ("resid",), "interchange": False, "n_permutations": 19, "n_bootstrap": 20}}
        drawn, rng = task.sample(np.random.default_rng(0), self.n_pool), np.random.default_rng(0)
        found = []
        for k in range(task.depth):
            chosen = drawn.at(np.array([k]))
            prompts = [as_prompts(task, each, f"step {k + 1}") for each in (chosen, permuted_beliefs(chosen, rng))]
            found.append([read_by(probes, model, prompts=each)["belief"]["r2"].value for each in prompts])
        return dict(zip(BY_STEP, np.array(found).T, strict=True))

    def _swapped(self, model: Model, task: IteratedPermutation) -> Columns:
        """By depth the probability of the way from the other's symbol, after a swap and after a random move."""
        from interp.prompting.tunnel_sequences import as_prompts

        k, drawn, rng = self.swap_step - 1, task.sample(np.random.default_rng(0), self.n_pool), np.random.default_rng(0)
        prompts, tokens = as_prompts(task, drawn, "as drawn"), drawn.tokens.copy()
        at = task.n_positions - task.depth + k
        donor = np.roll(np.arange(len(tokens)), -1)
        streams = interp.collect(model, prompts, [STREAM])[STREAM].astype(np.float64)
        streams = streams.reshape(len(streams), len(tokens), task.depth, -1)[:, :, k]  # [depth, sequence, feature]
        way = ways(task.shown_in(tokens), tokens[donor, at] - task.V, task.depth - k)
        way[tokens[donor, at] == tokens[:, at]] = -1  # the same symbol: nothing is swapped
        tokens[:, at + 1 :] = np.where(way >= 0, way + task.V, 2 * task.V)[:, :-1]
        prompts = as_prompts(task, replace(drawn, tokens=tokens), "on the way")
        shares = []
        for depth, own in enumerate(streams):
            move = rng.standard_normal(own.shape)
            move *= (np.linalg.norm(own[donor] - own, axis=1) / np.linalg.norm(move, axis=1))[:, None]
            edits = [
                interp.ReplaceCoordinates(layer=depth, site="resid", axis=np.eye(own.shape[1]), values=to, at=(at,))
                for to in (own[donor], own + move)
            ]
            predicted = [np.exp2(interp.collect(model, prompts, [OUTCOMES], edits=[edit])[OUTCOMES]) for edit in edits]
            shares.append([way_probability(each.reshape(len(way), -1, task.V)[:, k:], way) for each in predicted])
        return dict(zip(SWAPS, np.array(shares).T, strict=True))

    def scalars(self, rows: Rows, tables: Mapping[str, Table]) -> dict[str, Scalar]:
        by_depth, by_step, swaps = (tables[name] for name in LAYOUTS)
        words = ARMS | {"none": "without one", "deep": f"without, {self.n_layers_deep} layers"}
        beyond = by_depth.where(by_depth["steps"] > self.n_layers)
        most_steps = partial(by_network, by_depth.where(by_depth["steps"] == by_depth["steps"].max()))
        right = {arm: by_network(beyond, "right", arm=given) for arm, given in ARMS.items()}
        scalars = {}
        for arm, name in {"scratchpad": "with", "none": "without", "deep": "without_deep"}.items():
            scalars[f"right_{name}"] = beside_null(
                right[arm], by_network(beyond, "chance", arm=ARMS["none"]), "share", "any symbol but the start",
                f"probability of the right answer beyond {self.n_layers} steps {words[arm]}; the ideal observer's is 1",
            )  # fmt: skip
            scalars[f"kl_{name}_bits"] = beside_null(
                most_steps("kl_bits", arm=ARMS[arm]), most_steps("start_kl_bits", arm=ARMS["none"]), "error",
                "who sees the start and the number of steps alone",
                f"KL from the exact posterior, most steps, {words[arm]}",
            )  # fmt: skip
            scalars[f"calibration_error_{name}"] = beside_null(
                most_steps("calibration_error", arm=ARMS[arm]), most_steps("calibration_exchanged", arm=ARMS[arm]),
                "share", "confidences of other sequences",
                f"distance of confidence from the share that is right, most steps, {words[arm]}",
            )  # fmt: skip
            scalars[f"tracking_{name}"] = mean_over_seeds(
                by_network(by_depth, "tracking", np.min, arm=ARMS[arm]), "r2",
                Null("the best single number", 0.0, (0.0, 0.0)),
                f"how closely the entropy follows the exact one, the step where it is least, {words[arm]}",
            )  # fmt: skip
        scalars["right_gain"] = difference_scalar(
            right["scratchpad"], right["none"], "difference",
            f"probability of the right answer beyond {self.n_layers} steps with a scratchpad less that without",
        )  # fmt: skip
        for arm, name in {"scratchpad": "", "none": "_without"}.items():
            read = [mine for _, mine in by_step.where(by_step["arm"] == ARMS[arm]).groups("seed")]
            own, permuted = ([float(mine[what][mine["r2"].argmin()]) for mine in read] for what in BY_STEP)
            scalars[f"belief_r2{name}"] = beside_null(
                own, permuted, "r2", "beliefs permuted between sequences with the same token",
                f"R² of the step's exact belief in the final stream, at the step where it is least, {words[arm]}",
            )  # fmt: skip
        middle = self.n_layers // 2
        swapped, moved = (by_network(swaps, how, depth=middle) for how in SWAPS)
        scalars["followed"] = beside_null(
            swapped, moved, "share", "as long a move in a random direction",
            f"probability of the way on from the state swapped in at step {self.swap_step}, depth {middle}",
        )  # fmt: skip
        return scalars


def depth_figures(task: IteratedPermutation, drawn: Sequences, read: Read) -> Columns:
    """The numbers of `BY_DEPTH` at every number of steps."""
    tokens, answers = drawn.tokens, drawn.targets - task.V
    predicted = np.stack([read(tokens, k) for k in range(task.depth)], axis=1)  # [sequence, step, symbol]
    exact = answer_posterior(task.shown_in(tokens), tokens[:, drawn.scored[0]] - task.V, task.depth)
    right = np.take_along_axis(predicted, answers[..., None], axis=2)[..., 0]
    kl, exact_bits = kl_bits(drawn.posterior, predicted), entropy_bits(drawn.posterior)
    numbers = entropy_bits(predicted), np.median(exact_bits, axis=0)  # the network's, and the best single one
    error, blind = (np.abs(each - exact_bits).mean(axis=0) for each in numbers)
    symbols, confidence = written(read, task, tokens)
    is_right = greedy = symbols == answers
    if task.scratchpad:
        right, kl = right.cumprod(axis=1), kl.cumsum(axis=1)
        is_right, confidence = greedy.cumprod(axis=1), confidence.cumprod(axis=1)
    is_open = drawn.columns["is_way_shown"] & ~drawn.columns["is_return"]
    if not is_open.any(axis=0).all():
        raise task.refusal(
            f"{len(drawn)} sequences of which none shows a way of {task.depth} steps without return",
            "Draw more of them, show more images, or ask for fewer steps.",
        )
    return {
        "right": right.mean(axis=0, where=is_open),
        "greedy": greedy.mean(axis=0, where=is_open),
        "chance": np.full(task.depth, 1 / (task.V - 1)),
        "kl_bits": kl.mean(axis=0),
        "start_kl_bits": kl_bits(exact, drawn.windows[0]).mean(axis=0),
        "bayes_bits": entropy_bits(exact).mean(axis=0),
        "tracking": 1 - ratio(error, blind),
        "calibration_error": calibration_error(confidence, is_right),
        "calibration_exchanged": calibration_error(np.roll(confidence, 1, axis=0), is_right),
    }


def calibration_error(
    confidence: Float[np.ndarray, "sequence step"], is_right: Shaped[np.ndarray, "sequence step"]
) -> Float[np.ndarray, " step"]:
    """Mean over sequences of |mean confidence − share that is right|, each of its tenth of confidence."""
    tenth = np.minimum((confidence * 10).astype(np.int64), 9)
    gap = confidence - is_right
    sums = [np.bincount(tenth[:, k], gap[:, k]) for k in range(gap.shape[1])]
    return np.array([np.abs(each).sum() / len(gap) for each in sums])


def written(
    read: Read, task: IteratedPermutation, tokens: Int[np.ndarray, "sequence pos"]
) -> tuple[Way, Float[np.ndarray, "sequence step"]]:
    """Greedily decoded symbols and their probabilities; with a scratchpad each is written before the next is read."""
    tokens, answers, confidence = tokens.copy(), [], []
    for k in range(task.depth):
        predicted = read(tokens, k)
        answers.append(predicted.argmax(axis=1))
        confidence.append(predicted.max(axis=1))
        if task.scratchpad and k + 1 < task.depth:
            tokens[:, k + 1 - task.depth] = answers[-1] + task.V
    return np.stack(answers, axis=1), np.stack(confidence, axis=1)


def way_probability(predicted: Float[np.ndarray, "sequence step symbol"], way: Way) -> float:
    """Mean probability of a way as far as it is known, over sequences in which its first step is."""
    each = np.take_along_axis(predicted, np.maximum(way, 0)[..., None], axis=2)[..., 0]
    return float(np.where(way >= 0, each, 1.0).prod(axis=1).mean(where=way[:, 0] >= 0))


def permuted_beliefs(drawn: Sequences, rng: np.random.Generator) -> Sequences:
    """The posteriors permuted among sequences with the same token at the first scored position."""
    tokens = drawn.tokens[:, drawn.scored[0]]
    given = np.arange(len(tokens))
    for token in np.unique(tokens):
        same = np.flatnonzero(tokens == token)
        given[same] = rng.permutation(same)
    return replace(drawn, posterior=drawn.posterior[given])
