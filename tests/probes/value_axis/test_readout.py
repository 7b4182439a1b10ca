"""Readings of one place: against explicit regressions, with and without what the last token determines."""

from dataclasses import replace

import numpy as np
import pytest
from interp.probes.measures.halves import HalfSplit
from interp.probes.measures.layers import ScaledRows
from interp.probes.value_axis.readout import KEPT, WITHIN_TOKEN, Labels, Split, read_place
from scipy import stats
from sklearn.linear_model import LinearRegression, Ridge

N = 60


def splits_of(label, tokens, nuisances=None):
    """Both treatments of a label with nine exchanges, in single precision, and two control tasks."""
    rng = np.random.default_rng(0)
    permuted = np.array([rng.permutation(label) for _ in range(9)]).T.astype(np.float32)
    labels = Labels(("next_entropy_bits",), np.arange(N), np.column_stack([label, rng.random((N, 2))]), permuted)
    none = np.empty((N, 0))
    halves = [np.split(rng.permutation(N), 2) for _ in range(3)]
    return {
        KEPT: [Split.of(HalfSplit.of(f, j, none), labels) for f, j in halves],
        WITHIN_TOKEN: [Split.of(HalfSplit.of(f, j, none if nuisances is None else nuisances, tokens), labels)
                       for f, j in halves],
    }  # fmt: skip


def world(n_features=8, seed=1):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 8, N)
    rows = (
        rng.standard_normal((N, n_features)) * np.linspace(3, 1, n_features) + 2 * rng.standard_normal((8, 1))[tokens]
    )
    return rows, tokens, rows[:, :3].sum(axis=1) + rng.standard_normal(N), rng


def mean_square(rows):
    """The mean of the squared singular values that are more than rounding."""
    squared = np.square(np.linalg.svd(rows, compute_uv=False))
    return squared[squared > 1e-10 * squared[0]].mean()


def judged_by(predicted, truth):
    return (1 - np.square(truth - predicted).sum() / np.square(truth).sum(), np.corrcoef(predicted, truth)[0, 1])


@pytest.mark.parametrize("n_features", [8, 90])
@pytest.mark.parametrize("treatment", [KEPT, WITHIN_TOKEN])
def test_ridge_equals_an_explicit_fit_at_the_penalty_of_least_cross_validation_error(n_features, treatment):
    rows, tokens, label, rng = world(n_features)
    splits = splits_of(label, tokens, rng.standard_normal((N, 2)))
    found = read_place(ScaledRows.of(rows), splits).read[treatment, "ridge"]
    for h, split in enumerate(splits[treatment]):
        x, held_out = split.half_split.apply(rows)
        scale = mean_square(x)
        for part, offset in zip(split.parts, (0, 3), strict=True):
            for i in range(part.fitted.shape[1]):
                y = part.fitted[:, i].astype(float)
                fits = [Ridge(alpha=a * scale, fit_intercept=False).fit(x, y) for a in 10.0 ** np.arange(-6, 4)]
                hats = [x @ np.linalg.solve(x.T @ x + f.alpha * np.eye(x.shape[1]), x.T) for f in fits]
                errors = [
                    np.square(y - f.predict(x)).sum() / (split.half_split.n_free - np.trace(hat)) ** 2
                    for f, hat in zip(fits, hats, strict=True)
                ]
                # where the fit has all freedom the criterion is 0 / 0
                best = int(np.argmin(np.where(np.array([split.half_split.n_free - np.trace(h) for h in hats]) > 1e-3,
                                              errors, np.inf)))  # fmt: skip
                expected = judged_by(fits[best].predict(held_out), part.held_out[:, i])
                if n_features < N / 2:
                    assert found.r2[h, offset + i] == pytest.approx(expected[0], abs=1e-4)
                    assert found.correlation[h, offset + i] == pytest.approx(expected[1], abs=1e-4)
                else:
                    assert found.r2[h, offset + i] <= 1


