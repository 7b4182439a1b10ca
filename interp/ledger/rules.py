"""Rules that give exactly one outcome for a measured number and a claim about it.

In this order:

    not measurable here             there is no number, and why
    underpowered                    the probe reports too few data
    contradicted                    the whole interval lies outside the claimed region
    underpowered                    the rule asks for a difference from the null, and no p of the design can reach .05
    no different from the null      it asks for one, and there is none: p (corrected over the rows of the ledger) is
                                    above .05, or, without a p, the interval reaches into the band; or an essential
                                    control is not significant (if it cannot be tested: underpowered)
    supported                       the whole interval lies in the claimed region
    underpowered                    the interval reaches across the bound of the region

A number without an interval (weights, identities) is its own interval.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np

from interp.findings import ALPHA, Scalar, with_controls

Outcome = Literal[
    "supported", "contradicted", "no different from the null", "underpowered", "not measurable here"
]  # fmt: skip
RuleKind = Literal[
    "at_most", "at_least", "between", "near", "positive", "negative", "above_null", "below_null", "identity", "ratio",
    "falling", "rising", "differ",
]  # fmt: skip

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
SEVERAL: tuple[RuleKind, ...] = ("ratio", "falling", "rising", "differ")
"""Kinds that compare several numbers; they have no null."""

_DECIDING: tuple[Outcome, ...] = ("contradicted", "no different from the null", "underpowered")
"""The first of these that occurs decides a row that is not supported in every part."""

ORDER_OF_A_ROW = (
    "A row of several parts is contradicted where any part is, and supported only where every part is; otherwise no "
    "different from the null where any part is, else underpowered where any part is, else not measurable here: where "
    "some parts are supported and the others cannot be measured, the claim is left open."
)

_BOUNDS = ("low", "high", "value", "tolerance")
_ABOVE_0, _BELOW_0 = np.nextafter(0.0, 1.0), np.nextafter(0.0, -1.0)

KINDS: dict[RuleKind, tuple[tuple[str, ...], str, Callable[[Any, float], tuple[float, float]] | None]] = {
    "at_most": (("high",), "at most {high}", lambda r, null: (-np.inf, r.high)),
    "at_least": (("low",), "at least {low}", lambda r, null: (r.low, np.inf)),
    "between": (("low", "high"), "from {low} to {high}", lambda r, null: (r.low, r.high)),
    "near": (("value", "tolerance"), "within {tolerance} of {value}",
             lambda r, null: (r.value - r.tolerance, r.value + r.tolerance)),
    "positive": ((), "above 0", lambda r, null: (_ABOVE_0, np.inf)),
    "negative": ((), "below 0", lambda r, null: (-np.inf, _BELOW_0)),
    "above_null": ((), "above the null", lambda r, null: (np.nextafter(null, np.inf), np.inf)),
    "below_null": ((), "below the null", lambda r, null: (-np.inf, np.nextafter(null, -np.inf))),
    "identity": (("tolerance",), "0 within {tolerance} (an identity)", lambda r, null: (-r.tolerance, r.tolerance)),
    "ratio": (("low", "high"), "the first over the second {bounds}", None),
    "falling": ((), "each lower than the one before", None),
    "rising": ((), "each higher than the one before", None),
    "differ": ((), "at least two of them differ", None),
}  # fmt: skip
"""The bounds of each kind (a ratio has one or both), its text, and its closed region for a number with this null."""


@dataclass(frozen=True)
class Rule:
    """What is claimed of a number: kind and bounds. If `null` is False it need not differ from its null; `times_null`
    makes bounds multiples of the null's value.

    `at_most`, `at_least`, `between` bounds; `near` a value within `tolerance`; `positive`, `negative`; `above_null`,
    `below_null`: on that side of the null's value; `identity`: 0 within `tolerance`; `ratio`: the first of two numbers
    over the second within bounds; `falling`, `rising`: each next number below (above) the one before; `differ`: at
    least two of the numbers do. Raises `ValueError` for missing or superfluous bounds.
    """

    kind: RuleKind
    low: float | None = None
    high: float | None = None
    value: float | None = None
    tolerance: float | None = None
    null: bool = True
    times_null: bool = False

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 (read by pydantic where a file is checked)

    def __post_init__(self) -> None:
        given, wanted = tuple(n for n in _BOUNDS if getattr(self, n) is not None), KINDS[self.kind][0]
        if given != wanted and not (self.kind == "ratio" and given in (("low",), ("high",))):
            words = "low, high or both" if self.kind == "ratio" else ", ".join(wanted) or "no bound"
            raise ValueError(f"the rule {self.kind} needs {words}, not {', '.join(given) or 'no bound'}")

    @property
    def asks_null(self) -> bool:
        """Whether the number has to differ from its null too."""
        return self.null and self.kind not in (*SEVERAL, "identity")


@dataclass(frozen=True)
class Judgement:
    """An outcome and its reason."""

    outcome: Outcome
    why: str


def judge(
    rule: Rule, numbers: Sequence[Scalar], p: float | None, controls: Sequence[tuple[str, Scalar]] = ()
) -> Judgement:
    """The outcome of one part of a claim; `p` is corrected over the ledger, `controls` are the essential ones."""
    several = rule.kind in SEVERAL
    for number in numbers:
        if not np.isfinite(number.value):
            reason = number.interval_reason or number.null_reason or "the number is not finite"
            return Judgement("not measurable here", reason)
    if any(number.underpowered for number in numbers):
        return Judgement("underpowered", "too little to go on, says the probe (prompts, rows, seeds or checkpoints)")
    if several:
        return _compared(rule, numbers)
    return _single(rule, numbers[0], p, controls)


def combine(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of a row from those of its parts, as `ORDER_OF_A_ROW` says."""
    if outcomes and all(outcome == "supported" for outcome in outcomes):
        return "supported"
    for outcome in _DECIDING:
        if outcome in outcomes:
            return outcome
    return "not measurable here"


