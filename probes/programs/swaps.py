"""Interchange accuracy: do directions carry a variable of a compiled program, as tested by the program's own answers?

In prompts of a compiled program, the coordinates along some directions of the residual stream at one depth are
replaced, at all scored positions, by those of another prompt, the source. The program computes the exact answer for the
source's value of the variable, all else at that depth being the prompt's own:

    accuracy = share of scored positions at which the model gives that answer

Directions: what a probe found; those that the card states for the variable (1 by construction); those of every other
variable, compared with the answer for that variable, and inert where nothing reads it any more; and random ones of the
same number (null).

Source: Geiger et al. 2021 (arXiv 2106.02997) for interchange interventions and their accuracy.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from interp.capture import Capture, Mechanism, ModelInfo
from interp.edits import ReplaceCoordinates
from interp.findings import Scalar
from interp.need import Need
from interp.probe import Condition, Planned, Readout
from interp.statistics.cosines import random_subspace
from interp.statistics.estimates import Estimates
from interp.statistics.intervals import PLAIN, prediction_band
from interp.statistics.quantities import Quantities, Quantity
from interp.statistics.resampling import bootstrap_weights
from interp.statistics.units import clusters_of, counted, resampled_unit
from interp.table import LABEL, Table

from ..measures.sample_sizes import FEW_PAIRS, with_least
from ..measures.target import Target

OUTPUT = Need("outcome_log_prob")
STREAM = Need("resid")
N_RANDOM = 199
"""Random directions at the first depth, the primary one: their p can be small enough after any correction."""

N_ELSEWHERE = 39
N_NAMED = 20
"""Most swaps at one depth, without random directions: those found and stated, and other variables."""

STATED, RANDOM = "stated", "random"
FAMILY = "program"
_PREFIX, _OTHER = "program", "of "

SWAPS = (
    "Directions of the residual stream swapped with a source's at each depth where a variable stands, at the scored "
    "positions: share of answers that are what the program computes from the source's value (accuracy), with its 95 % "
    "interval over sequences, beside random directions of the same number (null), and share that stay the prompt's own "
    "(kept). `stated` are the card's directions; `should_move` is the share of positions where the program's answer "
    "changes: at 0 the variable is inert there."
)


def _share(meaning: str, null: str = "random directions of the same number", **marks: Any) -> Quantity:
    method = "bootstrap over {drawn}s, directions held fixed"
    return Quantity("fraction", f"Share of answers that {meaning}.", null, method, "no resample differs", **marks)


_COMPUTED = (
    "are what the program computes from the source's value of {target}, when the residual stream at depth {depth} "
)
FOUND = _share(
    _COMPUTED + "is given what the source has along {n} that the probe found; the answer has to change at {moved} of "
    "the positions",
    is_headline=True,
)
IS_STATED = _share(
    _COMPUTED + "is given what the source has along the directions that the program's card states: 1, or the model is "
    "noisy"
)
INERT = _share(
    "stay the prompt's own when the directions of variables that nothing reads any more, at depth {depth}, are given "
    "the source's values",
    "1 by the program: nothing reads them",
)
NOT_SWAPPED = _share("are what the program computes from a source's value of the target")
_COLUMNS = {
    "depth": "layer", "directions": LABEL, "n_directions": "dimensions", "should_move": "fraction", "kept": "fraction",
}  # fmt: skip


@dataclass(frozen=True)
class Directions:
    """Covectors that read coordinates, and displacements where they differ."""

    covectors: Float[np.ndarray, "axis feature"]
    displacements: Float[np.ndarray, "axis feature"] | None = None

    @property
    def moved(self) -> Float[np.ndarray, "axis feature"]:
        """The directions in which activations move when coordinates do."""
        return self.covectors if self.displacements is None else self.displacements

    def fields(self) -> dict[str, Any]:
        """As fields of an edit."""
        is_one = np.array_equal(self.covectors, self.moved)
        return {"axis": self.covectors} | ({} if is_one else {"metric": "z-scored", "displacement": self.moved})

    def given(self, depth: int, points: Float[np.ndarray, "row feature"]) -> ReplaceCoordinates:
        """The edit that replaces the model's coordinates by those of these points."""
        return ReplaceCoordinates(
            layer=depth, site="resid", values=points @ self.covectors.T, at="scored", **self.fields()
        )


