"""The numbers of the value axis with their intervals and nulls, at every place (a site and a layer) at once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.findings import Interval, Scalar
from interp.statistics.correlation import correlation_interval, resampled_correlations
from interp.statistics.max_statistic import excess, maximum_statistic_p
from interp.statistics.nulls import null_from_draws, null_from_permutations
from interp.statistics.resampling import normal_interval

from ..measures.halves import Halves, exchanged_correlations, r2_intervals
from ..measures.nuisances import Removal
from ..measures.places import Counted
from .readout import Labels, Reading

P_OVER = "layers and sites"

MEANINGS = {
    "r2": "Share of the variance of {} among prompts not fitted on that {} of the activations predicts{}; 0 is no "
    "better than the mean of the fitting half, below 0 worse.",
    "correlation": "Correlation of {} with its prediction by {}{}, among prompts not fitted on.",
    "cosine": "|cos| between the first principal axis and the ridge axis{}: near 1, the loudest direction is the one "
    "that tells the entropy; small, it is loud for another reason.",
    "selectivity": "How much better ridge predicts the entropy than it predicts random labels given to token types: "
    "what it finds beyond telling tokens apart.",
    "stability": "Mean |cos| between ridge axes of disjoint halves of the prompts, over random splits: near 1, other "
    "prompts would give the same axis.",
    "nuisance_r2": "Share of the variance of {} among prompts not fitted on that {} alone predict.",
}
NULLS = {
    "r2": "refitted on entropies exchanged between {}s",
    "correlation": "judged entropies exchanged between {}s",
    "cosine": "refitted on entropies exchanged between {}s",
}
AXIS_WORDS = {"ridge": "a ridge readout", "pc1": "the first principal axis"}
TARGET_WORDS = {
    "next_entropy_bits": "the next-token entropy", "bayes_entropy_bits": "the entropy of the exact posterior",
}  # fmt: skip
BEYOND = " beyond what position, length, last token and domain tell"


@dataclass(frozen=True)
class Judgement:
    """One axis and one target, nuisances kept or removed, at every place."""

    axis: str
    target: str
    is_adjusted: bool
    labels: Labels
    readings: Sequence[Reading]

    @property
    def at(self) -> slice:
        return self.labels.columns[self.target]

    @property
    def truth(self) -> np.ndarray:
        return self.labels.judged[:, self.at.start]

    def meaning(self, kind: str) -> str:
        beyond = BEYOND if self.is_adjusted else ""
        return MEANINGS[kind].format(TARGET_WORDS[self.target], AXIS_WORDS[self.axis], beyond)

    def r2(self, halves: Halves, counted: Counted) -> list[Scalar]:
        values = np.array([reading.r2[self.at] for reading in self.readings])
        intervals = self._where_predicted(r2_intervals(self.truth, self._predictions(), halves.weights))
        method = f"bootstrap over judged {counted.unit}s, the fit held fixed, scale of log(1 − R²)"
        return self._scalars("r2", values, intervals, method, "fraction", counted)

    def correlation(self, halves: Halves, counted: Counted) -> list[Scalar]:
        values = np.array([
            exchanged_correlations(self.truth, reading.predicted[self.target], halves.judged_orders)
            if reading.predicted else np.full(1 + len(halves.judged_orders), np.nan)
            for reading in self.readings
        ])  # fmt: skip
        replicates = self._where_predicted(resampled_correlations(self._predictions(), self.truth, halves.weights))
        intervals = [
            None if np.isnan(value) or drawn is None else correlation_interval(float(value), drawn)
            for value, drawn in zip(values[:, 0], replicates, strict=True)
        ]
        method = f"bootstrap over judged {counted.unit}s, the fit held fixed, Fisher z scale"
        return self._scalars("correlation", values, intervals, method, "1", counted)

    def _predictions(self) -> Float[np.ndarray, "place row"]:
        """Of the true labels, at the places that have an axis."""
        found = [reading.predicted[self.target] for reading in self.readings if reading.predicted]
        return np.array(found).reshape(len(found), len(self.truth))

    def _where_predicted(self, found: Iterable[Any]) -> list[Any]:
        """What belongs to the places that have an axis, None at the others."""
        of_axes = iter(found)
        return [next(of_axes) if reading.predicted else None for reading in self.readings]

    def cosine(self, counted: Counted) -> list[Scalar]:
        values = np.array([reading.cosine[self.at] for reading in self.readings])
        none = [None] * len(values)
        return self._scalars("cosine", values, none, "", "1", counted)

    def _scalars(
        self, kind: str, values: np.ndarray, intervals: Sequence[tuple[float, float] | None], method: str, unit: str,
        counted: Counted,
    ) -> list[Scalar]:  # fmt: skip
        """`values` `[place, 1 + permutation]`: the true labels' first. p is one-sided, over all places."""
        # a permuted fit without a value (a constant prediction) found nothing
        permuted = np.nan_to_num(values[:, 1:].T, nan=0.0)
        p = maximum_statistic_p(*excess(values[:, 0], permuted))
        meaning = self.meaning(kind) if kind != "cosine" else MEANINGS[kind].format(BEYOND if self.is_adjusted else "")
        missing = "no resample differs" if kind != "cosine" else (
            "one axis, of the fitting half: `stability` says how much it depends on the prompts"
        )  # fmt: skip
        made = []
        for i, value in enumerate(values[:, 0]):
            if np.isnan(value):
                made.append(counted.undefined(self.why_undefined(i), unit, meaning))
                continue
            interval = Interval.of(intervals[i], method, missing)
            null = null_from_permutations(NULLS[kind].format(counted.unit), permuted[:, i])
            made.append(
                Scalar.of(value, unit, interval, null, p=p[i], p_over=P_OVER, meaning=meaning, **counted.about(i))
            )
        return made

    def why_undefined(self, place: int) -> str:
        if np.square(self.truth).sum() == 0:
            return "the entropy does not vary, or nuisances tell it exactly" if self.is_adjusted else (
                "the entropy does not vary"
            )  # fmt: skip
        if not self.readings[place].predicted:
            return "nothing varies in these activations" + (" but what nuisances tell" if self.is_adjusted else "")
        return "the prediction, or the judged entropy, does not vary"


