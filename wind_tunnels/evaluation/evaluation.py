"""Evaluation: how far a network's predictions are from the exact posterior, and from no-skill baselines.

docs/reference/training.md defines every figure. The baselines `constant` and `position` answer one distribution (the
mean posterior) or entropy (the median) for all positions or each; they are fitted on the evaluated sequences, which
favours them. Named slices, for positions with different questions, are evaluated separately: figures of the first have
plain names, those of others a prefix (`symbol.kl_bits`). Intervals are 95 % percentile bootstraps over sequences.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from interp.errors import UsageError
from interp.findings import Interval, Null, Scalar
from interp.information import BITS_PER_NAT, cross_entropy_bits, entropy_bits, kl_bits, total_variation
from interp.records.tunnel_card import Figure
from interp.statistics.intervals import band, share_bounds
from interp.statistics.ratio import ratio
from interp.statistics.resampling import bootstrap_weights
from interp.table import LABEL, Table
from interp.tunnel import Sequences, Task

N_RESAMPLES = 1000

Scores = Mapping[str, Float[np.ndarray, "sequence scored"]]
Weights = Float[np.ndarray, "resample sequence"]
LogProbs = Float[np.ndarray, "sequence scored vocab"]
Resampled = Float[np.ndarray, " resample"]

BEYOND_WINDOW = "kl_bits_beyond_window"
TO_WINDOW_2 = "kl_to_window_2"
"""Figures of tasks that have readers of the last observations alone."""
SIGNED = (BEYOND_WINDOW, "nll_gap_bits", "skill")
"""Suffixes of the figures that may be below 0."""
AT_MOST_1 = ("tvd", "leaked_mass", "outside_mass", "accuracy_where_certain", "skill")
"""Suffixes of the figures that cannot be above 1."""

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
    "accuracy_where_certain": "fraction",
    "skill": "1",
    BEYOND_WINDOW: "bits",
    TO_WINDOW_2: "1",
}
_CERTAIN = 1.0 - 1e-9
_NO_ERROR_BITS = 1e-9

WINDOW_NULL = Null("the best reader of the last observations alone", 0.0, (0.0, 0.0))


@dataclass(frozen=True)
class Evaluation:
    """Measurements on `n` sequences; `notes` say which figures are missing, and why."""

    figures: Mapping[str, Figure]
    by_position: Table
    baselines: Table
    n: int
    notes: tuple[str, ...] = ()


def evaluate(log_probs: LogProbs, sequences: Sequences, rng: np.random.Generator) -> Evaluation:
    """Compare predictions (natural log-probabilities over the vocabulary) with the posterior."""
    weights = resampled(len(sequences), rng)
    asked = asked_slices(sequences)
    parts = {name: _evaluate_slice(*of_slice(log_probs, sequences, name), weights) for name in asked}
    if sequences.scored_slice is None:
        return parts[""]
    return Evaluation(
        figures={asked[of] + name: figure for of, part in parts.items() for name, figure in part.figures.items()},
        by_position=_stacked({name: part.by_position for name, part in parts.items()}),
        baselines=_stacked({name: part.baselines for name, part in parts.items()}),
        n=len(sequences),
        notes=tuple(f"{name}: {note}" for name, part in parts.items() for note in part.notes),
    )


def asked_slices(sequences: Sequences) -> dict[str, str]:
    """The prefix of figure names by slice of the scored positions; the slice "" if they have no names."""
    if sequences.scored_slice is None:
        return {"": ""}
    first, *_ = names = sequences.slices
    return {name: "" if name == first else f"{name}." for name in names if name in sequences.scored_slice}


def of_slice(log_probs: LogProbs, sequences: Sequences, name: str = "") -> tuple[np.ndarray, Sequences]:
    """Predictions and sequences at the positions of a slice (default: the primary one); all if slices have no names."""
    name = name or next(iter(asked_slices(sequences)))
    if sequences.scored_slice is None:
        return log_probs, sequences
    return log_probs[:, sequences.scored_slice == name], sequences.only(name)


def resampled(n: int, rng: np.random.Generator) -> Weights:
    """The weight of each of `n` sequences in each bootstrap resample; the first row is the sample itself."""
    return np.concatenate([np.ones((1, n)), bootstrap_weights(np.arange(n), None, N_RESAMPLES, rng)]) / n


def figure_of(values: Resampled, unit: str) -> Figure:
    """A figure from its values under `resampled` weights."""
    low, high = band(values[1:])
    return Figure(float(values[0]), unit, float(low), float(high))


def _evaluate_slice(log_probs: LogProbs, sequences: Sequences, weights: Weights) -> Evaluation:
    scored = score(log_probs, sequences)
    means = {name: weights @ each for name, each in scored.items()}
    values = {name: each.mean(axis=-1) for name, each in means.items()}
    values["mae_per_sequence_bits"] = values["absolute_entropy_error_bits"]
    values["mae_mean_first_bits"] = np.abs(means["entropy_error_bits"]).mean(axis=-1)
    values["worst_position_kl_bits"] = means["kl_bits"].max(axis=-1)
    is_certain, notes = sequences.posterior.max(axis=-1) > _CERTAIN, []
    if is_certain.any():
        right = weights @ (scored["is_answered"] * is_certain).sum(axis=1)
        values["accuracy_where_certain"] = ratio(right, weights @ is_certain.sum(axis=1))
    else:
        notes.append("accuracy_where_certain: no posterior here is a point mass")
    floor = {name: weights @ kl.mean(axis=1) for name, kl in baseline_kl(sequences).items()}
    if floor["constant"][0] > _NO_ERROR_BITS:
        values["skill"] = 1.0 - ratio(values["kl_bits"], floor["constant"])
    else:
        notes.append("skill: one constant answer is the posterior everywhere, so there is nothing to be skilled at")
    readers = [floor[f"window-{w}"] for w in sequences.windows]
    if readers:
        values[BEYOND_WINDOW] = values["kl_bits"] - np.min(readers, axis=0)
    if 2 in sequences.windows:
        values[TO_WINDOW_2] = ratio(values["kl_bits"], floor["window-2"])
    figures = {name: figure_of(values[name], unit) for name, unit in FIGURE_UNITS.items() if name in values}
    if is_certain.any():  # a share of 0 or 1 has no spread to resample: Clopper and Pearson's bound replaces it
        share, n = figures["accuracy_where_certain"], int(is_certain.any(axis=1).sum())
        low = share_bounds(n, n)[0] if share.value == 1.0 else share.low
        high = share_bounds(0, n)[1] if share.value == 0.0 else share.high
        figures["accuracy_where_certain"] = replace(share, low=low, high=high)
    return Evaluation(figures, _by_position(means, sequences), baselines(sequences), len(sequences), tuple(notes))


def score(log_probs: LogProbs, sequences: Sequences) -> Scores:
    """Every quantity behind the figures at every scored position; `entropy_error_bits` keeps its sign."""
    p = sequences.posterior
    bayes_bits = entropy_bits(p)
    log2_q = np.asarray(log_probs, dtype=np.float64) * BITS_PER_NAT  # [sequence, scored, vocab]
    log2_in_slice = log2_q[..., sequences.slice_ids]  # [sequence, scored, outcome]
    q = np.exp2(log2_in_slice)
    slice_mass = q.sum(axis=-1)  # [sequence, scored]
    allowed = np.where(p > 0, q, 0.0)
    allowed_mass = allowed.sum(axis=-1)
    answer = np.take_along_axis(log2_q, sequences.targets[..., None], axis=-1)[..., 0]
    entropy_error = entropy_bits(q / slice_mass[..., None]) - bayes_bits
    kl = cross_entropy_bits(p, log2_in_slice) - bayes_bits
    on_support = allowed / allowed_mass[..., None]
    log2_p = np.log2(p, out=np.zeros_like(p), where=p > 0)
    outside = np.clip(1.0 - slice_mass, 0.0, None)
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
        "is_answered": (log2_q.argmax(axis=-1) == sequences.targets).astype(np.float64),
    }


def _by_position(position_means: Mapping[str, Float[np.ndarray, "resample scored"]], sequences: Sequences) -> Table:
    means = {name: each[0] for name, each in position_means.items()}
    low, high = band(position_means["kl_bits"][1:])
    columns = {
        "position": sequences.scored,
        "evidence": sequences.columns["evidence"].mean(axis=0),
        "bayes_entropy_bits": entropy_bits(sequences.posterior).mean(axis=0),
        "entropy_error_bits": means["entropy_error_bits"],
        "mae_per_sequence_bits": means["absolute_entropy_error_bits"],
        "kl_bits": means["kl_bits"],
        "kl_bits_low": low,
        "kl_bits_high": high,
        **{name: means[name] for name in ("reverse_kl_bits", "nll_gap_bits", "tvd", "leaked_mass")},
        "uniform_kl_bits": baseline_kl(sequences)["uniform"].mean(axis=0),
    }
    units = {name: FIGURE_UNITS.get(name, "bits") for name in columns}
    units |= {"position": "tokens", "evidence": "observations"}
    return Table(columns, units, "Means over sequences at every scored position, the KL with its interval.")


def _stacked(tables: Mapping[str, Table]) -> Table:
    first = next(iter(tables.values()))
    parts = [{"slice": name, **table.columns} for name, table in tables.items()]
    return Table.stacked(parts, {"slice": LABEL, **first.units}, first.caption)


def baseline_kl(sequences: Sequences) -> dict[str, Float[np.ndarray, "sequence scored"]]:
    """KL(posterior || predictor) in bits of every baseline at every scored position."""
    p = sequences.posterior
    n_outcomes = p.shape[-1]
    answers = {
        "uniform": np.full(n_outcomes, 1.0 / n_outcomes),
        "constant": p.mean(axis=(0, 1)),
        "position": p.mean(axis=0),
    }
    blind = {name: kl_bits(p, np.broadcast_to(answer, p.shape)) for name, answer in answers.items()}
    return blind | {f"window-{w}": kl_bits(p, answer) for w, answer in sequences.windows.items()}


def baselines(sequences: Sequences) -> Table:
    """Entropy error and KL of every baseline."""
    bayes_bits = entropy_bits(sequences.posterior)
    entropies = {
        "uniform": np.log2(sequences.posterior.shape[-1]),
        "constant": np.median(bayes_bits),
        "position": np.median(bayes_bits, axis=0),
        **{f"window-{w}": entropy_bits(answer) for w, answer in sequences.windows.items()},
    }
    rows = [
        {
            "predictor": name,
            "mae_per_sequence_bits": np.abs(entropies[name] - bayes_bits).mean(),
            "kl_bits": kl.mean(),
        }
        for name, kl in baseline_kl(sequences).items()
    ]
    units: Mapping[str, str] = {"predictor": LABEL, "mae_per_sequence_bits": "bits", "kl_bits": "bits"}
    return Table.from_rows(rows, units, "No-skill predictors and window readers on the same sequences.")


def by_predictor(baselines: Table) -> dict[str, dict[str, float]]:
    """The table as stored in a card; `<slice>.<predictor>` for slices after the primary one."""
    slices = baselines["slice"].tolist() if "slice" in baselines else [""] * baselines.n_rows
    parts = zip(slices, baselines["predictor"].tolist(), strict=True)
    names = [name if part == slices[0] else f"{part}.{name}" for part, name in parts]
    figures = ("mae_per_sequence_bits", "kl_bits")
    return {name: {figure: float(baselines[figure][row]) for figure in figures} for row, name in enumerate(names)}


def longer(task: Task, n_observations: int) -> Task:
    """The task over more observations than in training; `UsageError` if its sequences are not longer."""
    lengthened = task.lengthened(n_observations)
    n, n_trained = lengthened.n_positions, task.n_positions
    if n <= n_trained:
        found = f"its sequences have {n} tokens, and the network was trained on {n_trained}: they are not longer"
        fix = "Name a larger length."
    elif lengthened.vocab_size != task.vocab_size:
        found = f"it takes {lengthened.vocab_size} token ids, and the network knows {task.vocab_size}"
        fix = "Train a network on a task with more symbols, or name a smaller length."
    else:
        return lengthened
    asked = f"extrapolation of {task.name} to {n_observations} observations"
    raise UsageError(asked=asked, found=found, fix=fix)


def extrapolate(log_probs: LogProbs, sequences: Sequences, n_trained: int, rng: np.random.Generator) -> Evaluation:
    """Evaluate lengthened sequences: figures up to and beyond `n_trained` tokens in the primary slice, all curves."""
    evaluation = evaluate(log_probs, sequences, rng)
    weights = resampled(len(sequences), rng)
    log_probs, sequences = of_slice(log_probs, sequences)
    scored = score(log_probs, sequences)
    is_beyond = sequences.scored >= n_trained
    if is_beyond.all() or not is_beyond.any():
        raise ValueError(f"scored positions {sequences.scored} all lie on one side of the trained length {n_trained}")
    first, kl = int(np.argmax(is_beyond)), weights @ scored["kl_bits"]  # scored positions rise
    figures: dict[str, Figure] = {}
    for name, curve in {
        "kl_bits": kl, "mae_per_sequence_bits": weights @ scored["absolute_entropy_error_bits"]
    }.items():  # fmt: skip
        figures |= {
            f"{name}_within": figure_of(curve[:, ~is_beyond].mean(axis=1), "bits"),
            f"{name}_beyond": figure_of(curve[:, is_beyond].mean(axis=1), "bits"),
            f"{name}_jump": figure_of(ratio(curve[:, first], curve[:, first - 1]), "1"),
        }
    blind = (weights @ baseline_kl(sequences)["uniform"])[:, is_beyond].mean(axis=1)
    figures["kl_bits_beyond_to_uniform"] = figure_of(ratio(kl[:, is_beyond].mean(axis=1), blind), "1")
    return replace(evaluation, figures=figures)


def figure_scalars(found: Evaluation) -> dict[str, Scalar]:
    """Every figure as a scalar; errors that the baselines have too get the uniform answer as null."""
    nulls = {name: WINDOW_NULL for name in found.figures if name.endswith(BEYOND_WINDOW)}
    for predictor, errors in by_predictor(found.baselines).items():
        if predictor.endswith("uniform"):
            for figure, value in errors.items():
                name = predictor.removesuffix("uniform") + figure
                nulls[name] = Null("uniform over the answers", value, (value, value))
    return {
        name: figure_scalar(figure, nulls.get(name), found.n, name.replace("_", " ").replace(".", ": "))
        for name, figure in found.figures.items()
    }


def figure_scalar(figure: Figure, null: Null | None, n: int, meaning: str) -> Scalar:
    """A figure over `n` sequences as a scalar."""
    interval = Interval(figure.low, figure.high, "95 % percentile bootstrap over sequences")
    null_or_why = null or "no baseline of this figure is measured"
    return Scalar.of(figure.value, figure.unit, interval, null_or_why, n=n, n_unit="sequence", meaning=meaning)
