"""How well a model does under an edit: one number a prompt, in bits, and more is worse.

    posterior_kl    KL(exact posterior ‖ model's distribution over the outcomes), mean over scored positions
    entropy_error   |entropy of that distribution − entropy of the exact posterior|
    next_kl         KL(unedited ‖ edited next-token distribution) at the scored positions; never negative
    loss            −log2 p of the token that follows, mean over all positions of a text

The first two exist where the exact posterior is known, the last where it is not (ordinary text).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp.capture import Capture
from interp.errors import UsageError
from interp.need import Need
from interp.probe import Readout
from interp.prompt import PromptSet
from interp.statistics.estimates import Estimates
from interp.statistics.ratio import ratio
from interp.statistics.resampling import bootstrap_weights
from interp.statistics.units import Units, clusters_of
from interp.table import LABEL

from .answers import MAIN, Answers
from .sign_flips import harm_estimates

OUTCOME = Need("outcome_log_prob")
CHANGED = Need("next_kl")
SIZE = Need("edit_size")
LOSS = Need("next_loss", at="followed")

MEANINGS = {
    "posterior_kl": "divergence of the model's distribution over the outcomes from the exact posterior",
    "entropy_error": "distance between the entropy of the model's distribution and that of the exact posterior",
    "next_kl": "divergence of the edited next-token distribution from the unedited one",
    "loss": "surprise at the token that follows, over all positions of a text",
}
SIGNED = ("posterior_kl", "entropy_error", "loss")
"""Measures that an edit may also improve."""

NOTHING_TRIED = Estimates.undefined(
    "no edit was tried: the probe was given the unedited model alone", words={"top": "none", "last": "the last"}
)


def measures_of(prompts: PromptSet) -> tuple[str, ...]:
    """The measures of these prompts: the primary one, then the error (above 0 without an edit) that ratios are of."""
    return ("next_kl", "loss") if prompts.posterior is None else ("posterior_kl", "entropy_error", "next_kl")


def chosen_measure(asked: str, prompts: PromptSet) -> str:
    """The primary measure; raise `UsageError` for one that these prompts do not allow."""
    known = measures_of(prompts)
    if asked == "auto":
        return known[0]
    if asked not in known:
        what = "carry no" if prompts.posterior is None else "carry"
        raise UsageError(
            asked=f"heads.measure = {asked!r} on {prompts.name}",
            found=f"these prompts {what} exact posterior",
            fix=f"Choose auto or one of {', '.join(known)}.",
        )
    return asked


def needs_where(is_exact: bool) -> tuple[Need, ...]:
    """What every condition reads, by whether the exact posterior is known."""
    return (OUTCOME, CHANGED, SIZE) if is_exact else (CHANGED, SIZE, LOSS)


def read_scores(capture: Capture) -> Readout:
    """Every measure by prompt, and the `size` of the edit: |change| / |tensor|, mean over edited layers."""
    n = len(capture.prompts)
    prompt = capture.rows["prompt"]
    found = {"next_kl": _by_prompt(capture[CHANGED], prompt, n)}
    if capture.posterior is not None:
        answers = Answers.of(capture, OUTCOME)
        found["posterior_kl"] = _by_prompt(answers.kl, prompt, n)
        found["entropy_error"] = _by_prompt(answers.entropy_error, prompt, n)
    else:
        found["loss"] = _by_prompt(capture[LOSS], capture.rows_at(LOSS.at)["prompt"], n)
    sizes = capture.reduced(SIZE).get("rows") if SIZE in capture.arrays else None
    if sizes is not None and sizes.size:
        found["size"] = sizes.mean(axis=0)
    return found


def _by_prompt(values: np.ndarray, prompt: np.ndarray, n: int) -> Float[np.ndarray, " prompt"]:
    """The mean over the rows of every prompt; NaN where it has none."""
    count = np.bincount(prompt, minlength=n)
    return ratio(np.bincount(prompt, weights=np.asarray(values, dtype=np.float64), minlength=n), count)


def n_tried(asked: int | None, are_sequences: bool) -> int:
    """The largest number of prompts that edits are tried on; by default 200 sequences or 40 texts."""
    return (200 if are_sequences else 40) if asked is None else asked


def choose_prompts(base: Capture, n_prompts: int | None, seed: int) -> np.ndarray:
    """The drawn prompts that edits are tried on, in order: all, or a sample spread over clusters; of SULA main ones.

    Every prompt has the same probability, and each cluster its share.
    """
    rows = base.rows
    usable = rows["drawn"].astype(bool)
    if "condition" in rows:
        condition = np.asarray(rows["condition"]).astype(str)
        usable = usable & (condition == MAIN) if MAIN in condition else usable
    prompts, first = np.unique(rows["prompt"][usable], return_index=True)
    n = n_tried(n_prompts, base.prompts.unit == "sequence")
    if len(prompts) <= n:
        return prompts
    rng = np.random.default_rng([seed, 3])
    clusters = clusters_of(rows)[usable][first]
    if len(np.unique(clusters)) == len(prompts):
        return np.sort(rng.choice(prompts, n, replace=False))
    names, code = np.unique(clusters, return_inverse=True)
    together = np.lexsort((rng.random(len(prompts)), rng.permutation(len(names))[code]))
    at = ((np.arange(n) + rng.random()) * len(prompts) / n).astype(int)
    return np.sort(prompts[together[at]])


def units_of(base: Capture, chosen: np.ndarray, n_bootstrap: int, rng: np.random.Generator) -> Units:
    """The chosen prompts, resampled whole; where all that were drawn are chosen, within the strata of the draw."""
    is_chosen = np.isin(base.rows["prompt"], chosen)
    strata = base.rows["stratum"] * (is_chosen >= base.rows["drawn"].astype(bool)).all()
    rows = base.rows.with_column("stratum", strata, LABEL).where(is_chosen)
    return Units.of(rows, base.prompts.unit, n_bootstrap, rng)


def other_units(read: Readout, n_bootstrap: int, rng: np.random.Generator) -> Units:
    """The sequences of another set, resampled whole."""
    number = np.arange(len(read["next_kl"]))
    return Units(number, number, number, bootstrap_weights(number, None, n_bootstrap, rng), "sequence")


@dataclass(frozen=True)
class Scores:
    """What conditions read, by prompt; `unedited` is the condition that changes are measured from.

    `signs` flip the changes of whole clusters.
    """

    under: Mapping[str, Readout]
    unedited: str
    units: Units
    signs: Float[np.ndarray, "permutation unit"]

    def score(self, name: str, measure: str) -> Float[np.ndarray, " unit"]:
        return np.asarray(self.under[name][measure], dtype=np.float64)

    def scores(self, names: Sequence[str], measure: str) -> Float[np.ndarray, "unit condition"]:
        return np.stack([self.score(name, measure) for name in names], axis=1)

    def baseline(self, measure: str) -> Float[np.ndarray, " unit"]:
        return self.score(self.unedited, measure)

    def changes(self, names: Sequence[str], measure: str) -> Float[np.ndarray, "unit condition"]:
        """Score under each condition minus the unedited one; positive is harm."""
        return self.scores(names, measure) - self.baseline(measure)[:, None]

    def sizes(self, names: Sequence[str]) -> Float[np.ndarray, " condition"]:
        """|change| / |tensor| of each edit, mean over prompts."""
        return np.array([self.score(name, "size").mean() for name in names])

    def harm(self, changes: Float[np.ndarray, "unit entry"], measure: str) -> Estimates:
        """`harm_estimates` of changes in a measure, tested where it can go either way."""
        return harm_estimates(changes, self.units, self.signs if measure in SIGNED else None)
