"""The simulations of our probes: each is one of its own for every number, and what the certificates say they are."""

from itertools import combinations

import pytest

from interp.certificates.simulations import Simulation, Trials, trials_of
from interp.probe import Probe
from interp.records.record import open_run
from interp.registry import entries, load_entry
from interp.running.spec import make_study
from tests.paths import ROOT

SEEDS = (0, 1, 2)


def ps(kind: Simulation, probe: Probe, number: str) -> tuple[float | None, ...]:
    """The p of a number in simulations of a few seeds, nothing planted; None at its floor, where all are alike."""
    found = [kind.findings(probe, seed, 0.0).scalars.get(number) for seed in SEEDS]
    return tuple(None if scalar is None or scalar.is_p_least else scalar.p for scalar in found)


def unchanged(trials: Trials, probe: Probe) -> list[str]:
    """Numbers that have the same p, seed for seed, in two simulations: one leaves their input as the other has it."""
    numbers = dict.fromkeys(number for kind in trials.simulations for number in kind.null)
    found = []
    for number in numbers:
        in_simulation = {kind.name: ps(kind, probe, number) for kind in trials.simulations if number in kind.null}
        for one, other in combinations(in_simulation, 2):
            if in_simulation[one] == in_simulation[other] and set(in_simulation[one]) - {None, 1.0}:
                found.append(f"{number}: {one} = {other}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(entries("simulations")))
def test_no_simulation_leaves_a_number_as_another_simulation_has_it(name):
    trials = trials_of(name)
    assert trials is not None and unchanged(trials, load_entry("probe", name)()) == []


def test_a_known_model_has_the_prompts_that_are_made_for_it():
    made = [known.prompts for trials in map(trials_of, entries("simulations")) if trials for known in trials.known]
    assert [len(prompts(5)) for prompts in made if prompts is not None] == [5]


def test_a_simulation_that_changes_nothing_is_found():
    trials = trials_of("depth_use")
    assert trials is not None
    first, *_ = trials.simulations
    again = Simulation(first.probe, "the same again", first.make, first.null, small=first.small)
    probe = load_entry("probe", "depth_use")()
    assert unchanged(Trials((*trials.simulations, again)), probe) == [f"last_layer: {first.name} = the same again"]


@pytest.mark.parametrize("name", sorted(set(entries("simulations")) - {"orthogonality"}))
def test_prompts_come_in_clusters_in_some_simulations_of_every_number(name):
    """Near-copies, documents, authors or templates."""
    trials = trials_of(name)
    assert trials is not None
    words = ("copies", "templates", "document", "author")
    clustered = [kind for kind in trials.simulations if any(word in kind.name for word in words)]
    numbers = {number for kind in trials.simulations for number in kind.null} - {"posterior_kl_beyond_controls"}
    assert {number for kind in clustered for number in kind.null} == numbers


@pytest.mark.parametrize("name", sorted(entries("simulations")))
def test_simulations_bend_what_nulls_assume_and_are_those_that_the_certificate_tells_of(name):
    # One besides those in which the assumptions hold.
    trials = trials_of(name)
    assert trials is not None
    bent = {number for kind in trials.simulations if kind.name != "as assumed" for number in kind.null}
    assert bent == {number for kind in trials.simulations for number in kind.null}
    # Of each their size and effects in words, and the settings of the probe in all of them.
    certificate = open_run(ROOT / "examples" / "certificates" / name)
    asked = make_study("certificate", {"probe": name}).spec["certified"]
    assert asked["tried_with"] == certificate.spec["certified"]["tried_with"]
    assert trials is not None
    made = {kind.name: (kind.n, "; ".join(kind.effects)) for kind in trials.simulations}
    told = certificate.findings["certificate"].to_frame("worlds")
    assert {*zip(told["world"], told["number"], strict=True)} == {
        (k.name, n) for k in trials.simulations for n in k.null
    }
    for row in told.itertuples():
        n, effects = made[row.world]
        assert (row.n, row.effects) in ((n, effects), (n, "")), row.world
