"""Simulations that break assumptions: what is called there too often is known and said, and every headline p is among
them.

The rates are those of the shipped certificates. The quick part holds them to the bounds and to the site; `make stress`
holds fresh simulations to them.
"""

import json
from typing import Any

import numpy as np
import pytest

import interp
from interp.certificates.findings import counts_of
from interp.certificates.simulate import SIZES, planned, shown
from interp.certificates.simulations import Simulation, trials_of
from interp.certificates.verdicts import LEAST_JUDGED, Count
from interp.findings import ALPHA
from interp.registry import entries, load_entry
from tests.paths import ROOT
from tests.stress.rates import agree

FIRST_FRESH, N_FRESH, N_PLANTED = 99_000, 40, 5
"""Simulations that no certificate has seen, and how many of them; of each planted size fewer."""
PAGE = (ROOT / "docs" / "reference" / "probes" / "error-rates.md").read_text()
KNOWN: dict[str, str] = json.loads((ROOT / "tests" / "stress" / "limits.json").read_text())
"""Numbers that break a bound, `probe.number, simulation`, each with the reason that the page prints."""
TRIALS = {name: trials for name in entries("simulations") if (trials := trials_of(name)) is not None}
SIMULATIONS = [kind for trials in TRIALS.values() for kind in trials.simulations]
SHIPPED = sorted((ROOT / "examples" / "certificates").iterdir())

Row = dict[str, Any]


def committed(table: str = "worlds") -> list[Row]:
    """A row of counts for every number, in every kind of simulation or (`headlines`) in all, with its probe."""
    rows: list[Row] = []
    for path in SHIPPED:
        frame = interp.open_run(path).findings["certificate"].to_frame(table)
        rows += [{"probe": path.name, "world": "all kinds", **row} for row in frame.to_dict("records")]
    return rows


def misses(rows: list[Row]) -> list[str]:
    """What is called in more than 5 % of the judged simulations, or whose intervals hold the truth in fewer than 95 %.

    Beyond the error of counting, by intervals of 99 % since there are many rows: 9 of 60 simulations, or 51 intervals.
    """
    return [f"{row['probe']}.{row['number']}, {row['world']}" for row in rows if _is_liberal(row) or _is_narrow(row)]


def _is_liberal(row: Row) -> bool:
    return row["n_judged"] >= LEAST_JUDGED and _counted(row, "called", "n_judged")[0] > ALPHA


def _is_narrow(row: Row) -> bool:
    """Where nothing is planted and where something is."""
    return any(_counted(row, name, f"n_{name}")[1] < 1 - ALPHA for name in ("covered", "covered_planted"))


def _counted(row: Row, share: str, n: str) -> tuple[float, float]:
    return Count(round(row[share] * row[n]), row[n]).interval(0.99) if row[n] else (0.0, 1.0)


def test_what_breaks_a_bound_is_known_and_the_page_says_why():
    assert sorted(misses(committed()) + misses(committed("headlines"))) == sorted(KNOWN) and "[[rates: limits]]" in PAGE
    assert "[[rates: broken]]" in PAGE


def test_every_simulation_has_committed_rates_of_its_numbers():
    rates = {(row["probe"], row["world"], row["number"]) for row in committed()}
    certified = [kind for path in SHIPPED for kind in TRIALS[path.name].simulations]
    assert rates == {(kind.probe, kind.name, number) for kind in certified for number in kind.null}


def test_a_rate_beyond_a_bound_is_found():
    fine = {"probe": "p", "world": "w", "called": 18 / 200, "n_judged": 200, "covered": 182 / 200, "n_covered": 200}
    fine |= {"covered_planted": np.nan, "n_covered_planted": 0}
    others = {"a": {"called": 20 / 200}, "b": {"covered": 180 / 200}, "c": {}, "d": {"called": np.nan, "n_judged": 59}}
    others |= {
        "e": {"covered_planted": 0.8, "n_covered_planted": 60},
        "f": {"covered_planted": 0.8, "n_covered_planted": 5},
    }
    assert misses([fine | {"number": name} | row for name, row in others.items()]) == ["p.a, w", "p.b, w", "p.e, w"]


@pytest.mark.stress
@pytest.mark.parametrize("kind", SIMULATIONS, ids=lambda kind: f"{kind.probe}: {kind.name}")
def test_a_simulation_is_the_same_again_and_its_numbers_are_there(kind: Simulation):
    first, again = (kind.findings(load_entry("probe", kind.probe)(), 5, 1.0) for _ in range(2))
    for number in kind.null:
        assert repr(first[number]) == repr(again[number]) and np.isfinite(first[number].value)


@pytest.mark.stress
@pytest.mark.parametrize("name", TRIALS)
def test_every_headline_with_a_p_is_judged_in_some_simulation(name: str):
    simulations = TRIALS[name].simulations
    made = simulations[0].findings(load_entry("probe", name)(), 0, 0.0)
    assert {headline for headline in made.headline if made[headline].p is not None} <= {
        n for w in simulations for n in w.null
    }


@pytest.mark.stress
@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("kind", SIMULATIONS, ids=lambda kind: f"{kind.probe}: {kind.name}")
def test_rates_of_fresh_simulations_agree_with_the_committed_ones(kind: Simulation):
    probe = load_entry("probe", kind.probe)()
    cells = {(kind.name, size): list(shown(kind, probe, range(FIRST_FRESH, FIRST_FRESH + n), size))
             for size, n in planned(kind, N_FRESH, N_PLANTED).items()}  # fmt: skip
    known = {row["number"]: row for row in committed() if (row["probe"], row["world"]) == (kind.probe, kind.name)}
    for number, row in known.items():
        counts = counts_of([kind.name], cells, number)
        pairs = {"called": (counts["null"], row["n_judged"]), "covered": (counts["covered"], row["n_covered"])}
        pairs |= {f"power_{size}": (counts[f"power_{size}"], row["n_planted"]) for size in SIZES[1:]}
        for name, (fresh, n) in pairs.items():
            if fresh.n and np.isfinite(row[name]):
                assert agree(fresh.share, fresh.n, row[name], n), (number, name, fresh, row[name])


def test_rates_agree_within_their_binomial_scatter_and_no_further():
    assert agree(0.1, 40, 0.05, 200) and agree(0.2, 40, 0.05, 200) and agree(1.0, 40, 0.95, 200)
    assert not agree(0.3, 40, 0.05, 200) and not agree(0.7, 40, 0.95, 200) and not agree(0.0, 10, 0.9, 20)
