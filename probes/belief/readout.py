"""How well one layer of one site tells the exact belief in sequences that its readout was not fitted on.

Beside the belief itself, through the same cross-validation, penalty chosen anew each time:

* beliefs permuted between sequences, whole trajectories, what position tells left in its place;
* control tasks: each (position, token) is given the belief of another row of that position, wherever it occurs
  (Hewitt and Liang 2019, arXiv 1909.03368);
* random subspaces with as many dimensions as the belief, read by least squares;

all of it with the mean alone as baseline, and again with what position tells taken out of activations and beliefs.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from interp.statistics.ratio import ratio
from interp.statistics.resampling import bootstrap_weights, shuffles
from interp.statistics.ridge import PrincipalForm
from interp.table import Table

from ..measures.cloud import Cloud
from ..measures.nuisances import Design, nuisance_design
from .folds import CrossValidated, Folds, Pressed, cross_validate, deal, press, pseudo_inverse
from .target import ExactBelief

N_CONTROLS = 5
N_SUBSPACES = 20

_NO_DIMENSION = 1e-8
"""Share of the largest singular value below which the beliefs do not fill a dimension."""

_ROUNDING = 1e-12


@dataclass(frozen=True)
class Setting:
    """What all places share.

    `targets` are the beliefs that are read, fold by fold, `[held, group · component]`: the belief, its control tasks,
    then exchanges; `followed` are the belief and its control tasks at all rows. `position` is the design of what
    position tells, `token` of what the last token tells too. `weights` resample prompts by whole clusters;
    `code` says which prompt a row belongs to. Readouts and encodings are not fitted on the prompts `held_out`.
    """

    belief: ExactBelief
    folds: Folds
    targets: tuple[Float[np.ndarray, "_held target"], ...]
    followed: Float[np.ndarray, "row followed"]
    position: Design
    token: Design
    orders: Int[np.ndarray, "permutation row"]
    code: Int[np.ndarray, " row"]
    weights: Int[np.ndarray, "resample unit"]
    held_out: Int[np.ndarray, " prompt"]

    @property
    def n_groups(self) -> int:
        return 1 + N_CONTROLS + len(self.orders)

    @property
    def n_components(self) -> int:
        return self.belief.values.shape[1]

    @property
    def mean(self) -> Float[np.ndarray, "row 1"]:
        return np.ones((len(self.code), 1))


def make_setting(
    pool: Cloud, belief: ExactBelief, n_permutations: int, n_bootstrap: int, rng: np.random.Generator
) -> Setting:
    """Folds, exchanges, control tasks and resamples, the same for all places."""
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
    controls = np.empty((len(values), N_CONTROLS, values.shape[1]))
    for here in np.unique(place):
        mine = np.flatnonzero(place == here)
        names, codes = np.unique(rows["token"][mine], return_inverse=True)
        chosen = rng.choice(mine, size=(len(names), N_CONTROLS))
        controls[mine] = values[chosen[codes]]
    return controls


@dataclass(frozen=True)
class Shares:
    """R² of the belief and of its exchanges, overall and by component, and squared sums by unit for intervals.

    `errors` and `totals` are of the true belief, `[unit, component]`. R² is NaN where there is nothing to tell.
    """

    r2: Float[np.ndarray, " belief_and_exchanges"]
    by_component: Float[np.ndarray, "belief_and_exchanges component"]
    errors: Float[np.ndarray, "unit component"]
    totals: Float[np.ndarray, "unit component"]


@dataclass(frozen=True)
class Reading:
    """One place: shares from the mean and beyond position, predictions, controls, subspaces, and the readout.

    `predicted` are held-out linear predictions of the belief at every row, `by_position` what position alone predicts,
    `by_mean` the mean belief of the rows fitted on.
    `control_r2` has one entry a control task; `control_errors` are theirs by unit. `readout` are raw covectors and
    `encoding` raw displacements, one a component, from all folds but the first, `origin` the mean there.
    """

    kept: Shares
    beyond: Shares
    predicted: Float[np.ndarray, "row component"]
    by_position: Float[np.ndarray, "row component"]
    by_mean: Float[np.ndarray, "row component"]
    control_r2: Float[np.ndarray, " control"]
    control_errors: Float[np.ndarray, "unit control"]
    control_totals: Float[np.ndarray, "unit control"]
    subspace_r2: Float[np.ndarray, " draw"]
    readout: Float[np.ndarray, "component feature"]
    encoding: Float[np.ndarray, "component feature"]
    origin: Float[np.ndarray, " feature"]
    penalty: float


def read_belief(points: Float[np.ndarray, "row feature"], setting: Setting, rng: np.random.Generator) -> Reading:
    """Everything that is read at one place. Wide points are turned into their principal coordinates first."""
    raw = np.asarray(points, dtype=np.float64)
    centre = raw.mean(axis=0)
    points, directions = _narrowed(raw - centre)
    width, folds = setting.n_components, setting.folds
    n_followed = 1 + N_CONTROLS
    position = setting.position.values
    parts = press(folds, position, points, setting.targets)
    beyond = cross_validate(folds, parts, position, points, setting.n_groups, 1)
    # the constant is in the span of every design, so that a pressed row knows what its entry is
    constant = pseudo_inverse(position) @ setting.mean
    parts = [Pressed(part.design @ constant, part.points, part.targets, part.beyond) for part in parts]
    kept = cross_validate(folds, parts, setting.mean, points, setting.n_groups, n_followed)
    errors, totals = _by_unit(setting, kept, n_followed)
    by_control = (len(errors), N_CONTROLS, width)
    encoding, origin = _encoding(raw, setting)
    return Reading(
        kept=_shares(setting, kept, errors[:, :width], totals[:, :width]),
        beyond=_shares(setting, beyond, *_by_unit(setting, beyond, 1)),
        predicted=kept.predicted[:, :width],
        by_position=beyond.by_design,
        by_mean=kept.by_design[:, :width],
        control_r2=1
        - ratio(*(x.reshape(setting.n_groups, -1).sum(axis=1) for x in (kept.error, kept.total)))[1:n_followed],
        control_errors=errors[:, width:].reshape(by_control).sum(axis=2),
        control_totals=totals[:, width:].reshape(by_control).sum(axis=2),
        subspace_r2=random_subspace_r2(folds, parts, setting.belief.rank, width, rng),
        readout=kept.covectors.T @ directions,
        encoding=encoding,
        origin=origin,
        penalty=kept.penalty,
    )


def beyond_token(
    points: Float[np.ndarray, "row feature"], setting: Setting
) -> tuple[Shares, Float[np.ndarray, "row component"]]:
    """What a readout explains of what position and the last token leave, taken out of activations and beliefs; and
    what these two alone predict.
    """
    points, _ = _narrowed(points - points.mean(axis=0, dtype=np.float64))
    design = setting.token.values
    parts = press(setting.folds, design, points, setting.targets)
    found = cross_validate(setting.folds, parts, design, points, setting.n_groups, 1)
    return _shares(setting, found, *_by_unit(setting, found, 1)), found.by_design


def _narrowed(centred: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points and the orthonormal rows that lead back: principal coordinates where there are more features than rows."""
    if centred.shape[1] <= centred.shape[0]:
        return centred, np.eye(centred.shape[1])
    form = PrincipalForm.of(centred)
    return form.left * form.singular, form.directions


