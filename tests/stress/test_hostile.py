"""Worlds that break assumptions: what is called there too often is known and said, and every headline p is among them.

The quick part holds the committed rates to the bound and to the site; `make stress` holds fresh worlds to
them.
"""

import json

import numpy as np
import pytest

from interp.certifying.worlds import World
from interp.registry import entries, load_entry
from tests.paths import ROOT
from tests.stress.hostile import N_PLANTED, N_WORLDS, RATES, SIZES, WORLDS, found_in, measure
from tests.stress.rates import agree

N_FRESH = 40
"""Worlds that no one has seen yet; of a planted size half as many as were measured."""
PLANTED = {f"called_{size:g}" for size in SIZES[1:]}

MOST_CALLED, LEAST_COVERED = 0.08, 0.90
PAGE = (ROOT / "docs" / "reference" / "probes" / "error-rates.md").read_text()
COMMITTED = json.loads(RATES.read_text())
KNOWN: dict[str, str] = COMMITTED["known"]
"""Numbers that break a bound, `probe.number, world`, each with the reason that the page prints."""


def misses(rates: dict[str, dict[str, dict[str, dict[str, float]]]]) -> list[str]:
    """What is called in more than 8 % of the worlds, or whose interval misses in more than 10 %."""
    return [
        f"{probe}.{number}, {world}"
        for probe, worlds in rates.items()
        for world, numbers in worlds.items()
        for number, found in numbers.items()
        if found["called_0"] > MOST_CALLED or found.get("covered", 1.0) < LEAST_COVERED
    ]


def test_what_breaks_a_bound_is_known_and_the_page_says_why():
    assert sorted(misses(COMMITTED["rates"])) == sorted(KNOWN) and "[[rates: limits]]" in PAGE


def test_the_page_has_the_table_of_the_committed_rates():
    assert COMMITTED["n_worlds"] == N_WORLDS and f"{N_WORLDS} simulations per row" in PAGE
    assert "[[rates: broken]]" in PAGE


def test_every_world_has_committed_rates_of_its_numbers_and_of_effects_where_they_are_planted():
    named = {(world.probe, world.name): {n: n not in world.unplanted for n in world.null} for world in WORLDS}
    committed = {
        (probe, world): {number: set(found) >= PLANTED for number, found in numbers.items()}
        for probe, worlds in COMMITTED["rates"].items()
        for world, numbers in worlds.items()
    }
    assert named == committed


def test_a_rate_beyond_a_bound_is_found():
    rates = {"p": {"w": {"a": {"called_0": 0.09}, "b": {"called_0": 0.0, "covered": 0.89}, "c": {"called_0": 0.08}}}}
    assert misses(rates) == ["p.a, w", "p.b, w"]


@pytest.mark.stress
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: f"{world.probe}: {world.name}")
def test_a_world_is_the_same_again_and_its_numbers_are_there(world: World):
    first, again = (found_in(world, 5, 1.0) for _ in range(2))
    for number in world.null:
        assert repr(first[number]) == repr(again[number]) and np.isfinite(first[number].value)


@pytest.mark.stress
def test_every_headline_with_a_p_has_worlds_that_break_its_assumptions():
    listed: dict[str, set[str]] = {}
    for world in WORLDS:
        listed.setdefault(world.probe, set()).update(world.null)
    for probe in {world.probe for world in WORLDS}:
        made = found_in(next(world for world in WORLDS if world.probe == probe), 0, 0.0)
        assert {name for name in made.headline if made[name].p is not None} <= listed[probe], probe
    without_p = {name for name in entries("probe") if name not in listed}
    assert without_p == set(COMMITTED["no_p"]), "probes without a p among their headlines"
    assert all(load_entry("probe", name).name in PAGE for name in without_p)


@pytest.mark.stress
@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: f"{world.probe}: {world.name}")
def test_rates_of_fresh_worlds_agree_with_the_committed_ones(world: World):
    for number, found in measure(world, N_FRESH, first=N_WORLDS).items():
        for kind, rate in found.items():
            n, n_fresh = (N_PLANTED, N_PLANTED // 2) if kind in PLANTED else (N_WORLDS, N_FRESH)
            committed = COMMITTED["rates"][world.probe][world.name][number][kind]
            assert agree(rate, n_fresh, committed, n), (number, kind, rate, committed)


def test_rates_agree_within_their_binomial_scatter_and_no_further():
    assert agree(0.1, 40, 0.05, 200) and agree(0.2, 40, 0.05, 200) and agree(1.0, 40, 0.95, 200)
    assert not agree(0.3, 40, 0.05, 200) and not agree(0.7, 40, 0.95, 200) and not agree(0.0, 10, 0.9, 20)
