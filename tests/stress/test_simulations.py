"""Statistics that keep their word: rates over 500 planted and 500 null simulations of every probe, and the table of
them.

The quick part holds the committed rates to the binomial band and to the site; `make stress` holds fresh
simulations to them.
"""

import json

import pytest
from scipy import stats

from interp.registry import entries, load_entry
from tests.paths import ROOT
from tests.quick import quick
from tests.stress.simulations import N_SIMULATIONS, RATES, RECIPES, Rates, band, rates

PAGE = ROOT / "docs" / "reference" / "probes" / "error-rates.md"
KNOWN: dict[str, str] = json.loads(RATES.read_text())["known"]
"""Numbers outside the band, each with the reason that the page prints."""

COMMITTED: dict[str, Rates] = json.loads(RATES.read_text())["rates"]


def misses(rates: dict[str, Rates]) -> list[str]:
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
        assert set(COMMITTED[name]) >= {*recipe.covered, *recipe.called, *recipe.placed}


def test_committed_rates_lie_in_the_band_or_are_known_and_on_the_page() -> None:
    assert sorted(misses(COMMITTED)) == sorted(KNOWN)
    text = PAGE.read_text()
    assert "[[rates: assumed]]" in text and "[[rates: limits]]" in text
    low, high = band(0.95)
    assert f"{low:.3f} to {high:.3f}" in text


def test_a_rate_outside_the_band_is_found() -> None:
    rates = {"p": {"a": {"covered": 0.95, "called": 0.05, "excess": 0.02}, "b": {"covered": 0.9}, "c": {"called": 0.1}}}
    assert misses(rates) == ["p.b", "p.c"]
    assert misses({"p": {"d": {"excess": 0.1}}}) == ["p.d"]


@pytest.mark.parametrize("name", quick([*RECIPES][:1], RECIPES))
def test_the_same_seeds_make_the_same_simulations(name: str) -> None:
    assert rates(name, 2) == rates(name, 2)


N_FRESH = 100


@pytest.mark.stress
@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("name", RECIPES)
def test_rates_of_fresh_simulations_agree_with_the_committed_ones(name: str) -> None:
    found = rates(name, N_FRESH, first=N_SIMULATIONS)
    for number, fresh in found.items():
        known = COMMITTED[name][number]
        assert fresh.keys() == known.keys()
        for kind in fresh.keys() & {"covered", "called"}:
            assert agree(fresh[kind], N_FRESH, known[kind], N_SIMULATIONS), (number, kind, fresh[kind], known[kind])
        assert fresh.get("excess", 0.0) <= known.get("excess", 0.0) + stats.kstwobign.ppf(0.9999) / N_FRESH**0.5


def agree(rate: float, n: int, committed: float, n_committed: int) -> bool:
    """Whether both shares may be of one true rate: Fisher's exact p, of some 400 comparisons, is 1/10,000 or more."""
    counts = [[round(share * of), of - round(share * of)] for share, of in ((rate, n), (committed, n_committed))]
    return bool(stats.fisher_exact(counts).pvalue >= 1e-4)


def test_rates_agree_within_their_binomial_scatter_and_no_further() -> None:
    assert agree(0.1, 40, 0.05, 200) and agree(0.2, 40, 0.05, 200) and agree(1.0, 40, 0.95, 200)
    assert not agree(0.3, 40, 0.05, 200) and not agree(0.7, 40, 0.95, 200) and not agree(0.0, 10, 0.9, 20)
