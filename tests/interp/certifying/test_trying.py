"""Worlds are tried one by one, kept while it goes on, and coverage is that of a planted truth."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from interp.certifying.trying import Seen, Tried, covered, numbers_of, place_of, planned, try_worlds
from interp.certifying.worlds import N_MODELS, World, shrunk_fields
from interp.findings import Findings, Interval, Null, Scalar
from interp.need import Need
from interp.probe import Probe


@dataclass(frozen=True)
class Coin(Probe):
    """Calls an effect where a draw says so."""

    n_permutations: int = 500
    seed: int = 0
    name: ClassVar[str] = "coin"
    question: ClassVar[str] = "heads?"

    @property
    def needs(self):
        return (Need("v"),)

    def analyse(self, base, under):
        raise NotImplementedError


def toss(probe, rng, seed, size):
    value = size + rng.standard_normal()
    p = 0.01 if abs(value) > 1.96 else 0.5
    drawn = Scalar.of(value, "1", Interval(value - 1.96, value + 1.96, "known"), Null("none", 0.0, (-2.0, 2.0)), p=p)
    seeds = Scalar.undefined(f"seed {seed} of {probe.seed}, {probe.n_permutations} permutations")
    return Findings("coin", {"draw": drawn, "twin": drawn, "seeds": seeds}, headline=("draw", "twin", "seeds"))


WORLDS = (World("coin", "plain", toss, small={"n_permutations": 19}), World("coin", "odd", toss, ("twin",), ("twin",)))


def test_worlds_are_spread_evenly_over_kinds_and_only_where_something_is_planted():
    assert planned(WORLDS, 25, 6) == [{0: 13, 1: 6, 2: 6, 3: 6}, {0: 13}]


def test_no_two_kinds_share_a_seed_and_a_stopped_certificate_goes_on_where_it_was(tmp_path):
    seeds = []

    def heard_toss(probe, rng, seed, size):
        if len(seeds) == 30:
            raise KeyboardInterrupt
        seeds.append((seed, size))
        return toss(probe, rng, seed, size)

    worlds = [World("coin", name, heard_toss) for name in ("one", "two")]
    todo = list(zip(worlds, planned(worlds, 20, 10), strict=True))
    with pytest.raises(KeyboardInterrupt):
        try_worlds(Coin(), todo, 0, Tried.begun_in(tmp_path), lambda done: None)
    again = Tried.begun_in(tmp_path)
    assert sum(map(len, again.seen.values())) == 30
    seeds.append((-1, 0))  # past the interruption
    counts = []
    try_worlds(Coin(), todo, 0, again, counts.append)
    seeds.remove((-1, 0))
    assert len(seeds) == len(set(seeds)) == 2 * (10 + 3 * 5), "nothing is tried twice"
    whole = Tried(tmp_path / "whole")
    plain = [World("coin", name, toss) for name in ("one", "two")]
    try_worlds(Coin(), list(zip(plain, planned(plain, 20, 10), strict=True)), 0, whole, lambda done: None)
    assert repr(whole.seen) == repr(again.seen), "as if it had never been stopped"


def test_a_damaged_file_of_worlds_is_begun_anew(tmp_path):
    (tmp_path / "worlds.json").write_text('[{"world": "plain", "size": 0, "seen": [{"draw": [tr')
    assert Tried.begun_in(tmp_path).seen == {}
    (tmp_path / "worlds.json").write_text("[3]")
    assert Tried.begun_in(tmp_path).seen == {}


def test_judged_are_the_numbers_named_else_the_headlines_with_a_p():
    found = WORLDS[0].findings(Coin(), 5, 0.0)
    assert list(numbers_of(WORLDS[0], found, 0)) == ["draw", "twin"]
    assert list(numbers_of(WORLDS[1], found, 0)) == ["twin"]
    assert numbers_of(WORLDS[1], found, 2) == {}


def test_a_world_sets_the_seed_and_shrinks_what_stands_at_its_default():
    assert "seed 5 of 5, 19 permutations" in WORLDS[0].findings(Coin(), 5, 0.0)["seeds"].interval_reason
    assert shrunk_fields(Coin(n_permutations=77), {"n_permutations": 19, "unknown": 1}) == {}
    assert shrunk_fields(Coin(), {"n_permutations": 500}) == {}


def test_coverage_is_right_with_few_worlds_of_a_model_as_with_many():
    rng = np.random.default_rng(1)
    for n in (3, 30):
        held = []
        for _ in range(3000 // n):
            values = rng.standard_normal(n)
            seen = [Seen(False, float(v), (float(v) - 1.96, float(v) + 1.96)) for v in values]
            held += covered(seen, [0] * n)
        assert np.mean(held) == pytest.approx(0.95, abs=0.015), n


def test_worlds_are_held_against_their_own_model_and_two_alone_say_nothing():
    places = [place_of(k, 40) for k in range(40)]
    assert {place % N_MODELS for place in places} == set(range(N_MODELS)) and len(set(places)) == 40
    shifted = [
        Seen(False, 100.0 * (p % N_MODELS), (100.0 * (p % N_MODELS) - 1, 100.0 * (p % N_MODELS) + 1)) for p in places
    ]
    assert all(covered(shifted, places)) and len(covered(shifted, places)) == 40
    assert covered(shifted[:2], [0, 5]) == []
    assert covered([Seen(False, math.nan, None)] * 5, [0, 5, 10, 15, 20]) == []
    assert {place_of(k, 3) % N_MODELS for k in range(3)} == {0}, "few worlds share one model"
