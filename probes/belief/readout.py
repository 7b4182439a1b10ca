"""How well one layer of one site predicts the exact belief of held-out sequences, and of controls.

The same cross-validation, with its own choice of the penalty, is applied to

* beliefs permuted between whole sequences, with position's part left in place;
* control tasks: each (position, token) has the belief of another row of that position, wherever it occurs (Hewitt and
  Liang 2019, arXiv 1909.03368);
* random subspaces with as many dimensions as the belief, read by least squares;

all of it with the mean alone as baseline, and again with position regressed out of activations and beliefs.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int, Num

from interp.statistics.ratio import ratio
from interp.statistics.resampling import bootstrap_weights, shuffles
from interp.statistics.ridge import PrincipalForm
from interp.table import Table

from ..measures.cloud import Cloud
from ..measures.halves import label_by_type
from ..measures.nuisances import Design, nuisance_design
from .folds import CrossValidated, Fit, Folds, Pressed, cross_validate, deal, joined, press, pseudo_inverse
from .target import ExactBelief

N_CONTROLS = 5
N_SUBSPACES = 20

_NO_DIMENSION = 1e-8
"""Share of the largest singular value below which the beliefs do not fill a dimension."""

_ROUNDING = 1e-12


@dataclass(frozen=True)
class Setting:
    """What all places share.

    `targets`, fold by fold, `[held, group · component]`: the belief, its control tasks, then permutations; `followed`
    are the belief and its control tasks at all rows. `position` and `token` are designs, the second with the last token
    too. `weights` resample prompts by whole clusters; `code` is the prompt of each row. Readouts and encodings are not
    fitted on the prompts `held_out`.
    """

    belief: ExactBelief
    folds: Folds
    targets: tuple[Float[np.ndarray, "_held target"], ...]
    followed: Float[np.ndarray, "row followed"]
    position: Design
    token: Design
    orders: Int[np.ndarray, "permutation row"]
    code: Int[np.ndarray, " row"]
    weights: Num[np.ndarray, "resample unit"]
    held_out: Int[np.ndarray, " prompt"]

    @property
    def n_groups(self) -> int:
        return 1 + N_CONTROLS + len(self.orders)

    @property
    def n_components(self) -> int:
        return self.belief.values.shape[1]


def make_setting(
    pool: Cloud, belief: ExactBelief, n_permutations: int, n_bootstrap: int, rng: np.random.Generator
) -> Setting:
    """Folds, permutations, control tasks and resamples for all places."""
    names, first, code = np.unique(pool.prompts, return_index=True, return_inverse=True)
    folds = deal(pool.units, rng)
    position, token = nuisance_design(pool.rows, ()), nuisance_design(pool.rows, ("token",))
    by_position = position.predicted(belief.values)
    orders = shuffles(pool.units, n_permutations, rng)
    controls = _control_tasks(pool.rows, belief.values, not pool.one_row_each, rng)
    followed = np.concatenate([belief.values[:, None], controls], axis=1).reshape(len(code), -1)
    left, targets = belief.values - by_position, []
    for rows in map(folds.rows, range(folds.n)):
        # the beliefs of other units, position's part staying where it is
        permuted = np.swapaxes(left[orders[:, rows]], 0, 1) + by_position[rows, None]
        targets.append(np.hstack([followed[rows], permuted.reshape(len(rows), -1)]))
    weights = bootstrap_weights(pool.units[first], None, n_bootstrap, rng)
    held_out = names[np.unique(code[folds.code == 0])]
    return Setting(belief, folds, tuple(targets), followed, position, token, orders, code, weights, held_out)


def _control_tasks(
    rows: Table, values: Float[np.ndarray, "row component"], is_sequence: bool, rng: np.random.Generator
) -> Float[np.ndarray, "row control component"]:
    """Every token (in sequences: at each position) is given the belief of a random row (of that position)."""
    place = rows["position"] if is_sequence else np.zeros(rows.n_rows, dtype=np.int64)
    chosen = np.empty((len(values), N_CONTROLS), dtype=np.int64)
    for here in np.unique(place):
        mine = np.flatnonzero(place == here)
        chosen[mine] = label_by_type(rows["token"][mine], mine.astype(float), N_CONTROLS, rng)
    return values[chosen]


@dataclass(frozen=True)
class Shares:
    """R² of every group of targets, overall and by component, and squared sums by unit of the followed ones.

    Groups are the belief, control tasks and permutations. R² is NaN where nothing varies.
    """

    r2: Float[np.ndarray, " group"]
    by_component: Float[np.ndarray, "group component"]
    errors: Float[np.ndarray, "unit followed component"]
    totals: Float[np.ndarray, "unit followed component"]

    @classmethod
    def of(cls, setting: Setting, found: CrossValidated) -> "Shares":
        """A component or control task that never varies leaves only rounding, and counts as 0."""
        error, total = (x.reshape(setting.n_groups, -1) for x in (found.error, found.total))
        alive = total > _ROUNDING * np.square(setting.belief.values).sum()
        error, total = np.where(alive, error, 0.0), np.where(alive, total, 0.0)
        truth = setting.followed[:, : found.predicted.shape[1]]
        order = np.argsort(setting.code, kind="stable")
        starts = np.searchsorted(setting.code[order], np.arange(setting.code.max() + 1))
        by_unit = []
        for predicted in (found.predicted, found.by_design):
            sums = np.add.reduceat(np.square(truth - predicted)[order], starts, axis=0)
            sums = sums.reshape(len(sums), -1, setting.n_components)
            by_unit.append(np.where(alive[: sums.shape[1]], sums, 0.0))
        return cls(1 - ratio(error.sum(axis=1), total.sum(axis=1)), 1 - ratio(error, total), *by_unit)

    @property
    def permuted(self) -> Float[np.ndarray, " exchange"]:
        """R² of every permutation of the belief."""
        return self.r2[1 + N_CONTROLS :]


@dataclass(frozen=True)
class Reading:
    """One place: shares from the mean and beyond position, held-out predictions, subspaces, and the readout.

    `by_mean` is the mean belief of the rows fitted on. `readout` are raw covectors and `encoding` raw displacements,
    one a component, from all folds but the first, `origin` the mean there.
    """

    kept: Shares
    beyond: Shares
    predicted: Float[np.ndarray, "row component"]
    by_position: Float[np.ndarray, "row component"]
    by_mean: Float[np.ndarray, "row component"]
    subspace_r2: Float[np.ndarray, " draw"]
    readout: Float[np.ndarray, "component feature"]
    encoding: Float[np.ndarray, "component feature"]
    origin: Float[np.ndarray, " feature"]
    penalty: float


def read_belief(points: Float[np.ndarray, "row feature"], setting: Setting, rng: np.random.Generator) -> Reading:
    """Read one place; wide points are first turned into their principal coordinates."""
    raw = np.asarray(points, dtype=np.float64)
    points, directions = _narrowed(raw - raw.mean(axis=0))
    width, folds = setting.n_components, setting.folds
    position = setting.position.values
    parts = press(folds, position, points, setting.targets)
    beyond = cross_validate(folds, parts, position, points, setting.n_groups, 1)
    # the constant is in the span of every design, so that a pressed row knows what its entry is
    ones = np.ones((len(raw), 1))
    constant = pseudo_inverse(position) @ ones
    parts = [replace(part, design=part.design @ constant) for part in parts]
    kept = cross_validate(folds, parts, ones, points, setting.n_groups, 1 + N_CONTROLS)
    encoding, origin = _encoding(raw, setting)
    return Reading(
        kept=Shares.of(setting, kept),
        beyond=Shares.of(setting, beyond),
        predicted=kept.predicted[:, :width],
        by_position=beyond.by_design,
        by_mean=kept.by_design[:, :width],
        subspace_r2=random_subspace_r2(folds, parts, setting.belief.rank, width, rng),
        readout=kept.covectors.T @ directions,
        encoding=encoding,
        origin=origin,
        penalty=kept.penalty,
    )


def beyond_token(
    points: Float[np.ndarray, "row feature"], setting: Setting
) -> tuple[Shares, Float[np.ndarray, "row component"]]:
    """What a readout explains beyond position and the last token, and what these two alone predict."""
    points, _ = _narrowed(points - points.mean(axis=0, dtype=np.float64))
    design = setting.token.values
    parts = press(setting.folds, design, points, setting.targets)
    found = cross_validate(setting.folds, parts, design, points, setting.n_groups, 1)
    return Shares.of(setting, found), found.by_design


def _narrowed(centred: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points and the orthonormal rows that lead back: principal coordinates where there are more features than rows."""
    if centred.shape[1] <= centred.shape[0]:
        return centred, np.eye(centred.shape[1])
    form = PrincipalForm.of(centred)
    return form.left * form.singular, form.directions


