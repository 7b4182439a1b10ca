"""Simulations are tried one by one, kept while it goes on, and coverage is that of a planted truth."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from interp.certificates.simulate import Seen, planned, run_simulations, shown
from interp.certificates.simulations import Simulation, nothing, shrunk_fields
from interp.findings import Findings, Interval, Null, Scalar
from interp.records.unfinished import NOT_KEPT, Unfinished
from interp.system.signals import Stopped
from tests.plain_probe import PlainProbe


@dataclass(frozen=True)
class Coin(PlainProbe):
    """Calls an effect where a draw says so."""

    n_permutations: int = 500
    seed: int = 0
    name: ClassVar[str] = "coin"


def toss(probe, rng, seed, size):
    value = size + rng.standard_normal()
    p = 0.01 if abs(value) > 1.96 else 0.5
    drawn = Scalar.of(value, "1", Interval(value - 1.96, value + 1.96, "known"), Null("none", 0.0, (-2.0, 2.0)), p=p)
    seeds = Scalar.undefined(f"seed {seed} of {probe.seed}, {probe.n_permutations} permutations")
    return Findings("coin", {"draw": drawn, "twin": drawn, "seeds": seeds}, headline=("draw", "twin", "seeds"))


SIMULATIONS = (
    Simulation("coin", "plain", toss, small={"n_permutations": 19}, truth=nothing("draw")),
    Simulation("coin", "odd", toss, ("twin",), ("twin",)),
)


def test_effects_are_tried_where_they_are_planted_with_a_seed_and_few_draws():
    assert [planned(kind, 13, 6) for kind in SIMULATIONS] == [{0: 13, 1: 6, 2: 6, 3: 6}, {0: 13}]
    assert "seed 5 of 5, 19 permutations" in SIMULATIONS[0].findings(Coin(), 5, 0.0)["seeds"].interval_reason
    assert shrunk_fields(Coin(n_permutations=77), {"n_permutations": 19, "unknown": 1}) == {}
    assert shrunk_fields(Coin(), {"n_permutations": 500}) == {}


def test_no_two_kinds_share_a_seed_and_a_stopped_certificate_goes_on_where_it_was(tmp_path):
    seeds = []

    def heard_toss(probe, rng, seed, size):
        if len(seeds) == 30:
            raise Stopped(2)
        seeds.append((seed, size))
        return toss(probe, rng, seed, size)

    simulations = [Simulation("coin", name, heard_toss) for name in ("one", "two")]
    todo = [(kind, planned(kind, 10, 5)) for kind in simulations]
    stage = Unfinished(tmp_path / "s").part("simulations", {"spec": "s"})
    with pytest.raises(Stopped):
        run_simulations(Coin(), todo, 0, stage, lambda done: None)
    assert stage.load().n_done == 30
    seeds.append((-1, 0))  # past the interruption
    counts = []
    again = run_simulations(Coin(), todo, 0, stage, counts.append)
    seeds.remove((-1, 0))
    assert len(seeds) == len(set(seeds)) == 2 * (10 + 3 * 5), "nothing is tried twice"
    plain = [Simulation("coin", name, toss) for name in ("one", "two")]
    todo = [(kind, planned(kind, 10, 5)) for kind in plain]
    whole = run_simulations(Coin(), todo, 0, NOT_KEPT, lambda done: None)
    assert repr(whole) == repr(again), "as if it had never been stopped"


def test_judged_are_the_numbers_that_are_named_and_say_something():
    (plain,) = shown(SIMULATIONS[0], Coin(), range(5, 6), 0)
    assert list(plain) == ["draw", "twin"] and plain["draw"].holds in (True, False) and plain["twin"].holds is None
    assert [list(one) for one in shown(SIMULATIONS[1], Coin(), range(5, 6), 0)] == [["twin"]]
    assert list(shown(SIMULATIONS[1], Coin(), range(5, 6), 2)) == [{}]
    null = Null("none", 0.0, (-1.0, 1.0))
    weak = Scalar.of(9.0, "1", Interval(8.0, 10.0, "known"), null, p=0.01, underpowered=True)
    found = Findings("coin", {"weak": weak, "called": replace(weak, underpowered=False)}, headline=("weak", "called"))
    assert Seen.of(found, "weak", 0.0) == Seen(None, None) and Seen.of(found, "called", 9.0) == Seen(True, True)
    assert Seen.of(found, "absent", 0.0) == Seen(None, None) and Seen.of(found, "called", None).holds is None


def test_coverage_is_of_the_truth_so_that_bias_shows():
    def biased(probe, rng, seed, size):
        value = 3 + 0.1 * rng.standard_normal()
        drawn = Scalar.of(
            value, "1", Interval(value - 0.5, value + 0.5, "known"), Null("none", 0.0, (-5.0, 5.0)), p=0.5
        )
        return Findings("coin", {"draw": drawn}, headline=("draw",))

    off = Simulation("coin", "off", biased, truth=lambda seed, size: {"draw": size})
    for size, holds in ((0, False), (3, True)):
        assert [one["draw"].holds for one in shown(off, Coin(), range(9), size)] == [holds] * 9
