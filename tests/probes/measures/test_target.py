"""A column of the prompts as target of four probes: planted, shuffled, equal to the entropy, refused."""

from dataclasses import replace

import numpy as np
import pytest
from interp.probes.belief.probe import Belief
from interp.probes.causal.probe import Causal
from interp.probes.manifold.probe import Manifold
from interp.probes.measures.answers import Answers
from interp.probes.measures.cloud import Cloud
from interp.probes.measures.target import NEXT_ENTROPY, Target
from interp.probes.value_axis.probe import ValueAxis

from interp.errors import PromptError
from interp.findings import Scalar
from interp.need import Need
from interp.prompt import Prompt, PromptSet
from interp.table import Table
from interp.testing import Shape, check_probe, synthetic_capture
from tests.quick import quick

N = 120
OUTCOME = Need("outcome_log_prob")
AXIS = ValueAxis(sites=("v",), n_permutations=49)
MANIFOLD = Manifold(n_permutations=49, n_bootstrap=30, n_null=20, n_splits=2)
CAUSAL = Causal(n_controls=19, n_bootstrap=20)
BELIEF = Belief(sites=("v",), n_permutations=49, n_bootstrap=30)
ALL = (AXIS, MANIFOLD, CAUSAL, BELIEF)
RNG = np.random.default_rng(3)
NUMBER = RNG.standard_normal(N)
NAME = RNG.choice(["red", "green", "blue"], N)


def world(probe, planted, **columns):
    """Noise in which one direction of the values moves with what is planted, at every layer."""
    rng = np.random.default_rng(0)
    values = 0.3 * rng.standard_normal((3, N, 2, 8))
    values[..., 0, 0] += 3 * planted
    entropy = rng.uniform(0, 5, N)
    columns = {"number": NUMBER, "kind": NAME, "next_entropy_bits": entropy} | columns
    return synthetic_capture(probe.needs, Shape(n_prompts=N), planted={"v": values}, columns=columns)


def main_number(probe, findings, name) -> Scalar:
    names = {"value_axis": "r2", "manifold": f"{name}_correlation", "belief": "r2", "causal": "axis_r2"}
    return findings[names[probe.name]]


