"""Statistics that keep their word: rates over 500 planted and 500 null simulations of every probe, and the table of
them.

The quick part holds the committed rates to the binomial band and to the site; `make stress` holds fresh
simulations to them.
"""

import json
from functools import cache

import numpy as np
import pytest
from scipy import stats

from interp.registry import entries, load_entry
from tests.paths import ROOT
from tests.quick import quick
from tests.stress.rates import agree
from tests.stress.simulations import (
    N_SIMULATIONS,
    RATES,
    RECIPES,
    Observed,
    band,
    excess_of_small_p,
    observe,
    rates_of,
    together,
)

PAGE = ROOT / "docs" / "reference" / "probes" / "error-rates.md"
COMMITTED = json.loads(RATES.read_text())
KNOWN = COMMITTED["known"]
"""Numbers outside the band, each with the reason that the page prints."""

Rates = dict[str, dict[str, dict[str, float]]]


def committed() -> Rates:
    return COMMITTED["rates"]


def misses(rates: Rates) -> list[str]:
    """What lies outside its band: intervals that cover too seldom, nulls that are called too often."""
    least, most = band(0.95)[0], band(0.05)[1]
    largest = float(stats.kstwobign.ppf(0.999)) / N_SIMULATIONS**0.5
    found = []
    for probe, numbers in rates.items():
        for number, rate in numbers.items():
            if rate.get("covered", 1) < least or rate.get("called", 0) > most or rate.get("excess", 0) > largest:
                found.append(f"{probe}.{number}")
    return found


def test_every_observational_probe_and_belief_have_simulations() -> None:
    observational = {name for name in entries("probe") if load_entry("probe", name).observational}
    assert set(RECIPES) == observational - {"workspace"} | {"belief"}
    for name, recipe in RECIPES.items():
        assert set(committed()[name]) >= {*recipe.covered, *recipe.called, *recipe.placed}


def test_committed_rates_lie_in_the_band_or_are_known_and_on_the_page() -> None:
    assert sorted(misses(committed())) == sorted(KNOWN)
    text = PAGE.read_text()
    assert "[[rates: assumed]]" in text and "[[rates: limits]]" in text
    low, high = band(0.95)
    assert f"{low:.3f} to {high:.3f}" in text
    joint = COMMITTED["together"]
    assert f"Over the {joint['headlines']:.0f} p-values" in text
    assert all(f"{joint[name]:.3f}".lstrip("0") in text for name in ("any_called", "false_share", "null_share"))


def test_a_rate_outside_the_band_is_found() -> None:
    rates = {"p": {"a": {"covered": 0.95, "called": 0.05, "excess": 0.02}, "b": {"covered": 0.9}, "c": {"called": 0.1}}}
    assert misses(rates) == ["p.b", "p.c"]
    assert misses({"p": {"d": {"excess": 0.1}}}) == ["p.d"]


def test_the_excess_of_small_p_is_the_one_sided_distance_from_uniform() -> None:
    p = np.random.default_rng(0).random(400)
    assert excess_of_small_p(p) == pytest.approx(stats.kstest(p, "uniform", alternative="greater").statistic)
    assert excess_of_small_p(p**2) > 0.15 and excess_of_small_p(np.ones(10)) == 0


@pytest.mark.parametrize("name", quick([*RECIPES][:1], RECIPES))
def test_simulations_are_planted_and_seeded(name: str) -> None:
    """Truth in closed form lies near the planted values, and the same seed makes the same simulation."""
    first, again = observe(name, 2), observe(name, 2)
    assert np.array_equal(first.null_p, again.null_p) and np.array_equal(first.covered, again.covered)
    assert first.null_p.shape == (2, len(RECIPES[name].called)) and not np.isnan(first.null_p).any()


N_FRESH = 100


@cache
def observed(name: str) -> Observed:
    """Simulations that no one has seen yet."""
    return observe(name, N_FRESH, first=N_SIMULATIONS)


@pytest.mark.stress
@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("name", RECIPES)
def test_rates_of_fresh_simulations_agree_with_the_committed_ones(name: str) -> None:
    for number, rates in rates_of(name, observed(name)).items():
        known = committed()[name][number]
        assert rates.keys() == known.keys()
        for kind in rates.keys() & {"covered", "called"}:
            assert agree(rates[kind], N_FRESH, known[kind], N_SIMULATIONS), (number, kind, rates[kind], known[kind])
        assert rates.get("excess", 0.0) <= known.get("excess", 0.0) + stats.kstwobign.ppf(0.9999) / N_FRESH**0.5


@pytest.mark.stress
@pytest.mark.usefixtures("without_type_checks")
def test_error_rates_hold_over_the_headlines_of_all_probes() -> None:
    joint = together({name: observed(name) for name in RECIPES})
    assert joint["any_called"] <= band(0.05, N_FRESH)[1]
    assert joint["false_share"] <= 0.05 * joint["null_share"] + 0.02
    assert joint["headlines"] == COMMITTED["together"]["headlines"]