def random_subspace_r2(
    folds: Folds, parts: list[Pressed], rank: int, width: int, rng: np.random.Generator
) -> Float[np.ndarray, " draw"]:
    """Cross-validated R² of the belief from `rank` random directions of the points, by least squares.

    Empty where the directions would be the whole space, or more than half as many as there are rows to fit on.
    """
    n_features = parts[0].points.shape[1]
    n_fitted = sum(len(part.points) for part in parts) * (folds.n - 1) // folds.n
    if not 0 < rank < n_features or 2 * rank > n_fitted:
        return np.empty(0)
    directions = rng.standard_normal((N_SUBSPACES, n_features, rank))
    error, total = np.zeros((2, N_SUBSPACES))
    for fold, held in enumerate(parts):
        others = joined([parts[other] for other in folds.others(fold)])
        fit = Fit.to(others)
        (points, targets), (held_points, held_targets) = fit.left(others), fit.left(held)
        targets, held_targets = targets[:, :width], held_targets[:, :width]
        beyond = held.beyond[:width].sum()
        total += np.square(held_targets).sum() + beyond
        for draw, subspace in enumerate(directions):
            coefficients = np.linalg.lstsq(points @ subspace, targets, rcond=None)[0]
            error[draw] += np.square(held_targets - held_points @ subspace @ coefficients).sum() + beyond
    return 1 - ratio(error, total)


def _encoding(raw: np.ndarray, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """How activations move with each component (least squares on all folds but the first), and their mean there."""
    fitted = np.flatnonzero(setting.folds.code != 0)
    origin = raw[fitted].mean(axis=0)
    belief = setting.belief.values[fitted]
    # components that add up to one leave a direction that only rounding fills
    return np.linalg.pinv(belief - belief.mean(axis=0), rcond=_NO_DIMENSION) @ (raw[fitted] - origin), origin
