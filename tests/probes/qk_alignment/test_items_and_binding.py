"""Attention over the items of a context, and binding, on a few rows: shifts, renamings, and what is reported."""

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
from interp.probes.qk_alignment.binding import BoundKeys, _renamed, measure_binding
from interp.probes.qk_alignment.items import (
    _scalars,
    attention_over_items,
    class_masses,
    comparable_rows,
    compare_with_relabelled,
    outcomes_in_context,
)
from scipy import stats

from interp.capture import Capture
from interp.information import kl_bits
from interp.statistics.cosines import cosine_measures
from interp.statistics.intervals import TAILS
from interp.statistics.units import Units
from interp.table import Table

NAN = np.nan
TOKENS = np.array([[7, 9, 8, 3], [7, 3, 8, 9], [7, 3, 7, 8], [9, 8, 7, 3]])
SEEN = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1]], dtype=bool)
OUTCOMES = np.array([7, 8, 9])
STANDS = (TOKENS[..., None] == OUTCOMES) & SEEN[..., None]
POSTERIOR = np.array([[0.5, 0.25, 0.25], [0.5, 0.5, 0.0], [0.25, 0.75, 0.0], [0.0, 1.0, 0.0]])


def weights():
    """Weights `[row, head, key]` that add up to one over the keys that are seen."""
    drawn = np.random.default_rng(0).dirichlet(np.ones(4), (4, 2)) * SEEN[:, None]
    return drawn / drawn.sum(axis=-1, keepdims=True)


def log_weights(w):
    with np.errstate(divide="ignore"):
        return np.where(SEEN[:, None], np.log2(w), NAN)[None]


def by_outcome(w):
    """What each outcome is given, wherever it stands among the keys that are seen."""
    return np.einsum("rhk,rko->rho", w, STANDS)


def known():
    """What is read of a capture: four prompts of a tunnel, each with one row, whose token is no outcome."""
    rows = {"token": np.full(4, 3), "prompt": np.arange(4), "position": np.full(4, 3)}
    prompts = SimpleNamespace(
        is_tunnel=True, outcome_ids=OUTCOMES, prompts=[SimpleNamespace(token_ids=tuple(ids)) for ids in TOKENS]
    )
    found = MagicMock(
        spec=Capture, posterior=POSTERIOR, rows=Table(rows, dict.fromkeys(rows, "number")), prompts=prompts
    )
    found.__getitem__.return_value = log_weights(weights())
    return found


def test_outcomes_stand_where_they_are_seen():
    stands = outcomes_in_context(known())
    assert stands[0].tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert not stands[1, 3].any(), "not seen" and stands[2, :, 0].tolist() == [1, 0, 1, 0]
    np.testing.assert_array_equal(stands, STANDS)
    w = weights()
    masses = {name: (mass[0], uniform[0, :, 0]) for name, mass, uniform in class_masses(known())}
    values, share = masses["mass_values"]
    np.testing.assert_allclose(values[0], w[0, :, :3].sum(axis=-1), rtol=1e-6)  # three outcomes come before the row
    np.testing.assert_allclose(share, [3 / 4, 2 / 3, 2 / 4, 3 / 4])


def test_items_are_seen_and_rows_of_a_sequence_move_on_together():
    assert comparable_rows(STANDS, POSTERIOR).tolist() == [0, 1, 2, 3]
    possible = np.array([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.0, 1.0, 0.0]])
    assert comparable_rows(STANDS, possible).tolist() == [0, 3], "9 was not seen in the second and third row"
    alone = STANDS & (OUTCOMES == 7)
    assert comparable_rows(alone, np.tile([1.0, 0, 0], (4, 1))).tolist() == []
    items, units, once = reported()
    doubled = replace(items, **{name: np.repeat(x, 2, axis=min(x.ndim - 1, 1)) for name, x in vars(items).items()})
    both = replace(units, code=np.repeat(units.code, 2))
    twice = compare_with_relabelled(doubled, both, 200, np.random.default_rng(2))
    np.testing.assert_allclose(twice.relabelled[:, 0], once.relabelled[:, 0])