@dataclass(frozen=True)
class Swaps:
    """The prompts that are swapped, their sources, and the target variable."""

    mechanism: Mechanism
    variable: str
    prompts: Int[np.ndarray, " chosen"]
    sources: Int[np.ndarray, " chosen"]
    clusters: Int[np.ndarray, " chosen"]

    @classmethod
    def of(cls, base: Capture, target: Target, prompts: Int[np.ndarray, " chosen"], seed: int) -> "Swaps | None":
        """None where the model is no program, or the target not one of its variables."""
        variable = None if base.mechanism is None else base.mechanism.variable(target.column)
        if base.mechanism is None or variable is None or len(prompts) < 2:
            return None
        order = np.random.default_rng([seed, 11]).permutation(prompts)
        by_number = np.argsort(order)
        prompts, sources = order[by_number], np.roll(order, 1)[by_number]
        first = np.unique(base.rows["prompt"], return_index=True)
        clusters = clusters_of(base.rows)[first[1][np.searchsorted(first[0], prompts)]]
        return cls(base.mechanism, variable, prompts, sources, clusters)

    def depths(self, n_depths: int) -> tuple[int, ...]:
        """Where the variable stands and is read later; the first is primary."""
        first = self.mechanism.first_depth(self.variable)
        return tuple(depth for depth in range(first, n_depths) if self.mechanism.is_read(self.variable, depth))

    def conditions(
        self, base: Capture, found: Mapping[int, Mapping[str, Directions]], seed: int
    ) -> Iterator[Condition]:
        """Every swap at every depth, `found` by depth and name."""
        source_rows = _rows_of(base, self.sources)
        for depth, of_depth in found.items():
            points = base[STREAM][depth].astype(np.float64)[source_rows]
            others = {name: Directions(axes) for name, axes in self.mechanism.directions.items()
                      if name != self.variable and self.mechanism.first_depth(name) <= depth}  # fmt: skip
            stated = {STATED: Directions(self.mechanism.directions[self.variable])}
            rng = np.random.default_rng([seed, 12, depth])
            sizes = sorted({len(one.covectors) for one in (*of_depth.values(), *stated.values())})
            n_random = N_RANDOM if depth == next(iter(found)) else N_ELSEWHERE
            random = {f"{RANDOM} {k} {i}": Directions(random_subspace(points.shape[1], k, rng).T)
                      for k in sizes for i in range(n_random)}  # fmt: skip
            named = {**of_depth, **stated, **{f"{_OTHER}{name}": one for name, one in others.items()}, **random}
            for name, directions in named.items():
                edit = directions.given(depth, points)
                label = f"{_PREFIX}|{depth}|{name}|{len(directions.covectors)}"
                yield Condition(label, (edit,), (OUTPUT,), _answers, self.prompts)


@dataclass(frozen=True)
class Swapped:
    """Results of one swap by sequence: shares of answers as the program computes them, and of unchanged answers.

    `random` are the accuracies of random directions of the same number at the same depth.
    """

    depth: int
    directions: str
    n_directions: int
    by_unit: Float[np.ndarray, " unit"]
    kept: Float[np.ndarray, " unit"]
    should_move: float
    random: Float[np.ndarray, " draw"]


def planned_swaps(info: ModelInfo, n_prompts: int) -> Iterator[Planned]:
    """The most passes that swaps take, where the model is a program."""
    if info.family == FAMILY:
        for depth in range(info.n_layers + 1):
            n_random = N_ELSEWHERE if depth else N_RANDOM
            yield Planned(N_NAMED + 2 * n_random, n_prompts, depth, (OUTPUT,))


def is_swap(name: str) -> bool:
    """Whether a condition of this name is one of these."""
    return name.startswith(f"{_PREFIX}|")


def swapped(base: Capture, under: Mapping[str, Readout], swaps: Swaps) -> list[Swapped]:
    """Every swap that was run, compared with the program."""
    assert base.posterior is not None, "a program knows its answers"
    shape = len(swaps.prompts), -1
    read = {tuple(name.split("|")[1:]): under[name]["answer"].reshape(shape) for name in filter(is_swap, under)}
    own = np.asarray(base.posterior)[_rows_of(base, swaps.prompts)].argmax(axis=1).reshape(shape)
    tokens = {p: np.array(base.prompts.prompts[p].token_ids) for p in swaps.prompts.tolist()}
    mine, theirs = (np.array([tokens[p] for p in chosen.tolist()]) for chosen in (swaps.prompts, swaps.sources))
    scored = np.array(base.prompts.prompts[0].scored)

    @cache
    def exact(variable: str, depth: int) -> np.ndarray:
        return swaps.mechanism.swapped(variable, depth, mine, theirs, scored)

    found = []
    for (depth, name, size), answers in read.items():
        if name.startswith(f"{RANDOM} "):
            continue
        expected, sought = (exact(of, int(depth)) for of in (_variable(name) or swaps.variable, swaps.variable))
        drawn = [of for (at, other, _), of in read.items() if at == depth and other.startswith(f"{RANDOM} {size} ")]
        found.append(Swapped(
            int(depth), name, int(size), (answers == expected).mean(axis=1), (answers == own).mean(axis=1),
            float((expected != own).mean()), np.array([(of == sought).mean() for of in drawn]),
        ))  # fmt: skip
    return found