def prompts(**columns):
    units = {name: "label" if isinstance(values[0], str) else "1" for name, values in columns.items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return PromptSet("mine", [Prompt(text=f"text {i}", columns=row) for i, row in enumerate(rows)], units)


@pytest.mark.parametrize("probe", quick((AXIS, CAUSAL, BELIEF), ALL), ids=lambda p: p.name)
def test_a_planted_column_is_found_and_a_shuffled_one_is_not(probe):
    asked = replace(probe, target="number")
    found = main_number(probe, asked.analyse(world(asked, NUMBER), {}), "number")
    shuffled = np.random.default_rng(7).permutation(NUMBER)
    nothing = main_number(probe, asked.analyse(world(asked, NUMBER, number=shuffled), {}), "number")
    assert found.value > 0.95 and abs(nothing.value) < 0.25
    if found.p is not None:
        assert found.p <= 0.02 and nothing.p is not None and nothing.p > 0.05


@pytest.mark.parametrize("probe", quick((CAUSAL,), (AXIS, MANIFOLD, CAUSAL)), ids=lambda p: p.name)
def test_a_column_that_holds_the_entropy_gives_the_numbers_of_the_entropy(probe):
    """But for those about the draw, which is by entropy, and of the entropy of the exact posterior."""
    entropy = np.random.default_rng(0).uniform(0, 5, N)
    default = probe.analyse(world(probe, entropy, next_entropy_bits=entropy), {})
    asked = replace(probe, target="mine")
    mine = asked.analyse(world(asked, entropy, next_entropy_bits=entropy, mine=entropy), {})
    renamed = {name.replace("entropy_correlation", "mine_correlation"): s for name, s in default.scalars.items()}
    assert renamed.keys() == mine.scalars.keys()
    for name, scalar in renamed.items():
        other = mine[name]
        pairs = [(scalar.value, other.value), (scalar.p, other.p), (scalar.interval, other.interval)]
        pairs += [(scalar.null and scalar.null.band, other.null and other.null.band)]
        for a, b in pairs:
            assert a == b or np.array_equal(a, b, equal_nan=True), name
        if "entropy" in scalar.meaning:
            assert "“mine”" in other.meaning and "next-token entropy" not in other.meaning


@pytest.mark.parametrize("level", quick([14.0], [0.0, 1.0, 14.0]))
@pytest.mark.parametrize("probe", quick((CAUSAL,), (AXIS, MANIFOLD, CAUSAL)), ids=lambda p: p.name)
def test_entropies_that_differ_by_rounding_alone_have_no_order(probe, level):
    """What 5e-7 bits follow is how a number was rounded; a hundred times as much is a finding."""
    rounded, held_out_basis = (
        main_number(
            probe, probe.analyse(world(probe, NUMBER, next_entropy_bits=level + spread * NUMBER), {}), "entropy"
        )
        for spread in (5e-7, 5e-5)
    )
    assert np.isnan(rounded.value) and rounded.p is None and "var" in rounded.null_reason + rounded.interval_reason
    assert held_out_basis.value > 0.9


def test_targets_are_refused_as_their_prompts_are_or_by_rounding():
    asked = replace(BELIEF, target=NEXT_ENTROPY)
    with pytest.raises(PromptError, match="everywhere"):
        asked.analyse(world(asked, NUMBER, next_entropy_bits=3 + 5e-7 * NUMBER), {})
    columns = {"prompt": np.arange(20), "x": np.ones(20), "token": np.arange(20)}
    rows = Table(columns, dict.fromkeys(columns, "1"))
    for target, found in (("x", "it is 1 everywhere"), ("y", "no such column"), ("token", "no such column")):
        with pytest.raises(PromptError, match=found):
            Target(target).added_to(rows)


@pytest.mark.parametrize("spread, is_ordered", [(5e-7, False), (1e-3, True)])
def test_answers_with_entropies_that_differ_by_rounding_alone_follow_nothing(spread, is_ordered):
    p = 0.3 + spread * NUMBER / 8
    exact = np.stack([p, 1 - p], axis=1)
    capture = synthetic_capture((OUTCOME,), Shape(n_prompts=N), posterior=exact)
    answers = Answers.of(capture, OUTCOME)
    assert bool(np.ptp(answers.entropy_exact) > 0) is is_ordered


def test_the_noise_of_answers_follows_their_outcomes_and_is_known_of_two_alone():
    first = np.linspace(0.1, 0.4, N)
    for n_outcomes in (2, 3):
        exact = np.full((N, n_outcomes), 1 / n_outcomes)
        capture = synthetic_capture(
            (OUTCOME,), Shape(n_prompts=N), posterior=exact, columns={"p_label_1_noise": first},
            outcome_ids=np.arange(n_outcomes)[::-1],
        )  # fmt: skip
        noise = Answers.of(capture, OUTCOME).noise
        if n_outcomes == 2:  # the second outcome has the lower id, and comes first
            np.testing.assert_allclose(noise, np.stack([1 - first, first], axis=1))
        else:
            assert noise is None


@pytest.mark.slow
def test_one_value_against_the_rest_is_its_indicator():
    """`kind=red` gives what the column of zeros and ones gives; so does a column of true and false, written out."""
    planted = (NAME == "red").astype(float)
    written = np.where(NAME == "red", "true", "false")
    found = []
    for target in ("kind=red", "is_red", "said"):
        asked = replace(AXIS, target=target)
        capture = world(asked, planted, is_red=planted, said=written)
        found.append({name: s.value for name, s in asked.analyse(capture, {}).scalars.items()})
    np.testing.assert_equal(found[0], found[1])
    np.testing.assert_equal(found[0], found[2])
    assert found[0]["r2"] > 0.9


def test_belief_reads_all_names_at_once_and_counts_the_right_ones():
    """Three names planted along three directions: the share told right is that of an own nearest-mean decoder."""
    asked = replace(BELIEF, target="kind")
    capture = synthetic_capture(
        asked.needs, Shape(n_prompts=N), columns={"kind": NAME},
        planted={"v": _directions_by_name(0.05)},
    )  # fmt: skip
    findings = asked.analyse(capture, {})
    assert findings["accuracy"].value == 1.0 and findings["r2"].value > 0.95
    assert findings["accuracy"].null is not None and 0.2 < findings["accuracy"].null.value < 0.45
    assert findings.tables["components"]["value"].tolist() == ["blue", "green", "red"]
    assert "output_tvd" not in findings.scalars and not asked.needs_posterior and BELIEF.needs_posterior


def _directions_by_name(noise):
    values = noise * np.random.default_rng(1).standard_normal((3, N, 2, 8))
    for i, name in enumerate(("red", "green", "blue")):
        values[:, name == NAME, 0, i] += 1
    return values


@pytest.mark.parametrize("probe", ALL, ids=lambda p: p.name)
@pytest.mark.parametrize("target", quick(["number"], ["number", "kind=red"]))
def test_figures_and_sentences_name_the_target_and_not_the_entropy(probe, target):
    asked = replace(probe, target=target)
    findings = asked.analyse(world(asked, NUMBER), {})
    assert f"“{target}”" in " ".join(s.meaning for s in findings.scalars.values())
    for figure in type(probe)().figures(findings):  # drawn by a probe that knows no target: findings say all
        said = f"{figure.title} {figure.reading} {figure.plot.to_json()}"
        # the maps keep the entropy as one more column, and domains are compared at equal entropy
        if figure.name not in ("collapse", "cross_projection"):
            assert "entropy" not in said.replace("at equal number and entropy", "").lower(), figure.name


@pytest.mark.slow
def test_a_capture_with_a_target_meets_the_conformance_of_every_probe():
    asked = replace(AXIS, target="number")
    check = world(asked, NUMBER)
    findings = asked.analyse(check, {})
    held = findings.tables["held_out"]
    assert held.units["number"] == held.units["predicted"] == "1" and "predicted_bits" not in held
    assert findings.tables["by_layer"]["target"].tolist() == ["number"] * findings.tables["by_layer"].n_rows
    check_probe(replace(AXIS, target=NEXT_ENTROPY))


@pytest.mark.parametrize(
    "target, found, fix",
    [
        ("nope", "no such column", "Name one of constant, infinite, kind, length"),
        ("constant", "it is 3 everywhere", "that varies"),
        ("rare", "only 2 of 30 prompts have another value than 0", "at least 5"),
        ("infinite", "1 of 30 values are missing or not finite", "Leave those prompts out"),
        ("kind", "it holds names (blue, red)", "target=kind=red"),
        ("kind=pink", "no row has this value; there are blue, red", "Name one of them"),
    ],
)
@pytest.mark.parametrize("probe", (AXIS, MANIFOLD, CAUSAL), ids=lambda p: p.name)
def test_a_target_that_cannot_be_sought_is_refused_before_a_model_reads(probe, target, found, fix):
    pool = prompts(
        kind=["red", "blue"] * 15, constant=[3.0] * 30, rare=[1.0] * 2 + [0.0] * 28,
        infinite=[np.inf, *np.arange(29.0)], number=[*np.arange(30.0)],
    )  # fmt: skip
    with pytest.raises(PromptError) as refused:
        replace(probe, target=target).refuse(pool)
    said = refused.value
    assert said.asked == f"the target {target!r}" and found in said.found and fix in said.fix
    for fine in ("number", "kind=red", NEXT_ENTROPY, "length"):
        replace(probe, target=fine).refuse(pool)
    replace(BELIEF, target="kind").refuse(pool)


def test_the_column_that_is_sought_is_not_regressed_out_and_does_not_stratify():
    """A domain that is all there is to read: were it a nuisance too, nothing would be left."""
    asked = replace(AXIS, target="domain=red")
    planted = (NAME == "red").astype(float)
    capture = world(asked, planted, domain=NAME, token=np.zeros(N, np.int64))
    findings = asked.analyse(capture, {})
    assert findings["r2_beyond_token"].value > 0.9
    assert Cloud.of(capture, Need("v"), Target("domain=red")).levels("token", "domain") == ("token",)
    assert Cloud.of(capture, Need("v")).levels("token", "domain") == ("token", "domain")


def test_values_by_position_are_read_where_they_stand():
    """Sequences with a column of their own at every scored position."""
    rng = np.random.default_rng(5)
    state = rng.standard_normal(60 * 4)
    values = 0.2 * rng.standard_normal((3, 240, 2, 8))
    values[..., 1, 3] += state
    asked = replace(AXIS, target="state")
    shape = Shape(n_prompts=60, n_scored=4)
    capture = synthetic_capture(asked.needs, shape, planted={"v": values}, columns={"state": state})
    assert asked.analyse(capture, {})["r2"].value > 0.9
    scored = [
        Prompt(token_ids=(0,) * 8, scored=(0, 2), scored_columns={"state": (float(i), np.nan if i == 3 else 1.0)})
        for i in range(20)
    ]
    with pytest.raises(PromptError, match="1 of 40 values"):
        asked.refuse(PromptSet("tunnel", scored, {"state": "1"}))
