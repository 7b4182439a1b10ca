"""Mean cosines against SciPy, and random directions against their closed forms."""

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import pdist

from interp.statistics.cosines import (
    MEASURES,
    SMALLEST_P,
    Reference,
    cosine_measures,
    expected_abs_cosine,
    gaussian_sets,
    largest_deviation_p,
    random_rotations,
)
from interp.statistics.estimates import Estimates


def over_pairs(vectors):
    """Mean |cos| and mean cos, by SciPy."""
    cosines = 1 - pdist(vectors, "cosine")
    return [np.mean(np.abs(cosines)), np.mean(cosines)]


def test_measures_are_means_over_pairs_of_vectors_with_a_length_and_undefined_without_a_pair():
    sets = np.random.default_rng(0).standard_normal((3, 7, 5)) + 1.0
    expected = [over_pairs(s) + over_pairs(s - s.mean(axis=0)) for s in sets]
    np.testing.assert_allclose(cosine_measures(sets), expected, rtol=1e-12)
    vectors = np.random.default_rng(1).standard_normal((6, 4))
    present = np.array([True, True, False, True, True, False])
    np.testing.assert_allclose(cosine_measures(vectors, present), cosine_measures(vectors[present]), rtol=1e-12)
    with_zero = np.concatenate([vectors, np.zeros((1, 4))])
    np.testing.assert_allclose(cosine_measures(with_zero)[:2], cosine_measures(vectors)[:2], rtol=1e-12)
    assert np.isnan(cosine_measures(np.ones((1, 4)))).all()
    two = cosine_measures(np.eye(4)[:2])
    assert two[0] == 0 and np.isnan(two[2:]).all(), "three vectors are enough to be centred"
    three = vectors[:3]
    np.testing.assert_allclose(cosine_measures(three), over_pairs(three) + over_pairs(three - three.mean(axis=0)))
    absent = cosine_measures(vectors, np.arange(6) < 2)
    assert np.isfinite(absent[:2]).all() and np.isnan(absent[2:]).all()
    same = cosine_measures(np.tile(np.arange(1.0, 5.0), (5, 1)))
    assert same[0] == pytest.approx(1) and np.isnan(same[2:]).all(), "what is left after centring is rounding"


@pytest.mark.parametrize(("d", "paper"), [(16, 0.1995), (64, 0.0997), (128, 0.0705), (1024, 0.0249)])
def test_the_expected_cosine_is_the_exact_integral_and_tends_to_the_known_limit(d, paper):
    # the density of the cosine of two random directions is proportional to (1 - cos²)^((d-3)/2)
    cosine = np.linspace(0, 1, 200_001)
    density = (1 - cosine**2) ** ((d - 3) / 2)
    exact = np.trapezoid(cosine * density) / np.trapezoid(density)
    assert expected_abs_cosine(d) == pytest.approx(exact, rel=1e-6)
    assert expected_abs_cosine(d) == pytest.approx(paper, rel=0.5 / d, abs=6e-5)


@pytest.mark.parametrize(("n_vectors", "d"), [(6, 40), (12, 5)])
def test_gaussian_sets_have_the_cosines_of_gaussian_vectors(n_vectors, d):
    rng = np.random.default_rng(3)
    sets = gaussian_sets(n_vectors, d, 4000, rng)
    np.testing.assert_allclose(np.square(sets).sum(axis=-1).mean(axis=0), d, rtol=0.05)
    ours = cosine_measures(sets)
    direct = cosine_measures(rng.standard_normal((4000, n_vectors, d)))
    for i, measure in enumerate(MEASURES):
        error = direct[:, i].std() * np.sqrt(2 / 4000)
        assert abs(ours[:, i].mean() - direct[:, i].mean()) < 4 * error, measure
        assert ours[:, i].std() == pytest.approx(direct[:, i].std(), rel=0.08), measure
    # cosines of pairs are uncorrelated, so the spread of their mean has a closed form
    variance = (1 / d - expected_abs_cosine(d) ** 2) / (n_vectors * (n_vectors - 1) / 2)
    assert ours[:, 0].std() == pytest.approx(np.sqrt(variance), rel=0.05)


def test_random_rotations_keep_lengths_and_have_no_preferred_direction():
    turns = random_rotations(3, 3000, np.random.default_rng(5))
    np.testing.assert_allclose(turns @ np.swapaxes(turns, 1, 2), np.broadcast_to(np.eye(3), turns.shape), atol=1e-12)
    assert np.abs(turns.mean(axis=0)).max() < 4 / np.sqrt(3 * 3000)


def compare(draws, value, n_averaged, n_tests=1):
    """The first of so many tests of one value: the mean of the null, its bounds, and p."""
    found = Reference("a name", draws).compared(Estimates(np.full(n_tests, value)), n_averaged)
    return *found.null[:, 0], found.p[0]


def test_the_largest_deviation_corrects_over_layers():
    rng = np.random.default_rng(8)
    p = np.array([largest_deviation_p(*(lambda d: (d[0], d[1:]))(rng.standard_normal((100, 20)))) for _ in range(300)])
    assert abs(np.mean(p.min(axis=1) <= 0.05) - 0.05) < 3 * np.sqrt(0.05 * 0.95 / 300)
    draws = rng.standard_normal((99, 3))
    draws[:, 2] = 1.0
    assert np.isnan(largest_deviation_p(np.array([9.0, 0.0, 1.0]), draws)[2])
    assert largest_deviation_p(np.array([9.0, 0.0, 1.0]), draws)[0] == 0.01


def test_the_band_and_p_of_a_mean_over_sets_are_those_of_students_t():
    draws = np.array([1.0, 2.0, 4.0, 9.0])
    error = np.sqrt(np.square(draws - 4).sum() / 3) * np.sqrt(1 / 2 + 1 / 4)
    *null, p = compare(draws, 9.0, 2, 3)
    assert null == pytest.approx([4, 4 - 3.182446 * error, 4 + 3.182446 * error], rel=1e-6)
    single = 2 * stats.t.sf(5.0 / error, 3)
    assert p == pytest.approx(1 - (1 - single) ** 3)
    assert compare(draws, -1.0, 2, 3)[-1] == pytest.approx(p), "two-sided"
    assert compare(draws, 4.0, 2)[-1] == 1
    assert compare(draws, 1e9, 1)[-1] == pytest.approx(SMALLEST_P) and np.isnan(compare(draws, np.nan, 1)[-1])
    *null, p = compare(np.full(5, 2.0), 3.0, 1)
    assert np.isnan(p) and null == [2, 2, 2], "draws that are all alike give no p"
