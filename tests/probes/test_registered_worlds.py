"""The made-up worlds of our probes: each of them is a world of its own for every number that is judged in it."""

from itertools import combinations

import pytest

from interp.certifying.worlds import Trials, World, trials_of
from interp.probe import Probe
from interp.registry import entries, load_entry

SEEDS = (0, 1, 2)


def ps(world: World, probe: Probe, number: str) -> tuple[float | None, ...]:
    """The p of a number in worlds of a few seeds, nothing planted; None at its floor, where all worlds are alike."""
    found = [world.findings(probe, seed, 0.0).scalars.get(number) for seed in SEEDS]
    return tuple(None if scalar is None or scalar.is_p_least else scalar.p for scalar in found)


def unchanged(trials: Trials, probe: Probe) -> list[str]:
    """Numbers that have the same p, seed for seed, in two worlds: the one leaves their input as the other has it."""
    numbers = dict.fromkeys(number for world in trials.worlds for number in world.null)
    found = []
    for number in numbers:
        in_world = {world.name: ps(world, probe, number) for world in trials.worlds if number in world.null}
        for one, other in combinations(in_world, 2):
            if in_world[one] == in_world[other] and set(in_world[one]) - {None, 1.0}:
                found.append(f"{number}: {one} = {other}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(entries("worlds")))
def test_no_world_leaves_a_number_as_another_world_has_it(name):
    trials = trials_of(name)
    assert trials is not None and unchanged(trials, load_entry("probe", name)()) == []


def test_a_world_that_changes_nothing_is_found():
    trials = trials_of("depth_use")
    assert trials is not None
    first, *_ = trials.worlds
    again = World(first.probe, "the same again", first.make, first.null, small=first.small)
    probe = load_entry("probe", "depth_use")()
    assert unchanged(Trials((*trials.worlds, again)), probe) == [f"last_layer: {first.name} = the same again"]


@pytest.mark.parametrize("name", sorted(set(entries("worlds")) - {"orthogonality"}))
def test_prompts_come_in_clusters_in_some_worlds_of_every_number(name):
    """Near-copies, documents, authors or templates."""
    trials = trials_of(name)
    assert trials is not None
    words = ("copies", "templates", "document", "author")
    clustered = [world for world in trials.worlds if any(word in world.name for word in words)]
    numbers = {number for world in trials.worlds for number in world.null} - {"posterior_kl_beyond_controls"}
    assert {number for world in clustered for number in world.null} == numbers


@pytest.mark.parametrize("name", sorted(entries("worlds")))
def test_every_number_has_a_world_that_bends_what_its_null_assumes(name):
    """One besides those in which the assumptions hold."""
    trials = trials_of(name)
    assert trials is not None
    bent = {number for world in trials.worlds if world.name != "as assumed" for number in world.null}
    assert bent == {number for world in trials.worlds for number in world.null}
