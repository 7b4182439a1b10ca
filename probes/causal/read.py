"""What is kept of the model under one condition: sums over each prompt, downstream of the edit.

An array by a readout's name holds the sum of each prompt, `<name>.of` what it is divided by, and `cluster` the cluster
of each prompt. `later_r2` holds errors of ridge refitted to later layers under the edit, each fifth of the prompts
predicted from the others (1 − ratio is R²); `log_p` a sample of rows and tokens, for the change of the logits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from interp.capture import Capture
from interp.need import Need
from interp.probe import Readout
from interp.statistics.linear_readout import read_out
from interp.statistics.ridge import absolute_penalty, ridge_axis
from interp.statistics.units import clusters_of

from ..measures.answers import Answers
from ..measures.calibration import Slopes
from ..measures.halves import Groups
from ..measures.harm import CHANGED as KL
from ..measures.harm import LOSS, OUTCOME, SIZE

LOG_P = Need("next_log_prob")

N_FOLDS = 5
N_TOKENS = 32
N_ROWS = 200
"""Tokens and rows at most in the sample that the change of the logits is taken from."""


@dataclass(frozen=True)
class Later:
    """Readouts of the entropy at later layers of the edited site, cross-validated over whole clusters.

    The relative `penalties` were chosen on the fitting prompts in the unedited model; `axes` are those of the run's
    unedited rows.
    """

    need: Need
    penalties: Mapping[int, float]
    entropy: Float[np.ndarray, " row"]
    prompt: Int[np.ndarray, " row"]
    cluster: Int[np.ndarray, " row"]
    axes: Float[np.ndarray, "later feature"]

    def read(self, under: Capture) -> Readout:
        points = under[self.need]
        errors, totals, cosines = [], [], []
        for (layer, penalty), axis in zip(self.penalties.items(), self.axes, strict=True):
            x = points[layer].reshape(len(self.entropy), -1).astype(np.float64)
            error, total = crossed(x, self.entropy, self.cluster, penalty)
            errors.append(np.bincount(self.prompt, error))
            totals.append(np.bincount(self.prompt, total))
            cosines.append(np.full(len(errors[0]), abs(relative_axis(x, self.entropy, penalty) @ axis)))
        return {
            "later_layers": np.array([*self.penalties]),
            "later_r2": np.array(errors), "later_r2.of": np.array(totals),
            "later_axis": np.array(cosines), "later_axis.of": np.ones_like(cosines),
        }  # fmt: skip


@dataclass(frozen=True)
class Reader:
    """Reads one condition on the prompts of the run: the change of the prediction, then what `also` and `later` name.

    `entropy` is that of the unedited model; `facts` of the edit are kept too.
    """

    entropy: Float[np.ndarray, " row"]
    also: tuple[Need, ...] = ()
    later: Later | None = None
    facts: Readout = field(default_factory=dict)

    @property
    def needs(self) -> tuple[Need, ...]:
        return (KL, SIZE, LOG_P, *self.also, *((self.later.need,) if self.later else ()))

    def __call__(self, under: Capture) -> Readout:
        prompt = np.asarray(under.rows["prompt"])
        moved = np.asarray(under.rows["next_entropy_bits"], np.float64) - self.entropy
        found = by_prompt(prompt, {"kl": under[KL], "entropy_change": moved, "entropy_moved": np.abs(moved)})
        if OUTCOME in self.also:
            answers = Answers.of(under, OUTCOME)
            found |= by_prompt(prompt, {"posterior_kl": answers.kl, "entropy_error": answers.entropy_error})
        if LOSS in self.also:
            followed = np.asarray(under.rows_at(LOSS.at)["prompt"])
            found |= by_prompt(followed, {"loss": under[LOSS]}, int(prompt.max()) + 1)
        if self.later is not None:
            found |= self.later.read(under)
        log_p, n_tokens = under[LOG_P], under.model.vocab_size
        sample = log_p[np.ix_(_spread(len(log_p), N_ROWS), _spread(n_tokens, N_TOKENS))]
        return found | {"log_p": sample, "cluster": _clusters(under), **sizes(under), **self.facts}


def _spread(n: int, most: int) -> Int[np.ndarray, " chosen"]:
    return np.unique(np.linspace(0, n - 1, most).round().astype(int))


def read_labels(under: Capture) -> Readout:
    """Calibration on prompts that show evidence about a label, in their main condition."""
    answers = Answers.of(under, OUTCOME)
    main = answers.condition == answers.main
    kl = np.asarray(under[KL], np.float64)[main]
    answers = answers.where(main)
    prompt = np.arange(len(answers))
    found = by_prompt(prompt, {"sula_kl": answers.kl, "kl": kl})
    slopes = Slopes(answers)
    if slopes.is_pair:
        x = Groups.of(slopes.groups).centred(slopes.x[:, None])[:, 0]
        found |= {"slope": x * slopes.y, "slope.of": x * x}
    return found | sizes(under) | {"cluster": clusters_of(under.rows)[main]}


def read_text(under: Capture) -> Readout:
    """Surprise at ordinary text."""
    clusters = _clusters(under)
    loss = by_prompt(np.asarray(under.rows_at(LOSS.at)["prompt"]), {"loss": under[LOSS]}, len(clusters))
    kl = by_prompt(np.asarray(under.rows["prompt"]), {"kl": under[KL]})
    return loss | kl | sizes(under) | {"cluster": clusters}


def _clusters(under: Capture) -> Int[np.ndarray, " prompt"]:
    first = np.unique(under.rows["prompt"], return_index=True)[1]
    return clusters_of(under.rows)[first]


def by_prompt(prompt: np.ndarray, values: dict[str, np.ndarray], n: int = 0) -> dict[str, np.ndarray]:
    """Sums over the rows of every prompt, and how many rows it has."""
    n = max(n, int(prompt.max(initial=-1)) + 1)
    count = np.bincount(prompt, minlength=n).astype(np.float64)
    found: dict[str, np.ndarray] = {}
    for name, rows in values.items():
        found[name] = np.bincount(prompt, np.asarray(rows, np.float64), minlength=n)
        found[f"{name}.of"] = count
    return found


def sizes(under: Capture) -> dict[str, np.ndarray]:
    """‖change‖/‖tensor‖ by edited layer, mean over prompts, and the share of variance that is gone."""
    reduced = under.reduced(SIZE)
    rows = reduced["rows"]
    return {
        "size": rows.mean(axis=1) if rows.size else np.zeros(len(rows)),
        "variance_share": np.asarray(reduced["variance_share"]),
    }


def crossed(
    x: Float[np.ndarray, "row feature"], y: Float[np.ndarray, " row"], unit: Int[np.ndarray, " row"], penalty: float
) -> tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]]:
    """Squared errors of ridge refitted to four fifths of the units on the others, and of the mean there."""
    error, total = np.zeros(len(y)), np.zeros(len(y))
    fold = unit % min(N_FOLDS, int(unit.max()) + 1)
    for f in np.unique(fold):
        test = fold == f
        predicted = read_out(x, y[:, None], ~test, penalty)[:, 0]
        error[test], total[test] = np.square(y - predicted)[test], np.square(y - y[~test].mean())[test]
    return error, total


def relative_axis(
    x: Float[np.ndarray, "row feature"], y: Float[np.ndarray, " row"], penalty: float
) -> Float[np.ndarray, " feature"]:
    """The ridge direction of all rows at a relative penalty, of length one; zeros where nothing varies."""
    return ridge_axis(x, y, absolute_penalty(x - x.mean(axis=0), penalty))
