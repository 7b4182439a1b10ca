"""Evaluation: how far a network's predictions are from the exact posterior, and from knowing nothing.

All information is in bits. With p the posterior, q the network's distribution over the whole vocabulary and H the
entropy, at every scored position of every sequence:

    entropy error    H(q within the slice of possible answers, renormalised) − H(p)
    KL               Σ p log2(p / q); mass that q gives to tokens outside the slice counts against it
    KL in the slice  the same with q renormalised within the slice
    reverse KL       Σ r log2(r / p), r being q renormalised on what p allows: where p is 0 it would be infinite, and
                     what lies there is told by the leaked mass instead of by an arbitrary clip
    TVD              ½ Σ |p − q| over the whole vocabulary
    NLL gap          −log2 q(answer) − H(p), whose expectation is the KL: a check that needs only labels
    leaked mass      q on what p calls impossible; outside mass: the part of it outside the slice

The entropy error is averaged in both ways in use: over sequences first (`mae_mean_first_bits`, where errors of
opposite sign cancel) and last (`mae_per_sequence_bits`, never smaller). It never stands without the KL, since a wrong
distribution can have the right entropy. Intervals are 95 % percentile bootstraps over sequences.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp.information import BITS_PER_NAT, entropy_bits, kl_bits, total_variation
from interp.table import LABEL, Table
from interp.tunnel import Figure, Sequences

N_RESAMPLES = 1000

Scores = Mapping[str, Float[np.ndarray, "sequence scored"]]

FIGURE_UNITS: Mapping[str, str] = {
    "kl_bits": "bits",
    "mae_per_sequence_bits": "bits",
    "mae_mean_first_bits": "bits",
    "worst_position_kl_bits": "bits",
    "kl_slice_bits": "bits",
    "reverse_kl_bits": "bits",
    "nll_gap_bits": "bits",
    "tvd": "1",
    "leaked_mass": "fraction",
    "outside_mass": "fraction",
}


@dataclass(frozen=True)
class Evaluation:
    """What was measured on `n` sequences: overall figures, a row for each scored position, and the no-skill floor."""

    figures: Mapping[str, Figure]
    by_position: Table
    baselines: Table
    n: int


def evaluate(
    log_probs: Float[np.ndarray, "sequence scored vocab"],
    sequences: Sequences,
    rng: np.random.Generator,
) -> Evaluation:
    """Hold predictions (natural log-probabilities over the vocabulary) against the posterior; `rng` resamples."""
    n = len(sequences)
    scored = score(log_probs, sequences)
    resamples = rng.multinomial(n, np.full(n, 1.0 / n), size=N_RESAMPLES) / n
    values = _overall({name: each.mean(axis=0)[None] for name, each in scored.items()})
    spread = _overall({name: resamples @ each for name, each in scored.items()})
    figures = {
        name: Figure(float(values[name][0]), unit, *(float(x) for x in np.percentile(spread[name], (2.5, 97.5))))
        for name, unit in FIGURE_UNITS.items()
    }
    return Evaluation(figures, _by_position(scored, sequences), baselines(sequences), n)


def score(log_probs: Float[np.ndarray, "sequence scored vocab"], sequences: Sequences) -> Scores:
    """Every quantity of the module's table at every scored position; `entropy_error_bits` keeps its sign."""
    p = sequences.posterior
    bayes_bits = entropy_bits(p)
    log2_q = np.asarray(log_probs, dtype=np.float64) * BITS_PER_NAT
    log2_in_slice = log2_q[..., sequences.slice_ids]
    q = np.exp2(log2_in_slice)
    slice_mass = q.sum(axis=-1)
    allowed = np.where(p > 0, q, 0.0)
    allowed_mass = allowed.sum(axis=-1)
    answer = np.take_along_axis(log2_q, sequences.targets[..., None], axis=-1)[..., 0]
    entropy_error = entropy_bits(q / slice_mass[..., None]) - bayes_bits
    kl = -np.multiply(p, log2_in_slice, out=np.zeros_like(p), where=p > 0).sum(axis=-1) - bayes_bits
    on_support = allowed / allowed_mass[..., None]
    log2_p = np.log2(p, out=np.zeros_like(p), where=p > 0)
    outside = np.clip(1.0 - slice_mass, 0.0, None)  # rounding leaves it a hair below zero
    return {
        "entropy_error_bits": entropy_error,
        "absolute_entropy_error_bits": np.abs(entropy_error),
        "kl_bits": kl,
        "kl_slice_bits": kl + np.log2(slice_mass),
        "reverse_kl_bits": -entropy_bits(on_support) - np.sum(on_support * log2_p, axis=-1),
        "nll_gap_bits": -answer - bayes_bits,
        "tvd": total_variation(p, q) + 0.5 * outside,
        "leaked_mass": (q - allowed).sum(axis=-1) + outside,
        "outside_mass": outside,
    }


def _overall(
    position_means: Mapping[str, Float[np.ndarray, "resample scored"]],
) -> dict[str, Float[np.ndarray, " resample"]]:
    """The figures, from the mean of every score at every position: all of them are functions of those."""
    overall = {name: means.mean(axis=-1) for name, means in position_means.items()}
    return {
        **overall,
        "mae_per_sequence_bits": overall["absolute_entropy_error_bits"],
        "mae_mean_first_bits": np.abs(position_means["entropy_error_bits"]).mean(axis=-1),
        "worst_position_kl_bits": position_means["kl_bits"].max(axis=-1),
    }


def _by_position(scored: Scores, sequences: Sequences) -> Table:
    means = {name: each.mean(axis=0) for name, each in scored.items()}
    columns = {
        "position": sequences.scored,
        "evidence": sequences.columns["evidence"].mean(axis=0),
        "bayes_entropy_bits": entropy_bits(sequences.posterior).mean(axis=0),
        "entropy_error_bits": means["entropy_error_bits"],
        "mae_per_sequence_bits": means["absolute_entropy_error_bits"],
        **{name: means[name] for name in ("kl_bits", "reverse_kl_bits", "nll_gap_bits", "tvd", "leaked_mass")},
    }
    units = {name: FIGURE_UNITS.get(name, "bits") for name in columns}
    units |= {"position": "tokens", "evidence": "observations"}
    return Table(columns, units, "Means over sequences at every scored position.")


def baselines(sequences: Sequences) -> Table:
    """What can be had without looking at the sequence: each entry is the best of its kind by its own measure.

    `uniform` answers the uniform distribution over the slice; `constant` one fixed distribution (the mean posterior,
    best by KL) or entropy (the median, best by absolute error); `position` one for every position. They are fitted on
    the sequences they are judged on, which flatters them.
    """
    p = sequences.posterior
    bayes_bits = entropy_bits(p)
    n_outcomes = p.shape[-1]
    guesses = {
        "uniform": (np.log2(n_outcomes), np.full(n_outcomes, 1.0 / n_outcomes)),
        "constant": (np.median(bayes_bits), p.mean(axis=(0, 1))),
        "position": (np.median(bayes_bits, axis=0), p.mean(axis=0)),
    }
    rows = [
        {
            "predictor": name,
            "mae_per_sequence_bits": np.abs(entropy - bayes_bits).mean(),
            "kl_bits": kl_bits(p, np.broadcast_to(distribution, p.shape)).mean(),
        }
        for name, (entropy, distribution) in guesses.items()
    ]
    units = {"predictor": LABEL, "mae_per_sequence_bits": "bits", "kl_bits": "bits"}
    return Table.from_rows(rows, units, "No-skill predictors on the same sequences.")