def test_every_row_is_turned_round_its_own_items():
    """Rows of three and of two items; an item that stands twice has both weights."""
    w = weights()
    items = attention_over_items(log_weights(w), STANDS, POSTERIOR)
    given = by_outcome(w)
    assert items.n_items.tolist() == [3, 2, 2, 3] and items.measured.shape == (2, 4, 3, 1, 2)
    np.testing.assert_allclose(items.uniform[1], [3 / 4, 2 / 3, 3 / 4, 1 / 4])
    np.testing.assert_allclose(
        items.uniform[0], np.log2([3, 2, 2, 3]) - [1.5, 1, -(0.25 * np.log2(0.25) + 0.75 * np.log2(0.75)), 0]
    )
    for row, (p, n) in enumerate(zip(POSTERIOR, items.n_items, strict=True)):
        for shift in range(3):
            if shift >= n:
                assert np.isnan(items.measured[:, row, shift]).all()
                continue
            turned = np.append(np.roll(p[:n], -shift), p[n:])  # the items of these rows are the first outcomes
            for head in range(2):
                q = given[row, head]
                assert items.measured[1, row, shift, 0, head] == pytest.approx(q[turned > 0].sum())
                expected = kl_bits(turned[None], (q / q.sum())[None])[0]
                assert items.measured[0, row, shift, 0, head] == pytest.approx(expected)


