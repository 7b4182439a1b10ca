"""Simulations with an exact posterior for `belief` and `sula`."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from interp.certificates.simulations import Known, Simulation, Trials, nothing
from interp.findings import Findings
from interp.information import entropy_bits
from interp.probe import Probe
from interp.statistics.correlation import unit_ranks
from interp.testing import Shape, synthetic_capture

from .prompts import Prompts, noise_of


def belief() -> Trials:
    small = {"interchange": False, "n_permutations": 49, "n_bootstrap": 199, "sites": ("resid",)}
    effects = tuple(f"belief written at {0.2 * k:.1f} of the noise" for k in (1, 2, 3))
    kinds = {
        "as assumed": (Prompts(), 0.0), "rows of a sequence alike, .8": (Prompts(), 0.8),
        "heavy tails": (Prompts(heavy=True), 0.0),
        "five near-copies of each sequence": (Prompts(clusters="fives"), 0.0),
        "five sequences of a document": (Prompts(clusters="fives", alike=0.5), 0.0),
        "templates of unequal size": (Prompts(clusters="templates", alike=0.7), 0.0),
    }  # fmt: skip
    simulations = tuple(
        Simulation("belief", name, partial(_belief, *kind), ("r2", "r2_beyond_position", "silhouette"),
              effects=effects, n="230 sequences or clusters", small=small, truth=nothing("r2", "r2_beyond_position"))
        for name, kind in kinds.items()
    )  # fmt: skip
    why = "the network predicts the exact posterior, which follows from the belief"
    known = [Known(f"tunnel:{name}-gpt-neox", "r2_beyond_position", ("above",), why, small)
             for name in ("hmm-fixed", "mess3")]  # fmt: skip
    return Trials(simulations, tuple(known))


def _belief(like: Prompts, serial: float, made: Probe, rng: np.random.Generator, seed: int, size: float) -> Findings:
    """Findings on beliefs and activations that are each correlated within sequences and clusters."""
    from scipy import signal

    n_scored = 3
    cluster, drawn = like.drawn(230, rng)

    def series(width: int) -> np.ndarray:
        return np.asarray(signal.lfilter([1.0], [1.0, -serial], drawn(n_scored, width), axis=1)).reshape(-1, width)

    logits, points = series(3), series(8)
    believed = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    points += 0.2 * size * (believed @ np.random.default_rng(3).standard_normal((3, 8)))
    rows = {"resid": np.stack([rng.standard_normal(points.shape), points])}
    shape = Shape(len(cluster), n_scored=n_scored, n_layers=1, d_model=8)
    columns = {"cluster": cluster.repeat(n_scored)}
    return made.analyse(
        synthetic_capture(made.needs, shape, planted=rows, columns=columns, posterior=believed, seed=seed), {}
    )


_MOVES = ("movement", "entropy_movement", "entropy_movement_within")
_ANSWERS = ("slope", "skill", "kl_skill", *_MOVES)
_BITS = np.log2(0.9 / 0.1)
"""Log-odds of one example where labels are right nine times in ten."""


@dataclass(frozen=True)
class _Problems:
    """Problems, 30 of each k, in near-copies (`copies` of each) or in `templates`."""

    heavy: bool = False
    by_evidence: float = 0.0
    """Growth of the noise of answers with the evidence."""
    copies: int = 1
    templates: int = 0
    first_differs: float = 0.0
    """Shift of the values of prompts without evidence, in deviations of the noise."""
    moves: bool = False
    """Whether the effect is planted in the values, not in the answers."""


def sula() -> Trials:
    small = {"n_permutations": 199, "n_bootstrap": 299, "layer": 0}
    effects = tuple(f"slope {0.15 * k:.2f}" for k in (1, 2, 3))
    kinds = {
        "as assumed": _Problems(), "heavy tails": _Problems(heavy=True),
        "noise grows with the evidence": _Problems(by_evidence=0.5),
        "five near-copies of each problem": _Problems(copies=5),
        "forty templates of unequal size": _Problems(templates=40),
    }  # fmt: skip
    simulations = [
        Simulation("sula", name, partial(_reader, like),
              # confidence that follows evidence is a skill
              _ANSWERS[:1] if like.by_evidence else _ANSWERS, _MOVES, effects, "150 problems", small,
              nothing("slope", *_MOVES))
        for name, like in kinds.items()
    ]  # fmt: skip
    alone, shifted = "prompts without evidence alone look different", _Problems(copies=5, first_differs=3.0)
    simulations.append(Simulation("sula", alone, partial(_reader, shifted), _MOVES, _MOVES, (), "150 problems", small,
                                  nothing("entropy_movement_within")))  # fmt: skip
    moved = tuple(f"ρ = {_rho_of_values(float(k)):.2f}" for k in (1, 2, 3))
    simulations += [
        Simulation("sula", name, partial(_reader, _Problems(copies=copies, moves=True)), _MOVES[:2], (), moved,
              "150 problems", small, nothing(*_MOVES[:2]))
        for name, copies in (("values move with the amount", 1), ("values of near-copies move with the amount", 5))
    ]  # fmt: skip
    why = "the network predicts the exact posterior"
    return Trials(tuple(simulations), (Known("tunnel:bijection-gpt-neox", "skill", ("above",), why),))


def _reader(like: _Problems, made: Probe, rng: np.random.Generator, seed: int, size: float) -> Findings:
    """Findings on answers of bias, noise and, by `size`, evidence."""
    n_1, n_2, swapped = (np.repeat(x, like.copies) for x in _examples((0, 1, 2, 4, 8), 30, rng))
    log_odds, n = (n_1 - n_2) * _BITS, len(n_1)
    cluster = np.arange(n) // like.copies
    if like.templates:
        cluster = rng.choice(like.templates, n, p=rng.dirichlet(np.full(like.templates, 3.0)))

    alike = noise_of(cluster, rng, heavy=like.heavy)
    drawn = alike() + like.by_evidence * log_odds * alike()
    answered = _posterior(0.15 * size * (not like.moves) * log_odds + np.where(swapped, -0.5, 0.5) + drawn)
    exact, values = _posterior(log_odds), alike(16)
    values[:, 0] = (1 + like.moves) * values[:, 0] + like.first_differs * (n_1 + n_2 == 0)
    values[:, 0] += like.moves * _STEP * size * _amount(n_1 + n_2)
    columns = {
        "k": n_1 + n_2, "n_1": n_1, "n_2": n_2, "log_odds_bits": log_odds, "p_label_1": exact[:, 0],
        "bayes_entropy_bits": entropy_bits(exact), "p_label_1_noise": np.full(n, 0.5), "noise_entropy_bits": np.ones(n),
        "condition": np.full(n, "main"), "problem": np.arange(n), "cluster": cluster,
    }  # fmt: skip
    made_up = synthetic_capture(
        made.needs, Shape(n, n_layers=1), columns=columns, posterior=exact, seed=seed,
        planted={"outcome_log_prob": np.log2(np.maximum(answered, 1e-12) * 0.25), "v": values.reshape(1, n, 2, 8)},
        outcome_ids=np.where(swapped[:, None], [[7, 3]], [[3, 7]]),
    )  # fmt: skip
    return made.analyse(made_up, {})


_STEP = 0.8
"""The slope of the largest coordinate, of deviation 2, on the amount of evidence in deviations, per effect size."""


def _amount(k: np.ndarray) -> np.ndarray:
    """The amount of evidence as its rank, standardised."""
    return (np.searchsorted((0, 1, 2, 4, 8), k) - 2) / 2**0.5


def _rho_of_values(size: float) -> float:
    """The rank correlation that `_reader` plants in a coordinate, from very many problems."""
    k = np.repeat((0, 1, 2, 4, 8), 20_000)
    drawn = np.random.default_rng(0).standard_normal(len(k))
    return float(unit_ranks((2 * drawn + _STEP * size * _amount(k))[None])[0] @ unit_ranks(k[None])[0])


def _examples(ks: tuple[int, ...], per_k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The number of examples of each label, and whether the words are swapped, drawn as in the prompt set `sula`."""
    k = np.repeat(ks, per_k)
    role = np.concatenate([(rng.permutation(per_k) + rng.integers(4)) % 4 for _ in ks])
    is_right = rng.random((len(k), max(ks))) < 0.9
    shown = np.where(is_right, (role % 2)[:, None], 1 - (role % 2)[:, None])
    is_there = np.arange(shown.shape[1]) < k[:, None]
    return (is_there & (shown == 0)).sum(axis=1), (is_there & (shown == 1)).sum(axis=1), role >= 2


def _posterior(log_odds_bits: np.ndarray) -> np.ndarray:
    """Probabilities of both labels, both exact to relative precision."""
    return np.stack([1 / (1 + np.exp2(-log_odds_bits)), 1 / (1 + np.exp2(log_odds_bits))], axis=1)