@pytest.mark.parametrize("n_features", [8, 90])
def test_where_prompts_come_in_clusters_the_penalty_errs_least_on_clusters_left_out(n_features):
    """Explicit refits without each cluster, the mean refitted; the expected R² is of the same errors."""
    rows, _, label, rng = world(n_features)
    clusters = np.arange(N) // 4
    rows += 3 * rng.standard_normal((N // 4, n_features))[clusters]
    label += 3 * rng.standard_normal(N // 4)[clusters]
    fitting, held_out = np.split(np.arange(N), 2)
    labels = Labels(("next_entropy_bits",), clusters, label[:, None], np.empty((N, 0), np.float32))
    split = Split.of(HalfSplit.of(fitting, held_out, np.empty((N, 0))), labels, clusters)
    found = read_place(ScaledRows.of(rows), {KEPT: [split]})
    x, y = rows[fitting], label[fitting]
    penalties, scale = 10.0 ** np.arange(-6, 4), mean_square(x - x.mean(axis=0))
    errors, of_none = np.zeros(len(penalties)), 0.0
    for cluster in np.unique(clusters[fitting]):
        out = clusters[fitting] == cluster
        of_none += np.square(y[out] - y[~out].mean()).sum()
        for i, penalty in enumerate(penalties):
            fit = Ridge(alpha=penalty * scale).fit(x[~out], y[~out])
            errors[i] += np.square(y[out] - fit.predict(x[out])).sum()
    best = errors.argmin()
    assert found.penalty == penalties[best]
    fit = Ridge(alpha=found.penalty * scale).fit(x, y)
    r2 = (
        1 - np.square(label[held_out] - fit.predict(rows[held_out])).sum() / np.square(label[held_out] - y.mean()).sum()
    )
    read = found.read[KEPT, "ridge"]
    assert read.r2[0, 0] == pytest.approx(r2, abs=1e-4)
    assert read.fit[0, 0] == pytest.approx(1 - errors[best] / of_none, abs=1e-4)


def test_the_first_axis_is_that_of_the_fitting_rows_and_reads_by_its_slope_alone():
    rows, tokens, label, rng = world()
    nuisances = rng.standard_normal((N, 2))
    splits = splits_of(label, tokens, nuisances)
    place = read_place(ScaledRows.of(rows), splits)
    for h, (kept, within) in enumerate(zip(splits[KEPT], splits[WITHIN_TOKEN], strict=True)):
        fitted, held_out = kept.half_split.apply(rows)
        first = np.linalg.svd(fitted)[2][0]
        for split, x, z in (
            (kept, fitted @ first, held_out @ first),
            (within, *(s[:, 0] for s in within.half_split.apply(rows @ first[:, None]))),
        ):  # fmt: skip
            line = LinearRegression(fit_intercept=False).fit(x[:, None], split.parts[0].fitted[:, 0])
            truth, predicted = split.parts[0].held_out[:, 0], line.predict(z[:, None])
            expected = judged_by(predicted, truth)[0], stats.spearmanr(predicted, truth)[0]
            read = place.read[KEPT if split is kept else WITHIN_TOKEN, "pc1"]
            assert (read.r2[h, 0], read.correlation[h, 0]) == pytest.approx(expected)
    assert abs(place.directions["pc1"] @ np.linalg.svd(splits[KEPT][0].half_split.apply(rows)[0])[2][0]) > 1 - 1e-9
    assert place.cosine == pytest.approx(abs(place.directions["pc1"] @ place.directions["ridge"]))


def test_axes_are_of_the_first_half_split_and_turned_so_that_entropy_rises():
    rows, tokens, label, _ = world()
    splits = splits_of(label, tokens)
    place = read_place(ScaledRows.of(rows), splits)
    first = splits[KEPT][0]
    x, held_out = first.half_split.apply(rows)
    explicit = Ridge(alpha=place.penalty * mean_square(x), fit_intercept=False).fit(x, first.parts[0].fitted[:, 0])
    assert place.directions["ridge"] == pytest.approx(explicit.coef_ / np.linalg.norm(explicit.coef_))
    assert place.predicted == pytest.approx(explicit.predict(held_out))


def test_rows_that_the_token_determines_are_void_within_it():
    _, tokens, label, rng = world()
    table = rng.standard_normal((8, 5))
    place = read_place(ScaledRows.of(table[tokens] - table[tokens].mean(axis=0)), splits_of(label, tokens))
    assert place.read[WITHIN_TOKEN, "ridge"].is_void and place.read[WITHIN_TOKEN, "pc1"].is_void
    assert np.isnan(place.read[WITHIN_TOKEN, "ridge"].r2).all()
    assert not place.read[KEPT, "ridge"].is_void
    still = read_place(ScaledRows.of(np.zeros((N, 5))), splits_of(label, tokens))
    assert still.read[KEPT, "ridge"].is_void and still.directions == {} and np.isnan(still.predicted).all()


def test_half_splits_without_recurring_tokens_and_columns_of_a_target():
    rows, _, label, _ = world()
    read = read_place(ScaledRows.of(rows), splits_of(label, np.arange(N))).read[WITHIN_TOKEN, "ridge"]
    assert np.isnan(read.r2).all() and not read.is_void
    labels = Labels(("a", "b"), np.arange(4), np.zeros((4, 2 + 3)), np.zeros((4, 2 * 6), np.float32))
    assert labels.controls == slice(2, 5)
    assert labels.of_target("b").tolist() == [1, 11, 12, 13, 14, 15, 16]
    assert replace(labels, true=np.zeros((4, 2))).of_target("a").tolist() == [0, 2, 3, 4, 5, 6, 7]


def test_inner_products_read_the_same_as_the_rows_themselves():
    rows, tokens, label, rng = world(90)
    rows = rows + 100 * rng.standard_normal(90)
    splits = splits_of(label, tokens, rng.standard_normal((N, 2)))
    by_products, by_rows = (read_place(r, splits) for r in (ScaledRows.of(rows), ScaledRows(rows, None)))
    for key, read in by_rows.read.items():
        for name in ("r2", "correlation", "fit"):
            np.testing.assert_allclose(getattr(by_products.read[key], name), getattr(read, name), atol=1e-6)
    for axis, found in by_rows.directions.items():
        mine = by_products.directions[axis]
        np.testing.assert_allclose(np.sign(found @ mine) * mine, found, atol=1e-6)
    assert by_products.cosine == pytest.approx(by_rows.cosine, abs=1e-6)


@pytest.mark.parametrize("axis", ["ridge", "pc1"])
@pytest.mark.parametrize("n_features", [8, 90])
def test_what_a_unit_adds_is_what_goes_where_the_readout_is_fitted_and_judged_without_it(n_features, axis):
    rows, _, label, rng = world(n_features)
    units = np.arange(N) // 2
    fitting, held_out = (np.flatnonzero(np.isin(units, half)) for half in np.split(rng.permutation(N // 2), 2))
    labels = Labels(("next_entropy_bits",), units, label[:, None], np.empty((N, 0), np.float32))
    split = Split.of(HalfSplit.of(fitting, held_out, np.empty((N, 0))), labels, units)
    found = read_place(ScaledRows.of(rows), {KEPT: [split]})
    x, first = rows[fitting], np.linalg.svd(rows[fitting] - rows[fitting].mean(axis=0))[2][:1]
    along, penalty = (rows @ first.T, 0.0) if axis == "pc1" else (rows, found.penalty * mean_square(x - x.mean(axis=0)))

    def left_over(unit):
        fit, judged = (part[units[part] != unit] for part in (fitting, held_out))
        readout = Ridge(alpha=penalty).fit(along[fit], label[fit])
        wrong, told = label[judged] - readout.predict(along[judged]), label[judged] - label[fit].mean()
        return np.log(np.square(wrong).sum() / np.square(told).sum())

    without = np.array([left_over(unit) for unit in range(N // 2)])
    added = found.read[KEPT, axis].added[0, :, 0]
    assert np.corrcoef(added, left_over(-1) - without)[0, 1] > 0.97
    assert added.std() == pytest.approx(without.std(), rel=0.15)
