"""Intervals of correlations with PC1 allow for the axis that other prompts would give."""

import numpy as np
import pytest
from interp.probes.manifold.probe import Manifold
from interp.probes.manifold.robustness import FirstAxis
from scipy import stats

from interp.statistics.correlation import unit_ranks
from interp.statistics.estimates import Estimates
from interp.statistics.spectra import principal_axes
from interp.testing import Shape, synthetic_capture


def two_directions(rng, clusters, second, follows):
    """One layer: the entropy follows the first direction, and the second has this share of its variance."""
    n_clusters = clusters.max() + 1

    def drawn(k):
        return np.sqrt(0.8) * rng.standard_normal((n_clusters, k))[clusters] + np.sqrt(0.2) * rng.standard_normal(
            (len(clusters), k)
        )

    points, lead = drawn(16), drawn(2)
    points[:, :2] = lead * np.sqrt([6, 6 * second]) + 0.3 * drawn(2)
    return points, follows * lead[:, 0] + np.sqrt(1 - follows**2) * drawn(1)[:, 0]


def rho(coordinates, variable):
    return unit_ranks(coordinates) @ unit_ranks(variable[None])[0]


def found_in(seed, second):
    rng = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(40), np.maximum(1, rng.geometric(1 / 6, 40)))
    points, entropy = two_directions(rng, clusters, second, 0.8)
    probe = Manifold(n_permutations=19, n_null=20, n_bootstrap=99, n_splits=2, seed=seed)
    columns = {"next_entropy_bits": 5 + entropy, "cluster": clusters, "token": np.arange(len(clusters))}
    shape, values = Shape(len(clusters), n_layers=1), points.reshape(1, len(clusters), 2, 8)
    return probe.analyse(synthetic_capture(probe.needs, shape, planted={"v": values}, columns=columns, seed=seed), {})


def test_half_widths_are_those_of_a_jackknife_that_fits_the_axis_again():
    rng, units = np.random.default_rng(0), np.repeat(np.arange(30), 3)
    points, variable = two_directions(rng, units, 0.7, 0.6)
    points -= points.mean(axis=0)
    first = FirstAxis.of([principal_axes(points, 16)], units)

    def along_first(kept):
        axis = np.linalg.svd(points[kept] - points[kept].mean(axis=0))[2][0]
        return np.arctanh(abs(stats.spearmanr(points[kept] @ axis, variable[kept])[0]))

    whole, kept = along_first(units >= 0), [units % 20 != g for g in range(20)]
    h = np.array([1 / (1 - mine.mean()) for mine in kept])
    pseudo = h * whole - (h - 1) * np.array([along_first(mine) for mine in kept])
    error = np.sqrt(np.mean(np.square(pseudo - pseudo.mean()) / (h - 1)))
    value = np.abs(rho(first.coordinates, variable))
    found = first.half_widths(value, lambda coordinates, mine: rho(coordinates, variable[mine]))
    assert found == pytest.approx(stats.t.ppf(0.975, 19) * error, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("number", ["entropy_correlation", "best_layer_entropy_correlation"])
def test_intervals_hold_where_a_second_direction_is_nearly_as_loud(number):
    found = [found_in(seed, second=0.8)[number] for seed in range(60)]
    mean = np.mean([one.value for one in found])
    held = np.mean([one.interval[0] <= mean <= one.interval[1] for one in found])
    assert held >= 0.75, "along a fixed axis .5 to .7 of them did"
    differences = [one.value - other.value for one, other in zip(found[::2], found[1::2], strict=True)]
    halves = np.array([np.subtract(one.interval, one.value) for one in found])
    low = np.hypot(halves[::2, 0], halves[1::2, 1])
    high = np.hypot(halves[::2, 1], halves[1::2, 0])
    assert np.mean((np.array(differences) > low) | (np.array(differences) < -high)) <= 0.2


def test_intervals_are_never_narrower_and_what_had_none_has_none():
    points = np.random.default_rng(0).standard_normal((2, 40, 5))
    first = FirstAxis.of([principal_axes(layer - layer.mean(axis=0), 5) for layer in points], np.arange(40))
    interval = np.tanh(np.arctanh(0.5) + np.array([[-0.2, np.nan], [0.2, np.nan]]))
    found = Estimates(np.array([0.5, np.nan]), interval)

    def unmoved(coordinates, kept):
        return found.value[: len(coordinates)]

    def moved(coordinates, kept):
        return unmoved(coordinates, kept) * (0.8 + 0.4 * kept[0])

    for widened in (first.allowed_for, lambda of, by: first.at(0).added_to(of.at([0]), of.at([0]), by)):
        kept, wider = widened(found, unmoved).interval, widened(found, moved).interval
        assert kept[:, 0] == pytest.approx(interval[:, 0])
        assert wider[0, 0] < interval[0, 0] < interval[1, 0] < wider[1, 0]
    assert np.isnan(first.allowed_for(found, moved).interval[:, 1]).all()