def rule_in_words(rule: Rule, unit: str = "") -> str:
    """The rule as the page prints it."""
    of = " times the null" if rule.times_null else "" if unit in ("", "1") else f" {unit}"
    given = {name: f"{getattr(rule, name):g}" for name in _BOUNDS if getattr(rule, name) is not None}
    said = {name: number if name == "tolerance" else f"{number}{of}" for name, number in given.items()}
    bounds = "between" if {"low", "high"} <= given.keys() else "at_most" if "high" in given else "at_least"
    if rule.kind == "ratio":
        said["bounds"] = KINDS[bounds][1].format(**given)
    words = KINDS[rule.kind][1].format(**said)
    return f"{words}, and not what the null gives" if rule.asks_null and rule.kind[-4:] != "null" else words


def _single(rule: Rule, number: Scalar, p: float | None, controls: Sequence[tuple[str, Scalar]]) -> Judgement:
    if (rule.times_null or rule.kind in ("above_null", "below_null")) and number.null is None:
        return Judgement("not measurable here", number.null_reason or "it has no null")
    null, allowed = number.null.value if number.null else np.nan, KINDS[rule.kind][2]
    assert allowed is not None
    if rule.times_null:
        rule = replace(rule, **{n: getattr(rule, n) * null for n in ("low", "high") if getattr(rule, n) is not None})
    claimed = _against(_interval(number), allowed(rule, null))
    if claimed.outcome == "contradicted" or not rule.asks_null:
        return claimed
    if p is not None and number.least_p > ALPHA:
        return Judgement("underpowered", f"no p of this design can be below {number.least_p:.2g}")
    own = number.standing(p)
    if own == "within":
        given = f"p = {p:.2g} after correction" if p is not None else "the interval reaches into the null's band"
        return Judgement("no different from the null", given)
    together = with_controls(own, [control for _, control in controls])
    if together == own:
        return claimed
    is_open = together == "unjudged"
    against = [(words, s) for words, s in controls if s.standing() != own and (s.standing() == "unjudged") == is_open]
    named = " and ".join(f"{words} ({s.briefly})" for words, s in against)
    if is_open:
        return Judgement("underpowered", f"it cannot be judged {named}")
    return Judgement("no different from the null", f"it does not hold {named}")


def _interval(number: Scalar) -> tuple[float, float]:
    if number.interval is None or not np.isfinite(number.interval).all():
        return number.value, number.value
    # On another scale an interval may leave its own value outside by a rounding error.
    return min(number.interval[0], number.value), max(number.interval[1], number.value)


def _against(interval: tuple[float, float], region: tuple[float, float]) -> Judgement:
    (low, high), (first, last) = interval, region
    what = "the value" if low == high else "the interval"
    if first <= low and high <= last:
        return Judgement("supported", f"{what} lies in the claimed region")
    if high < first or low > last:
        return Judgement("contradicted", f"{what} lies outside the claimed region")
    return Judgement("underpowered", "the interval reaches across the bound")


def _compared(rule: Rule, numbers: Sequence[Scalar]) -> Judgement:
    if rule.kind == "ratio":
        return _ratio(rule, numbers)
    spans = [_span(number) for number in numbers]
    if rule.kind == "differ":
        apart = any(one[1] < other[0] for one in spans for other in spans)
        if apart:
            return Judgement("supported", "the intervals of at least two are apart")
        return Judgement("underpowered", "all intervals overlap: no difference was seen")
    steps = list(pairwise(spans))
    if rule.kind == "rising":
        steps = [(after, before) for before, after in steps]
    if all(before[0] > after[1] for before, after in steps):
        return Judgement("supported", "every interval lies beyond the one before")
    if any(before[1] < after[0] for before, after in steps):
        return Judgement("contradicted", "at least one step goes the other way, by more than both intervals")
    return Judgement("underpowered", "intervals of neighbours overlap")


def _span(number: Scalar) -> tuple[float, float]:
    """The interval; without one, the value plus and minus half the width of the null's band."""
    if number.interval is not None or number.null is None:
        return _interval(number)
    half = (number.null.band[1] - number.null.band[0]) / 2
    return number.value - half, number.value + half


def _ratio(rule: Rule, numbers: Sequence[Scalar]) -> Judgement:
    """Test a ratio by the interval of the difference of logarithms, recovered from both (Zou and Donner 2008)."""
    (x, (a, b)), (y, (l, u)) = ((s.value, _span(s)) for s in numbers)  # noqa: E741 (the source's letters)
    if min(a, l) <= 0:
        return Judgement("underpowered", "an interval reaches 0, and a ratio says nothing there")
    d = np.log(x) - np.log(y)
    down = np.hypot(np.log(x) - np.log(a), np.log(u) - np.log(y))
    up = np.hypot(np.log(b) - np.log(x), np.log(y) - np.log(l))
    region = (-np.inf if rule.low is None else rule.low, np.inf if rule.high is None else rule.high)
    low, high = float(np.exp(d - down)), float(np.exp(d + up))
    verdict = _against((low, high), region)
    return Judgement(verdict.outcome, f"ratio {np.exp(d):.3g} ({low:.3g} to {high:.3g}): {verdict.why}")