def selectivity(judgement: Judgement, halves: Halves, counted: Counted) -> tuple[list[Scalar], np.ndarray]:
    """Task R² − mean control R² at every place, and the mean control R².

    The interval resamples judged prompts. The null puts each control task in the place of the entropy.
    """
    at = judgement.labels.columns["controls"]
    made, means = [], []
    method = f"bootstrap over judged {counted.unit}s, both fits held fixed"
    for i, reading in enumerate(judgement.readings):
        task, controls = reading.r2[judgement.at.start], reading.r2[at]
        means.append(float(controls.mean()))
        if np.isnan(task) or np.isnan(controls).any():
            one_type = "every judged token is of one type: there is no control task"
            reason = judgement.why_undefined(i) if np.isnan(task) else one_type
            made.append(counted.undefined(reason, "fraction", MEANINGS["selectivity"]))
            continue
        value = float(task - controls.mean())
        others = (controls.sum() - controls) / (len(controls) - 1)
        interval = Interval.of(_selectivity_interval(judgement, i, halves, value), method, "no resample differs")
        null = null_from_draws("another random labelling of tokens in place of the entropy", controls - others)
        made.append(Scalar.of(value, "fraction", interval, null, meaning=MEANINGS["selectivity"], **counted.about(i)))
    return made, np.array(means)


def _selectivity_interval(judgement: Judgement, place: int, halves: Halves, value: float) -> tuple[float, float] | None:
    reading, at = judgement.readings[place], judgement.labels.columns["controls"]
    truth = np.column_stack([judgement.truth, judgement.labels.judged[:, at]])
    predicted = np.column_stack([reading.predicted[judgement.target], reading.controls])
    with np.errstate(divide="ignore", invalid="ignore"):
        r2 = 1 - (halves.weights @ np.square(truth - predicted)) / (halves.weights @ np.square(truth))
    differences = r2[:, 0] - r2[:, 1:].mean(axis=1)
    return normal_interval(value, differences[np.isfinite(differences)])


def stability_scalar(cosines: np.ndarray, draws: np.ndarray, counted: Counted, place: int) -> Scalar:
    """Mean |cos| over splits, beside that of random directions of the same covariance."""
    return Scalar.of(
        cosines.mean(), "1", f"splits share {counted.unit}s; the table gives the lowest and highest of {len(cosines)}",
        null_from_permutations("pairs of random directions with the covariance of the cloud", draws),
        meaning=MEANINGS["stability"], **counted.about(place),
    )  # fmt: skip


def nuisance_scalar(entropy: np.ndarray, target: str, removal: Removal, halves: Halves, counted: Counted) -> Scalar:
    """Held-out R² of the entropy by position, length, last token and domain alone."""
    words = ", ".join(removal.names) or "no nuisance that varies"
    meaning = MEANINGS["nuisance_r2"].format(TARGET_WORDS[target], words)
    fitting = entropy[halves.fitting]
    truth = entropy[halves.judged] - fitting.mean()
    if not removal.names or np.square(truth).sum() == 0 or np.ptp(entropy) == 0:
        reason = "no nuisance varies" if not removal.names else "the entropy does not vary"
        return counted.undefined(reason, "fraction", meaning)
    labels = np.column_stack([fitting, fitting[halves.orders].T])
    predicted = removal.predict(labels)[halves.judged] - fitting.mean()
    r2 = 1 - np.square(truth[:, None] - predicted).sum(axis=0) / np.square(truth).sum()
    bounds = r2_intervals(truth, predicted[:, :1].T, halves.weights)[0]
    return Scalar.of(
        r2[0], "fraction",
        Interval.of(bounds, f"bootstrap over judged {counted.unit}s, the fit held fixed", "no resample differs"),
        null_from_permutations(f"entropies exchanged between {counted.unit}s", r2[1:]),
        p=maximum_statistic_p(r2[:1], r2[1:, None])[0], meaning=meaning, **counted.about(),
    )  # fmt: skip