def program_findings(
    base: Capture, under: Mapping[str, Readout], swaps: Swaps | None, names: Mapping[str, str], target: Target,
    n_bootstrap: int,
) -> tuple[dict[str, Table], dict[str, Scalar]]:  # fmt: skip
    """Table and numbers of the swaps; `names` gives the scalar's name for each directions that were found.

    Numbers are those at the primary depth: the accuracy of what was found and of the directions that the card states,
    and how inert those are that nothing reads.
    """
    if swaps is None:
        return {}, undefined_swap(f"{target.words} is no variable that the program holds in its residual stream")
    if not swaps.depths(base.model.n_layers + 1):
        return {}, undefined_swap(f"nothing reads {target.words} at any depth: it is written and read inside one block")
    if not any(map(is_swap, under)):
        return {}, undefined_swap("the model was not run under edits, or no direction could be fitted")
    found = swapped(base, under, swaps)
    accuracy, depth = _accuracy(found, swaps.clusters, n_bootstrap), found[0].depth
    place = {swap.directions: i for i, swap in enumerate(found) if swap.depth == depth}
    wanted = {name: (FOUND, directions) for directions, name in names.items()}
    wanted["interchange_accuracy_stated"] = IS_STATED, STATED
    made = {
        name: quantity.filled(target=target.words).scalar(accuracy, place[directions])
        for name, (quantity, directions) in wanted.items() if directions in place
    }  # fmt: skip
    others = {i: variable for directions, i in place.items() if (variable := _variable(directions))}
    inert = [found[i].kept for i, variable in others.items() if not swaps.mechanism.is_read(variable, depth)]
    if inert:
        kept = mean_estimates(np.mean(inert, axis=0)[None], swaps.clusters, n_bootstrap, "sequence")
        made["inert_kept"] = INERT.filled(depth=str(depth)).scalar(kept)
    shown = ("depth", "directions", "n_directions", "should_move")
    columns = {name: np.array([getattr(swap, name) for swap in found]) for name in shown}
    columns |= {"kept": np.array([swap.kept.mean() for swap in found]), "accuracy": accuracy}
    return {"program_swaps": Quantities({"accuracy": FOUND}, _COLUMNS).table(columns, SWAPS)}, made


def undefined_swap(reason: str) -> dict[str, Scalar]:
    """The number where nothing was swapped, with the reason."""
    return {"interchange_accuracy": NOT_SWAPPED.scalar(Estimates.undefined(reason))}


def _answers(under: Capture) -> Readout:
    return {"answer": under[OUTPUT].argmax(axis=1)}


def _rows_of(base: Capture, prompts: Int[np.ndarray, " chosen"]) -> Int[np.ndarray, " row"]:
    return np.concatenate([np.flatnonzero(base.rows["prompt"] == prompt) for prompt in prompts])


def _variable(directions: str) -> str | None:
    """The variable of these directions, where it is not the target."""
    return directions.removeprefix(_OTHER) if directions.startswith(_OTHER) else None


def mean_estimates(
    by_unit: Float[np.ndarray, "swap unit"], clusters: Int[np.ndarray, " unit"], n_bootstrap: int, unit: str,
    **words: Any,
) -> Estimates:  # fmt: skip
    """Means over units, one place a swap, whole clusters resampled."""
    weights = bootstrap_weights(clusters, None, n_bootstrap, np.random.default_rng(len(clusters)))
    resampled = (weights @ by_unit.T) / weights.sum(axis=1, keepdims=True)
    about = counted(np.arange(len(clusters)), clusters, unit)
    about = with_least(about, len(np.unique(clusters)), FEW_PAIRS)
    words = {"drawn": resampled_unit(about), **words}
    return Estimates.resampled(by_unit.mean(axis=1), resampled, PLAIN, about=about, words=words)


def _accuracy(found: Sequence[Swapped], clusters: Int[np.ndarray, " unit"], n_bootstrap: int) -> Estimates:
    """The accuracy of every swap, compared with random directions of the same number, where there are any."""
    words = {
        "depth": [str(swap.depth) for swap in found], "moved": [f"{swap.should_move:.0%}" for swap in found],
        "n": [f"{swap.n_directions} direction{'s' * (swap.n_directions > 1)}" for swap in found],
    }  # fmt: skip
    by_unit = np.array([swap.by_unit for swap in found])
    accuracy = mean_estimates(by_unit, clusters, n_bootstrap, "sequence", **words)
    null, p = np.full((3, len(found)), np.nan), np.full(len(found), np.nan)
    for i, swap in enumerate(found):
        if len(swap.random):
            null[:, i] = prediction_band(swap.random)
            p[i] = (1 + (swap.random >= accuracy.value[i]).sum()) / (1 + len(swap.random))
    return accuracy.against(null, p)
