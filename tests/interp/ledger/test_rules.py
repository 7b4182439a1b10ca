"""Rules: every kind with a case for every outcome that it can give, and the outcome of a row."""

import math
from dataclasses import replace
from itertools import product

import pytest

from interp.findings import Control, Findings, Null, Scalar
from interp.ledger.rules import KINDS, OUTCOMES, SEVERAL, Judgement, Outcome, Rule, combine, judge, rule_in_words

SUPPORTED, CONTRADICTED, NULL, UNDERPOWERED, MISSING = OUTCOMES


def scalar(value, interval=None, null=(0.0, -0.1, 0.1), p=None, underpowered=False):
    return Scalar(
        value, "bits", interval=interval, interval_method="bootstrap" if interval else "",
        interval_reason="" if interval else "an identity",
        null=None if null is None else Null("chance", null[0], null[1:]), null_reason="" if null else "there is none",
        p=p, underpowered=underpowered,
    )  # fmt: skip


NAN, FEW, CHANCE = scalar(math.nan), scalar(5.0, (4.0, 6.0), underpowered=True), scalar(0.05, (0.01, 0.09))

THREE = [
    (Rule("at_most", high=2.0), (0.5, 1.5), (2.5, 3.5), (1.4, 2.4)),
    (Rule("at_least", low=2.0), (2.5, 3.5), (0.5, 1.5), (1.6, 2.6)),
    (Rule("between", low=1.0, high=2.0), (1.2, 1.8), (2.2, 2.8), (0.5, 2.5)),
    (Rule("near", value=1.5, tolerance=0.5), (1.1, 1.9), (0.2, 0.9), (0.9, 1.1)),
    (Rule("positive"), (0.5, 1.5), (-1.5, -0.5), (-0.5, 1.5)),
    (Rule("negative"), (-1.5, -0.5), (0.5, 1.5), (-1.5, 0.5)),
    (Rule("above_null"), (0.5, 1.5), (-1.5, -0.5), (0.1, 0.9)),
    (Rule("below_null"), (-1.5, -0.5), (0.5, 1.5), (-0.3, 0.5)),
]
"""Rules, each with an interval that supports it, one that contradicts it and one that does neither."""


def in_the_middle(rule, outcome, interval):
    null = (0.3, 0.2, 0.4) if rule.kind.endswith("_null") else (0.0, -0.1, 0.1)
    return scalar(sum(interval) / 2, interval, null=null, p=0.01 if outcome == UNDERPOWERED else None)


SINGLE = [
    *((rule, in_the_middle(rule, outcome, interval), outcome) for rule, *intervals in THREE
      for outcome, interval in zip((SUPPORTED, CONTRADICTED, UNDERPOWERED), intervals, strict=True)),
    (Rule("at_most", high=2.0), scalar(2.0, (1.5, 2.0)), SUPPORTED),
    (Rule("identity", tolerance=1e-8), scalar(1e-12), SUPPORTED),
    (Rule("identity", tolerance=1e-8), scalar(1e-3), CONTRADICTED),
    # bounds that are multiples of the null
    (Rule("at_least", low=0.9, times_null=True, null=False), scalar(0.95, (0.92, 0.98), null=(1.0,) * 3), SUPPORTED),
    (Rule("at_least", low=0.9, times_null=True, null=False), scalar(0.2, (0.1, 0.3), null=(1.0,) * 3), CONTRADICTED),
    (Rule("at_most", high=0.1, times_null=True), scalar(0.5, (0.3, 0.7), null=(10.0, 9.0, 11.0)), SUPPORTED),
    (Rule("at_most", high=0.1, times_null=True), scalar(0.5, null=None), MISSING),
    (Rule("above_null"), scalar(0.5, null=None), MISSING),
    # a number without an interval is its own
    (Rule("at_most", high=2.0), scalar(1.0), SUPPORTED),
    (Rule("at_most", high=2.0), scalar(3.0), CONTRADICTED),
]  # fmt: skip


def several(*intervals):
    return [scalar((low + high) / 2, (float(low), float(high))) for low, high in intervals]


