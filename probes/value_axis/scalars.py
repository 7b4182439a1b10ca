"""The numbers of the value axis with their intervals and nulls, at every place (a site and a layer) at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp.findings import Interval, Null, Scalar
from interp.statistics.estimate import (
    FISHER,
    UNEXPLAINED,
    chance_half_width,
    excess,
    halving_interval,
    maximum_statistic_p,
    null_from_draws,
    null_from_permutations,
)

from ..measures.halves import N_HALVINGS, Halving
from ..measures.nuisances import Design
from ..measures.places import Counted
from ..measures.target import Target
from .readout import KEPT, WITHIN_TOKEN, Labels, PlaceRead, Read

P_OVER = "layers and sites"

METHOD = f"corrected resampled t over {N_HALVINGS} halvings, refitted in each, scale of "
R2_SCALE = "log(1 − R²), at least the scatter of exchanged entropies"

MEANINGS = {
    "r2": "Share of the variance of {} among prompts not fitted on that {} of the activations predicts{}; 0 is no "
    "better than the mean, below 0 worse.",
    "correlation": "Correlation of {} with its prediction by {}{}, among prompts not fitted on.",
    "cosine": "|cos| between the first principal axis and the ridge axis: near 1, the loudest direction is the one "
    "that tells the entropy; small, it is loud for another reason.",
    "selectivity": "How much better ridge predicts the entropy than it predicts random labels given to token types: "
    "what it finds beyond telling tokens apart.",
    "stability": "Mean |cos| between ridge axes of disjoint halves of the prompts, over random splits: near 1, other "
    "prompts would give the same axis.",
    "nuisance_r2": "Share of the variance of {} among prompts not fitted on that {} alone predict.",
    "previous": "Share of the variance of the next-token entropy among prompts not fitted on that a ridge readout "
    "predicts beyond the last token and the classes of the two tokens before it (each that ten prompts share, the "
    "others together), length, position, domain and surprisal.",
    "embedding": "Share of the variance of the next-token entropy among prompts not fitted on that a ridge readout of "
    "the activations predicts beyond the embedding of the last token, how frequent and how expected it was, length, "
    "position and domain: of all prompts, but weaker than `r2_beyond_token`.",
    "depth_0": "Self-test: what a ridge readout of the embedding predicts beyond the last token, which is all that "
    "the embedding knows. 0, or the control leaks.",
}
NULLS = {
    KEPT: "refitted on entropies exchanged between {}s", WITHIN_TOKEN: "refitted on entropies exchanged within tokens",
}  # fmt: skip
WHOLE_NULL = "refitted on what length, position and token leave of entropies, exchanged between {}s"
AXIS_WORDS = {"ridge": "a ridge readout", "pc1": "the first principal axis"}
BEYOND = " beyond everything the last token determines, and beyond length, position, domain and how expected it was"

NO_POWER = (
    "no p: a loud first axis draws the readouts of exchanged entropies to itself as well, so that a planted cosine of "
    ".94 was told from these in 3 of 40 worlds; compare pc1_r2 with r2"
)
NO_EMBEDDING_P = (
    "no p: an embedding is regressed out along its leading directions alone, so that part of what the token determines "
    "stays; `r2_beyond_token` has one"
)
VOID = "these activations depend on the last token alone: nothing is left to read"
FEW_RECUR = "too few prompts share their last token with another one of their half"


@dataclass(frozen=True)
class Judgement:
    """One axis and one target under one treatment, at every place."""

    axis: str
    target: str
    treatment: str
    labels: Labels
    reads: Sequence[Read]
    reason: str = ""
    """Why nothing can be read anywhere, where that is so."""

    def r2(self, counted: Counted) -> list[Scalar]:
        return self._scalars("r2", "fraction", _r2_bounds, R2_SCALE, counted)

    def correlation(self, counted: Counted) -> list[Scalar]:
        return self._scalars(
            "correlation", "1", lambda values, _: halving_interval(values, FISHER), "Fisher's z", counted
        )

    def best_layer(self, among: Sequence[int], layers: Sequence[int], counted: Counted) -> Scalar:
        """R² at the place that the fitting half expects most of, chosen anew in every halving and exchange."""
        at = self.labels.of_target(self.target)
        fit = np.nan_to_num(np.array([self.reads[i].fit[:, at] for i in among]), nan=-np.inf)
        r2 = np.array([self.reads[i].r2[:, at] for i in among])  # [place, halving, label]
        best = fit.argmax(axis=0)
        chosen = np.take_along_axis(r2, best[None], axis=0)[0]
        layer = layers[int(np.bincount(best[:, 0]).argmax())]
        share = float(np.mean([layers[i] == layer for i in best[:, 0]]))
        words = self._meaning("r2")
        meaning = (
            f"At the layer that the fitting half expects most of, {words[0].lower()}{words[1:]} Layer {layer} in "
            f"{share:.0%} of the halvings."
        )
        values = chosen.mean(axis=0)
        if np.isnan(values[0]):
            return counted.undefined(self.reason or FEW_RECUR, "fraction", meaning)
        permuted = np.nan_to_num(values[1:], nan=0.0)
        interval = Interval.of(_r2_bounds(chosen[:, 0], permuted), METHOD + R2_SCALE, "no halving differs")
        p = maximum_statistic_p(values[:1], permuted[:, None])[0]
        null = null_from_permutations(f"{self._null(counted)}, the layer chosen anew", permuted)
        return Scalar.of(values[0], "fraction", interval, null, p=p, meaning=meaning, **counted.about())

    def _meaning(self, kind: str) -> str:
        beyond = BEYOND if self.treatment == WITHIN_TOKEN else ""
        return MEANINGS[kind].format(Target(self.target).words, AXIS_WORDS[self.axis], beyond)

    def _null(self, counted: Counted) -> str:
        are_whole = self.treatment == WITHIN_TOKEN and counted.unit != "prompt"
        return (WHOLE_NULL if are_whole else NULLS[self.treatment]).format(counted.unit)

    def _scalars(
        self, kind: str, unit: str, bounds: Callable[[np.ndarray, np.ndarray], tuple[float, float] | None],
        scale: str, counted: Counted,
    ) -> list[Scalar]:  # fmt: skip
        """Means over the halvings; p is one-sided, over all places."""
        at = self.labels.of_target(self.target)
        by_halving = [getattr(read, kind)[:, at] for read in self.reads]
        values = np.array([found.mean(axis=0) for found in by_halving])  # [place, 1 + permutation]
        # an exchanged fit without a value (a constant prediction) found nothing
        permuted = np.nan_to_num(values[:, 1:].T, nan=0.0)
        p = maximum_statistic_p(*excess(values[:, 0], permuted))
        made = []
        for i, value in enumerate(values[:, 0]):
            meaning = self._meaning(kind)
            if np.isnan(value):
                made.append(self._nothing(i, kind, unit, meaning, counted))
                continue
            interval = Interval.of(bounds(by_halving[i][:, 0], permuted[:, i]), METHOD + scale, "no halving differs")
            null = null_from_permutations(self._null(counted), permuted[:, i])
            made.append(
                Scalar.of(value, unit, interval, null, p=p[i], p_over=P_OVER, meaning=meaning, **counted.about(i))
            )
        return made

    def _nothing(self, place: int, kind: str, unit: str, meaning: str, counted: Counted) -> Scalar:
        """Where there is no fit: what depends on the token alone predicts nothing beyond it, which is R² = 0."""
        if self.treatment == WITHIN_TOKEN and kind == "r2" and self.reads[place].is_void:
            return Scalar.of(0.0, unit, VOID, VOID, meaning=meaning, **counted.about(place))
        return counted.undefined(self.why_undefined(place), unit, meaning)

    def why_undefined(self, place: int) -> str:
        if self.reason:
            return self.reason
        within = self.treatment == WITHIN_TOKEN
        if self.reads[place].is_void:
            return VOID if within else "nothing varies in these activations"
        return "the entropy does not vary" + (", or the token and the nuisances tell it exactly" if within else "")


def _r2_bounds(by_halving: np.ndarray, exchanged: np.ndarray) -> tuple[float, float] | None:
    """The interval of a mean R², from halvings and from the means of exchanged labels."""
    return halving_interval(by_halving, UNEXPLAINED, chance_half_width(exchanged))


def selectivity(judgement: Judgement, counted: Counted) -> tuple[list[Scalar], Float[np.ndarray, " place"]]:
    """Task R² − mean control R² at every place, and the mean control R².

    The null puts each control task in the place of the entropy; its mean is 0 by definition.
    """
    target = judgement.labels.of_target(judgement.target)[0]
    made, means = [], []
    for i, read in enumerate(judgement.reads):
        task, controls = read.r2[:, target], read.r2[:, judgement.labels.controls]
        differences, of_tasks = task - controls.mean(axis=1), controls.mean(axis=0)
        means.append(float(of_tasks.mean()))
        if np.isnan(differences).any():
            one_type = "every judged token is of one type: there is no control task"
            reason = judgement.why_undefined(i) if np.isnan(task).any() else one_type
            made.append(counted.undefined(reason, "fraction", MEANINGS["selectivity"]))
            continue
        interval = Interval.of(halving_interval(differences), METHOD + "R²", "no halving differs")
        others = (of_tasks.sum() - of_tasks) / (len(of_tasks) - 1)
        drawn = null_from_draws("another random labelling of tokens in place of the entropy", of_tasks - others)
        null = Null(drawn.name, 0.0, drawn.band)
        made.append(
            Scalar.of(differences.mean(), "fraction", interval, null, meaning=MEANINGS["selectivity"],
                      **counted.about(i))
        )  # fmt: skip
    return made, np.array(means)


def cosine_scalar(found: PlaceRead, reason: str, counted: Counted, place: int) -> Scalar:
    """|cos| of PC1 and the ridge axis of the first halving: a description, without a p (`NO_POWER`)."""
    value = found.axes["ridge"].cosine if found.axes else np.nan
    if np.isnan(value):
        return counted.undefined(reason, "1", MEANINGS["cosine"])
    one = "one axis, of the first halving: `stability` says how much it depends on the prompts"
    about = counted.about(place) | {"underpowered": True}
    return Scalar.of(value, "1", one, NO_POWER, meaning=MEANINGS["cosine"], **about)


def stability_scalar(cosines: np.ndarray, draws: np.ndarray, counted: Counted, place: int) -> Scalar:
    """Mean |cos| over splits, beside that of random directions of the same covariance."""
    return Scalar.of(
        cosines.mean(), "1", f"splits share {counted.unit}s; the table gives the lowest and highest of {len(cosines)}",
        null_from_permutations("pairs of random directions with the covariance of the cloud", draws),
        meaning=MEANINGS["stability"], **counted.about(place),
    )  # fmt: skip


def nuisance_scalar(
    entropy: Float[np.ndarray, " row"], exchanged: Float[np.ndarray, "row permutation"], target: Target, design: Design,
    halvings: Sequence[Halving], counted: Counted,
) -> Scalar:  # fmt: skip
    """Held-out R² of the entropy by the nuisances and the last token's level alone."""
    words = ", ".join(design.names) or "no nuisance that varies"
    meaning = MEANINGS["nuisance_r2"].format(target.words, words)
    if not design.names or np.ptp(entropy) == 0:
        reason = "no nuisance varies" if not design.names else "the entropy does not vary"
        return counted.undefined(reason, "fraction", meaning)
    labels = np.column_stack([entropy, exchanged])
    r2 = np.array([_told(labels, halving, design) for halving in halvings])
    if np.isnan(r2).any():
        return counted.undefined("the entropies of some half do not vary", "fraction", meaning)
    values = r2.mean(axis=0)
    return Scalar.of(
        values[0], "fraction", Interval.of(_r2_bounds(r2[:, 0], values[1:]), METHOD + R2_SCALE, "no halving differs"),
        null_from_permutations(f"entropies exchanged between {counted.unit}s", values[1:]),
        p=maximum_statistic_p(values[:1], values[1:, None])[0], meaning=meaning, **counted.about(),
    )  # fmt: skip


def _told(labels: Float[np.ndarray, "row label"], halving: Halving, design: Design) -> Float[np.ndarray, " label"]:
    """R² of every label by the design, fitted on one half and tested on the other."""
    with_design = Halving.of(halving.fitting, halving.judged, design.values)
    (_, left), (_, whole) = with_design.apply(labels), halving.apply(labels)
    total = np.square(whole).sum(axis=0)
    return 1 - np.divide(np.square(left).sum(axis=0), total, out=np.full(len(total), np.nan), where=total > 0)
