"""Two known models beside every number: the data file is of the shipped weights, whole, and made again agrees."""

from dataclasses import replace

import pytest
from interp.reports.page.render import html
from interp.reports.page.sections import headline
from interp.reports.page.shipped import TRUTHS, calibrations, the_tunnel

import interp
from interp.registry import load_entry
from tests.page_numbers import of_run
from tests.reports.everything import PROBES, small_run
from tests.reports.parsed import parse
from tests.reports.pictures import made_findings, made_record

STABLE = {
    "sula.skill": 0.01, "sula.outcome_mass": 0.001, "components.posterior_kl": 0.001,
    "orthogonality.wk_columns": 1e-6, "orthogonality.w_qk_effective_rank": 1e-4, "attention_entropy.reduction": 0.05,
    "attention_entropy.sink_mass": 0.005, "qk_alignment.binding": 0.05, "belief.accuracy": 0.05,
    "heads.top_head_share": 0.1,
}  # fmt: skip
"""Headline numbers of the task that hardly depend on how many sequences there are, and by how much they may."""


def test_the_file_is_of_todays_weights_and_of_both_models():
    made = the_tunnel().made
    assert interp.load("tunnel:bijection-gpt-neox").fingerprint == made["fingerprint"]
    assert len(made["spec_hash"]) == 16 and made["version"] and "--draw 0" in made["command"]
    numbers = the_tunnel().numbers
    assert set(TRUTHS) <= set(numbers)
    assert {name.split(".")[0] for name in numbers} == set(PROBES)
    _, language_model = calibrations()
    assert language_model.name == "smollm2-135m-instruct"
    assert {name.split(".")[0] for name in language_model.numbers} >= set(PROBES)
    assert language_model.made["fingerprint"] != the_tunnel().made["fingerprint"]


@pytest.mark.slow
def test_made_again_at_small_size_it_has_the_same_names_and_agrees(tmp_path):
    record = small_run(tmp_path)
    again = of_run(record)
    assert again["made"]["fingerprint"] == the_tunnel().made["fingerprint"]
    assert set(again["numbers"]) == set(the_tunnel().numbers)
    for name, allowed in STABLE.items():
        assert again["numbers"][name]["value"] == pytest.approx(the_tunnel().numbers[name].value, abs=allowed)


@pytest.fixture
def as_manifold():
    """A record whose probe bears the name of one that the tunnel was read with."""
    findings = made_findings()
    scalars = {"pc1_plus_pc2_share": findings.scalars["share"], "unheard_of": findings.scalars["share"]}
    probe = load_entry("probe", "manifold")()
    found = type(findings)("manifold", scalars, headline=tuple(scalars), parameters=probe.parameters())
    return replace(made_record(), findings={"manifold": found})


def test_numbers_stand_beside_the_tunnels_but_not_its_own(as_manifold):
    text = parse(html(as_manifold)).text
    assert text.count("tunnel:bijection-gpt-neox, a wind tunnel whose exact posterior is known") == 1
    assert text.count("smollm2-135m-instruct, a language model") == 1
    assert "compare 0.327 (" in text and "truth" not in text
    fingerprint = the_tunnel().made["fingerprint"]
    own = replace(as_manifold, model={**as_manifold.model, "fingerprint": fingerprint})
    assert the_tunnel().is_of(own) and not the_tunnel().is_of(as_manifold)
    assert "whose exact posterior is known" not in parse(html(own)).text


def test_the_tunnels_own_page_shows_the_truth_where_there_is_one(as_manifold):
    """A number with a truth has its diamond in its own strip and its words beside it, one without has neither."""
    from interp.findings import Findings

    known = the_tunnel().numbers["components.posterior_kl"]
    findings = Findings("components", scalars={"posterior_kl": known}, headline=("posterior_kl",))
    model = {**as_manifold.model, "fingerprint": the_tunnel().made["fingerprint"]}
    own = replace(as_manifold, model=model, findings={"components": findings})
    (number,) = headline(own)
    assert number.strip.truth is not None
    assert number.strip.truth < number.strip.value  # the truth is 0
    assert "truth 0 bits on the tunnel: the ideal observer" in parse(html(own)).text
    of_another = replace(own, model=as_manifold.model)
    assert headline(of_another)[0].strip.truth is None
    assert "truth 0 bits on the tunnel: the ideal observer" in parse(html(of_another)).text


def test_numbers_of_another_target_stand_beside_no_known_model():
    """The known models were read for the entropy: their R² says nothing of another variable's."""
    model = interp.load("program:chain", check=False)
    quick = {"n_permutations": 19, "sites": "resid"}

    def beside(**settings):
        asked = {"value_axis": quick | settings}
        record = interp.run(model, probes="value_axis", n_pool=30, settings=asked, out=None, quiet=True)
        return [len(number.calibrated) for number in headline(record)]

    assert any(beside()) and not any(beside(target="first_step_3"))
