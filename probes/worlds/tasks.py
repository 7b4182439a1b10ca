"""Worlds with an exact posterior: `belief` (can it be read?) and `sula` (do answers follow the evidence?)."""

from functools import partial

import numpy as np

from interp.certifying.worlds import Known, Trials, World, noise
from interp.findings import Findings
from interp.information import entropy_bits
from interp.probe import Probe
from interp.testing import Shape, synthetic_capture

# --- belief ----------------------------------------------------------------------------------------------------------


def belief() -> Trials:
    small = {"interchange": False, "n_permutations": 49, "n_bootstrap": 199, "sites": ("resid",)}
    effects = tuple(f"belief written at {0.2 * k:.1f} of the noise" for k in (1, 2, 3))
    kinds = {"as assumed": (0.0, False), "rows of a sequence alike, .8": (0.8, False), "heavy tails": (0.0, True)}
    worlds = tuple(
        World("belief", name, partial(_belief, serial, heavy), ("r2", "r2_beyond_position", "silhouette"),
              effects=effects, n="210 sequences", small=small)
        for name, (serial, heavy) in kinds.items()
    )  # fmt: skip
    why = "the network predicts the exact posterior, which follows from the belief"
    return Trials(worlds, (Known("tunnel:hmm-fixed-gpt-neox", "r2_beyond_position", ("above",), why, small),))


def _belief(serial: float, heavy: bool, made: Probe, rng: np.random.Generator, seed: int, size: float) -> Findings:
    """Rows of a sequence depend on one another, in the belief and in the activations, but not on each other."""
    from scipy import signal

    n, n_scored = 210, 3

    def course(width: int) -> np.ndarray:
        drawn = noise(rng, (n, n_scored, width), heavy)
        return np.asarray(signal.lfilter([1.0], [1.0, -serial], drawn, axis=1)).reshape(n * n_scored, width)

    logits, points = course(3), course(8)
    believed = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    points += 0.2 * size * (believed @ np.random.default_rng(3).standard_normal((3, 8)))
    rows = {"resid": np.stack([rng.standard_normal((n * n_scored, 8)), points])}
    shape = Shape(n, n_scored=n_scored, n_layers=1, d_model=8)
    return made.analyse(synthetic_capture(made.needs, shape, planted=rows, posterior=believed, seed=seed), {})


# --- sula ------------------------------------------------------------------------------------------------------------

_ANSWERS = ("slope", "skill", "kl_skill", "movement", "entropy_movement", "entropy_movement_within")
_BITS = np.log2(0.9 / 0.1)
"""Log-odds that one example is worth where labels are right nine times in ten."""


def sula() -> Trials:
    small = {"n_permutations": 199, "n_bootstrap": 299, "layer": 0}
    effects = tuple(f"slope {0.15 * k:.2f}" for k in (1, 2, 3))
    kinds = {"as assumed": (False, 0.0), "heavy tails": (True, 0.0), "noise grows with the evidence": (False, 0.5)}
    worlds = tuple(
        World("sula", name, partial(_reader, heavy, by_problem),
              _ANSWERS[:1] + _ANSWERS[3:] if by_problem else _ANSWERS,  # confidence that follows evidence is a skill
              _ANSWERS[3:], effects, "150 problems", small)
        for name, (heavy, by_problem) in kinds.items()
    )  # fmt: skip
    why = "the network predicts the exact posterior"
    return Trials(worlds, (Known("tunnel:bijection-gpt-neox", "skill", ("above",), why),))


def _reader(heavy: bool, by_problem: float, made: Probe, rng: np.random.Generator, seed: int, size: float) -> Findings:
    """Answers are a liking for one of two words, and noise; `size` says how much they follow the evidence."""
    n_1, n_2, swapped = _examples((0, 1, 2, 4, 8), 30, rng)
    log_odds, n = (n_1 - n_2) * _BITS, len(n_1)
    drawn = noise(rng, (n,), heavy) + by_problem * log_odds * noise(rng, (n,), heavy)
    answered = _posterior(0.15 * size * log_odds + np.where(swapped, -0.5, 0.5) + drawn)
    exact = _posterior(log_odds)
    columns = {
        "k": n_1 + n_2, "n_1": n_1, "n_2": n_2, "log_odds_bits": log_odds, "p_label_1": exact[:, 0],
        "bayes_entropy_bits": entropy_bits(exact), "p_label_1_noise": np.full(n, 0.5), "noise_entropy_bits": np.ones(n),
        "condition": np.full(n, "main"), "problem": np.arange(n),
    }  # fmt: skip
    made_up = synthetic_capture(
        made.needs, Shape(n, n_layers=1), columns=columns, posterior=exact, seed=seed,
        planted={"outcome_log_prob": np.log2(np.maximum(answered, 1e-12) * 0.25)},
        outcome_ids=np.where(swapped[:, None], [[7, 3]], [[3, 7]]),
    )  # fmt: skip
    return made.analyse(made_up, {})


def _examples(ks: tuple[int, ...], per_k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How many examples of each label problems show, and whether the words have changed roles.

    The same draws as of the prompt set `sula`: labels are right nine times in ten, roles balanced.
    """
    k = np.repeat(ks, per_k)
    role = np.concatenate([(rng.permutation(per_k) + rng.integers(4)) % 4 for _ in ks])
    is_told = rng.random((len(k), max(ks))) < 0.9
    shown = np.where(is_told, (role % 2)[:, None], 1 - (role % 2)[:, None])
    is_there = np.arange(shown.shape[1]) < k[:, None]
    return (is_there & (shown == 0)).sum(axis=1), (is_there & (shown == 1)).sum(axis=1), role >= 2


def _posterior(log_odds_bits: np.ndarray) -> np.ndarray:
    """Probabilities of both labels; the smaller one is exact too, not one minus the larger."""
    return np.stack([1 / (1 + np.exp2(-log_odds_bits)), 1 / (1 + np.exp2(log_odds_bits))], axis=1)