SEVERAL_CASES = [
    (Rule("falling"), several((5, 6), (3, 4), (1, 2)), SUPPORTED),
    (Rule("falling"), several((5, 6), (1, 2), (3, 4)), CONTRADICTED),
    (Rule("falling"), several((5, 6), (3, 5.5), (1, 2)), UNDERPOWERED),
    (Rule("rising"), several((1, 2), (3, 4)), SUPPORTED),
    (Rule("rising"), several((3, 4), (1, 2)), CONTRADICTED),
    (Rule("rising"), several((1, 2), (1.5, 4)), UNDERPOWERED),
    (Rule("differ"), several((1, 3), (2, 4), (3.5, 5)), SUPPORTED),
    (Rule("differ"), several((1, 3), (2, 4)), UNDERPOWERED),
    (Rule("ratio", high=0.8), several((1.9, 2.1), (3.9, 4.1)), SUPPORTED),
    (Rule("ratio", high=0.8), several((3.9, 4.1), (3.9, 4.1)), CONTRADICTED),
    (Rule("ratio", low=0.8, high=1.25), several((2, 6), (3.9, 4.1)), UNDERPOWERED),
    (Rule("ratio", low=0.8, high=1.25), several((3.9, 4.1), (3.9, 4.1)), SUPPORTED),
    (Rule("ratio", high=0.8), several((-1, 1), (3.9, 4.1)), UNDERPOWERED),
    # 4 (3 to 5) over 4 (2 to 6): the interval is 0.61 to 2.07, wider than either alone makes it
    (Rule("ratio", low=0.5), several((3, 5), (2, 6)), SUPPORTED),
    (Rule("ratio", low=0.62), several((3, 5), (2, 6)), UNDERPOWERED),
    (Rule("ratio", high=2.1), several((3, 5), (2, 6)), SUPPORTED),
    (Rule("ratio", high=2.0), several((3, 5), (2, 6)), UNDERPOWERED),
]  # fmt: skip


CASES = [*((rule, [number], outcome) for rule, number, outcome in SINGLE), *SEVERAL_CASES]


@pytest.mark.parametrize("rule, numbers, outcome", CASES)
def test_a_rule_gives_the_outcome_of_its_definition(rule, numbers, outcome):
    assert judge(rule, numbers, None).outcome == outcome


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_words_and_a_case_for_every_outcome_it_can_give(kind):
    # What is common to all kinds (no number, too few, no different from the null) is asked of each below.
    shown = {outcome for rule, _, outcome in CASES if rule.kind == kind}
    wanted = {SUPPORTED} if kind == "differ" else {SUPPORTED, CONTRADICTED}
    assert wanted <= shown and (kind == "identity" or UNDERPOWERED in shown)
    assert rule_in_words(one_of(kind), "bits")


def one_of(kind: str) -> Rule:
    return next(rule for rule, *_ in CASES if rule.kind == kind and not rule.times_null)


@pytest.mark.parametrize("kind", KINDS)
def test_no_number_and_too_few_prompts_come_before_everything_else(kind):
    others = several((1, 2)) if kind in SEVERAL else []
    missing = judge(one_of(kind), [NAN, *others], None)
    assert missing.outcome == MISSING and missing.why == "an identity"
    assert judge(one_of(kind), [FEW, *others], 1e-9).outcome == UNDERPOWERED


ALLOWED = {
    "at_most": 0.05, "at_least": 2.5, "between": 1.5, "near": 1.4, "positive": 0.05, "negative": -0.05,
    "above_null": 0.05, "below_null": -0.05,
}  # fmt: skip
"""A value that each rule allows, its interval .04 to either side."""


OUT, IN, OPEN = scalar(0.5, (0.4, 0.6)), scalar(0.05, (0.01, 0.09)), scalar(0.5, (0.4, 0.6), null=None)
OPPOSITE = scalar(-0.5, (-0.6, -0.4))


@pytest.mark.parametrize("controls, outcome, why", [
    ((OUT,), SUPPORTED, "the interval lies in the claimed region"),
    ((OUT, IN), NULL, "it does not hold without 1 (0.05 bits)"),
    ((IN, OPEN), NULL, "it does not hold without 0 (0.05 bits)"),
    ((OPPOSITE, IN), NULL, "it does not hold without 0 (−0.5 bits) and without 1 (0.05 bits)"),
    ((OUT, OPEN), UNDERPOWERED, "it cannot be judged without 1 (0.5 bits)"),
])  # fmt: skip
def test_a_number_is_supported_only_where_its_essential_controls_stand_out_as_it_does(controls, outcome, why):
    """The rule of the page: findings with the same controls say that the number stands out where it is supported."""
    named = [(f"without {i}", control) for i, control in enumerate(controls)]
    assert judge(Rule("positive"), [OUT], None, named) == Judgement(outcome, why)
    assert judge(Rule("positive", null=False), [OUT], None, named).outcome == SUPPORTED  # no null is asked for
    scalars = {"number": OUT} | dict(named)
    found = Findings("probe", scalars, controls={"number": tuple(Control(words, words) for words, _ in named)})
    assert found.essential_controls("number") == named
    assert (found.standing("number") == "above") == (outcome == SUPPORTED)