def reported(n_units=4):
    stands = np.concatenate([STANDS] * (n_units // 4))
    log = np.concatenate([log_weights(weights())] * (n_units // 4), axis=1)
    items = attention_over_items(log, stands, np.tile(POSTERIOR, (n_units // 4, 1)))
    number = np.arange(n_units)
    drawn = np.random.default_rng(1).multinomial(n_units, np.full(n_units, 1 / n_units), 60)
    units = Units(number, number, number, drawn, "sequence")
    return items, units, compare_with_relabelled(items, units, 200, np.random.default_rng(2))


def test_relabellings_are_shifts_and_as_likely():
    items, _, test = reported()
    np.testing.assert_allclose(test.by_unit, np.moveaxis(items.measured[:, :, 0], 1, 0))
    expected = np.mean([np.nanmean(items.measured[0, row], axis=0) for row in range(4)], axis=0)
    relabelled = test.relabelled[:, 0]
    spread = relabelled.std(axis=0) / np.sqrt(200)
    assert (np.abs(relabelled.mean(axis=0) - expected) < 4 * spread).all()
    smallest = relabelled.reshape(200, -1).min(axis=1)
    mean = items.measured[0, :, 0].mean(axis=0)
    for layer, head in np.ndindex(1, 2):
        assert test.p[layer, head] == pytest.approx((1 + (smallest <= mean[layer, head] + 1e-12).sum()) / 201)
    assert test.best == (0, int(mean[0].argmin()))


@pytest.mark.parametrize(("n_units", "few"), [(16, True), (20, False)])
def test_scalars_are_of_the_best_head_with_sequences_resampled(n_units, few):
    items, units, test = reported(n_units)
    found = _scalars(items, test, units)
    head = test.best[1]
    for name, values, uniform in (
        ("posterior_kl", test.by_unit[:, 0, 0, head], None),
        ("feasible_mass", test.by_unit[:, 1, 0, head], items.uniform[1]),
    ):
        scalar = found[name]
        drawn = units.weights @ values / n_units
        assert scalar.value == pytest.approx(values.mean()) and scalar.underpowered == few and scalar.n == n_units
        assert scalar.interval == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])))
        if uniform is not None:
            again = np.quantile(units.weights @ uniform / n_units, [0.025, 0.975])
            assert scalar.null.value == pytest.approx(uniform.mean()) and scalar.null.band == pytest.approx(
                tuple(again)
            )
    smallest = test.relabelled[:, 0].reshape(200, -1).min(axis=1)
    assert found["posterior_kl"].null.value == pytest.approx(smallest.mean())
    assert found["posterior_kl"].p == test.p[0, head]


def made_up(n_sequences=6, n_pairs=4, seed=0):
    n_keys = 3
    rng = np.random.default_rng(seed)
    n = n_sequences * n_pairs
    bound = rng.integers(n_keys, size=n)
    bound[:n_keys] = np.arange(n_keys)
    keys = rng.standard_normal((2, n, 5)) + 2 + 1.5 * rng.standard_normal((2, n_keys, 5))[:, bound]
    return BoundKeys(keys, bound, np.repeat(np.arange(n_sequences), n_pairs), rng.random((2, n, 1)))


def explained(keys, groups):
    means = {g: keys[groups == g].mean(axis=0) for g in np.unique(groups)}
    between = sum(np.square(means[g] - keys.mean(axis=0)).sum() for g in groups)
    return between / np.square(keys - keys.mean(axis=0)).sum()


def test_the_interval_is_a_jackknife_over_sequences_on_the_logit_scale():
    bound = made_up()
    found, _, _ = measure_binding(bound, 9, np.random.default_rng(1))
    assert found.words["n_groups"] == "6" and bound.n_sequences == 6 and found.interval is not None

    def logit(x):
        return np.log(x / (1 - x))

    for layer in range(2):
        whole = explained(bound.keys[layer], bound.bound)
        assert found.value[layer] == pytest.approx(whole)
        left = [bound.sequence != s for s in np.unique(bound.sequence)]
        replicates = logit(np.array([explained(bound.keys[layer, kept], bound.bound[kept]) for kept in left]))
        half = stats.t.ppf(0.975, 5) * np.sqrt(5 / 6 * np.square(replicates - replicates.mean()).sum())
        expected = stats.logistic.cdf(logit(whole) + np.array([-half, half]))
        np.testing.assert_allclose(found.interval[:, layer], expected)


def test_renaming_keeps_equal_tokens_equal_within_a_sequence_and_uses_the_same_names():
    bound = made_up(n_sequences=200, n_pairs=5)
    renamed = _renamed(bound, np.random.default_rng(2))
    maps = set()
    for s in np.unique(bound.sequence):
        mine = bound.sequence == s
        pairs = set(zip(bound.bound[mine].tolist(), renamed[mine].tolist(), strict=True))
        assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs}), "one to one"
        maps |= pairs
    assert maps == {(a, b) for a in range(3) for b in range(3)}
    share = np.bincount(renamed, minlength=3) / len(renamed)
    np.testing.assert_allclose(share, 1 / 3, atol=0.06)


def test_p_is_by_the_largest_layer_of_each_renaming():
    bound = made_up(seed=3)
    found, largest, cosine = measure_binding(bound, 60, np.random.default_rng(4))
    rng = np.random.default_rng(4)
    renamed = [_renamed(bound, rng) for _ in range(60)]
    expected = np.array([[explained(bound.keys[layer], groups) for layer in range(2)] for groups in renamed])
    assert found.null is not None and largest.null is not None and cosine.null is not None
    np.testing.assert_allclose(found.null, [expected.mean(axis=0), *np.quantile(expected, TAILS, axis=0)])
    assert largest.null[0, 0] == pytest.approx(expected.max(axis=1).mean())
    reached = [(expected.max(axis=1) >= x - 1e-12).sum() for x in found.value]
    np.testing.assert_allclose(found.p, (1 + np.array(reached)) / 61)
    for layer in range(2):
        means = np.array([[bound.keys[layer, groups == g].mean(axis=0) for g in range(3)] for groups in renamed])
        assert cosine.null[0, layer] == pytest.approx(cosine_measures(means)[:, 0].mean())