def _shares(setting: Setting, found: CrossValidated, errors: np.ndarray, totals: np.ndarray) -> Shares:
    """Of the belief and its exchanges; what is left of a component that never varies is rounding."""
    kept = np.r_[0, 1 + N_CONTROLS : setting.n_groups]
    error, total = (x.reshape(setting.n_groups, -1)[kept] for x in (found.error, found.total))
    alive = total > _ROUNDING * np.square(setting.belief.values).sum()
    error, total = np.where(alive, error, 0.0), np.where(alive, total, 0.0)
    r2, by_component = 1 - ratio(error.sum(axis=1), total.sum(axis=1)), 1 - ratio(error, total)
    return Shares(r2, by_component, np.where(alive[0], errors, 0.0), np.where(alive[0], totals, 0.0))


def _by_unit(setting: Setting, found: CrossValidated, n_followed: int) -> tuple[np.ndarray, np.ndarray]:
    """Squared errors and totals of the followed targets, summed over the rows of every unit."""
    truth = setting.followed[:, : n_followed * setting.n_components]
    order = np.argsort(setting.code, kind="stable")
    starts = np.searchsorted(setting.code[order], np.arange(setting.code.max() + 1))
    errors, totals = np.square(truth - found.predicted), np.square(truth - found.by_design)
    return np.add.reduceat(errors[order], starts, axis=0), np.add.reduceat(totals[order], starts, axis=0)


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
        design, points, targets = (
            np.vstack([getattr(parts[other], name) for other in folds.others(fold)])
            for name in ("design", "points", "targets")
        )
        inverse = pseudo_inverse(design)
        at, level = inverse @ points, inverse @ targets[:, :width]
        points, targets = points - design @ at, targets[:, :width] - design @ level
        held_points, held_targets = held.points - held.design @ at, held.targets[:, :width] - held.design @ level
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