@pytest.mark.parametrize("kind", ALLOWED)
def test_what_a_claim_allows_is_asked_for_its_null_and_what_it_forbids_is_not(kind):
    rule, value = one_of(kind), ALLOWED[kind]
    band = (0.0, value - 3, value + 3) if abs(value) > 0.1 else (0.0, -0.1, 0.1)
    inside = scalar(value, (value - 0.04, value + 0.04), null=band)
    assert judge(rule, [inside], None).outcome == NULL  # the value lies in the band
    assert judge(rule, [inside], 0.051).outcome == NULL  # p decides where there is one
    assert judge(rule, [inside], 0.05).outcome == SUPPORTED
    assert judge(replace(rule, null=False), [inside], 0.9).outcome == SUPPORTED
    far = -9.0 if kind in ("at_least", "between", "near", "positive", "above_null") else 9.0
    for p in (None, 0.9):
        assert judge(rule, [scalar(far, (far - 1, far + 1), null=(0.0, -20.0, 20.0))], p).outcome == CONTRADICTED


def test_designs_intervals_and_nulls_decide_by_their_widths():
    number = scalar(1.0, (0.5, 1.5), null=(0.0, -0.1, 0.1), p=0.25)
    few = replace(number, p_least=0.25)
    assert judge(Rule("positive"), [number], 0.25).outcome == NULL
    assert judge(Rule("positive"), [few], 0.25) == Judgement("underpowered", "no p of this design can be below 0.25")
    assert judge(Rule("negative"), [few], 0.25).outcome == CONTRADICTED
    assert few.p_text == "≤ 0.25"
    far, near = scalar(0.5), scalar(0.35)
    assert judge(Rule("falling"), [far, scalar(0.25)], None).outcome == SUPPORTED
    assert judge(Rule("falling"), [far, near], None).outcome == UNDERPOWERED
    assert judge(Rule("falling"), [scalar(0.25), far], None).outcome == CONTRADICTED
    assert judge(Rule("at_most", high=2.0), [scalar(2.0000001, (1.0, 2.0))], None).outcome == UNDERPOWERED
    numbers = [scalar(3.0, (3.0, 3.0)), scalar(4.0, (4.0, 4.0))]
    assert judge(Rule("ratio", low=0.7499, high=0.7501), numbers, None).outcome == SUPPORTED


@pytest.mark.parametrize("fields", [
    {"kind": "at_most"}, {"kind": "at_most", "low": 1.0}, {"kind": "near", "value": 1.0}, {"kind": "ratio"},
    {"kind": "positive", "low": 0.0},
])  # fmt: skip
def test_a_rule_that_says_too_little_or_too_much_is_refused(fields):
    with pytest.raises(ValueError, match="the rule"):
        Rule(**fields)


def by_definition(outcomes: tuple[Outcome, ...]) -> Outcome:
    """`ORDER_OF_A_ROW`, written out once more."""
    if CONTRADICTED in outcomes:
        return CONTRADICTED
    if outcomes and set(outcomes) == {SUPPORTED}:
        return SUPPORTED
    if set(outcomes) <= {SUPPORTED, MISSING}:
        return MISSING
    return NULL if NULL in outcomes else UNDERPOWERED


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_a_row_follows_from_its_parts(n):
    for outcomes in product(OUTCOMES, repeat=n):
        assert combine(outcomes) == by_definition(outcomes)


@pytest.mark.parametrize("rule, words", [
    (Rule("at_most", high=0.01), "at most 0.01 bits, and not what the null gives"),
    (Rule("at_least", low=0.9, times_null=True, null=False), "at least 0.9 times the null"),
    (Rule("near", value=2.3, tolerance=0.5, null=False), "within 0.5 of 2.3 bits"),
    (Rule("above_null"), "above the null"),
    (Rule("ratio", low=0.8, high=1.25), "the first over the second from 0.8 to 1.25"),
    (Rule("ratio", high=0.8), "the first over the second at most 0.8"),
    (Rule("identity", tolerance=1e-8), "0 within 1e-08 (an identity)"),
])  # fmt: skip
def test_a_rule_is_told_in_words(rule, words):
    assert rule_in_words(rule, "bits") == words
