"""Latent labels: how labels are sampled, and the exact posterior given those shown.

A latent label is one of two with equal probability; every example shows it with probability a (`reliability`, 0.9) and
the other one otherwise, independently. With n₁ and n₂ examples of each,

    log-odds = (n₁ − n₂) log2(a / (1 − a)) bits        P(label 1) = 1 / (1 + 2^−log-odds)

If labels are known to be noise (each redrawn by a fair coin), the posterior keeps one bit.
Source: Paper III (arXiv 2512.23752), section 5.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.errors import PromptError
from interp.information import entropy_bits
from interp.table import LABEL

EVIDENCE_UNITS = {
    "k": "examples", "n_1": "examples", "n_2": "examples", "log_odds_bits": "bits", "p_label_1": "probability",
    "bayes_entropy_bits": "bits", "p_label_1_noise": "probability", "noise_entropy_bits": "bits",
}  # fmt: skip

PROBLEM_UNITS = {
    "condition": LABEL, "problem": "index", "latent": LABEL, "label_1": LABEL, "label_2": LABEL, "carrier_last": LABEL,
}  # fmt: skip


@dataclass(frozen=True)
class Problems:
    """Samples of the process: how many examples, which label is true, what each example shows.

    Labels are 0 (label 1) and 1 (label 2); `shown` is −1 beyond a problem's `k`. `swapped`: the two words have changed
    roles, to balance a preference for one of them.
    """

    k: Int[np.ndarray, " problem"]
    latent: Int[np.ndarray, " problem"]
    swapped: Bool[np.ndarray, " problem"]
    shown: Int[np.ndarray, "problem example"]

    def __len__(self) -> int:
        return len(self.k)


def draw_problems(ks: Sequence[int], per_k: int, reliability: float, rng: np.random.Generator) -> Problems:
    """`per_k` problems of every k, in random order; true labels and their words are balanced."""
    k = np.repeat(np.array(ks, dtype=np.int64), per_k)
    role = np.concatenate([(rng.permutation(per_k) + rng.integers(4)) % 4 for _ in ks])
    latent, swapped = role % 2, role >= 2
    is_right = rng.random((len(k), max([*ks, 1]))) < reliability
    shown = np.where(is_right, latent[:, None], 1 - latent[:, None])
    return Problems(k, latent, swapped, np.where(np.arange(shown.shape[1]) < k[:, None], shown, -1))


def evidence_columns(
    shown: Int[np.ndarray, "problem example"], reliability: float
) -> dict[str, Float[np.ndarray, " problem"] | Int[np.ndarray, " problem"]]:
    """The columns of `EVIDENCE_UNITS` for the labels that every problem shows."""
    n_1, n_2 = (shown == 0).sum(axis=1), (shown == 1).sum(axis=1)
    log_odds = (n_1 - n_2) * evidence_of_one(reliability)
    p = posterior(log_odds)
    half = np.full(len(p), 0.5)
    return {
        "k": n_1 + n_2, "n_1": n_1, "n_2": n_2, "log_odds_bits": log_odds, "p_label_1": p[:, 0],
        "bayes_entropy_bits": entropy_bits(p), "p_label_1_noise": half, "noise_entropy_bits": np.ones(len(p)),
    }  # fmt: skip


def evidence_of_one(reliability: float) -> float:
    """The log-odds of one example in bits: log2 9 = 3.17 at 0.9."""
    return float(np.log2(reliability / (1 - reliability)))


def posterior(log_odds_bits: Float[np.ndarray, " problem"]) -> Float[np.ndarray, "problem 2"]:
    """Probabilities of both labels, each computed exactly."""
    return np.stack([1 / (1 + np.exp2(-log_odds_bits)), 1 / (1 + np.exp2(log_odds_bits))], axis=1)


def check_sizes(name: str, ks: Sequence[int], per_k: int, reliability: float) -> None:
    """Raise `PromptError` for impossible numbers of examples or prompts, or an impossible reliability."""
    wrong = ""
    if not ks or min(ks) < 0 or len(set(ks)) < len(ks):
        wrong = f"ks = {tuple(ks)}: they must be different numbers, none below 0"
    if per_k < 1:
        wrong = f"{per_k} prompts of each kind"
    if not 0.5 <= reliability < 1:
        wrong = f"reliability = {reliability}: labels that are wrong more often than right, or never, leave no doubt"
    if wrong:
        raise PromptError(
            asked=f"the prompts {name!r}", found=wrong, fix="For example ks=(0, 1, 2, 4, 8), reliability=0.9."
        )
