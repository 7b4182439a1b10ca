"""Headline numbers of a record judged together: the correction, what controls say, and where probes disagree."""

from dataclasses import replace

import numpy as np
import pytest
from interp.reports.page.render import html
from scipy import stats

from interp.findings import Control, Findings, Null, Scalar
from interp.records.headlines import contradictions, corrected, headlines, tried
from interp.table import Table
from tests.reports.parsed import parse
from tests.reports.pictures import made_record

NULL = Null("noise", 0.0, (-0.1, 0.1))


def scalar(value: float = 1.0, p: float | None = None, **more) -> Scalar:
    return Scalar(value, "bits", (value - 0.2, value + 0.2), "bootstrap", "", NULL, p=p, meaning="a number", **more)


def findings(probe: str, *, fact: str = "", **scalars: Scalar) -> Findings:
    first = next(iter(scalars))
    controls = tuple(Control(f"without {name}", name) for name in scalars if name != first)
    return Findings(probe, scalars, headline=(first,), controls={first: controls}, facts={first: fact} if fact else {})


def test_numbers_are_corrected_for_how_many_there_are():
    p = np.random.default_rng(0).random(12) ** 3
    expected = stats.false_discovery_control(p)
    assert corrected([*p[:5], None, *p[5:]]) == pytest.approx([*expected[:5], None, *expected[5:]])
    assert corrected([None]) == [None] and corrected([]) == []
    alone = {"a": findings("a", x=scalar(p=0.03))}
    assert headlines(alone)[0].standing == "above"
    among = alone | {f"b{i}": findings(f"b{i}", x=scalar(0.0, p=0.6)) for i in range(3)}
    (first, *_) = headlines(among)
    assert first.p_together == pytest.approx(0.12) and first.standing == "within"


def test_controls_say_whether_the_number_holds_and_decide_where_they_are_essential():
    found = findings("a", x=scalar(p=0.001), sink=scalar(0.22, p=0.06), token=scalar(0.9, p=0.001))
    (judged,) = headlines({"a": found})
    assert judged.controls_in_words == (
        "holds without sink: no (0.22 bits, p = 0.06)",
        "holds without token: yes (0.9 bits, p = 0.001)",
    )
    assert judged.without_controls == "above" and judged.standing == "within"
    eased = replace(found, controls={"x": (replace(found.controls["x"][0], essential=False), found.controls["x"][1])})
    assert headlines({"a": eased})[0].standing == "above"
    record = made_record(found)
    assert judged.verdict == "fails a control" and judged.agreement == "1 of 2"
    assert judged.objections == ("does not hold without sink (0.22 bits, p = 0.06)",)
    assert "holds without token: yes (0.9 bits, p = 0.001)" in parse(html(record)).text


def test_controls_and_what_was_tried_are_said_of_every_number():
    (judged,) = headlines(
        {"a": findings("a", x=scalar(0.1, p=0.8), sink=scalar(0.9, p=0.01), token=scalar(0.1, p=0.7))}
    )
    assert judged.controls_in_words == (
        "without sink: significant (0.9 bits, p = 0.01)",
        "without token: not significant (0.1 bits, p = 0.7)",
    )
    assert judged.standing == "within"
    found = findings("a", x=scalar(p=0.001), few=scalar(0.9, p=0.001, underpowered=True))
    (judged,) = headlines({"a": found})
    assert judged.standing == "unjudged"
    assert judged.controls_in_words == ("holds without few: not tested (0.9 bits, underpowered)",)
    assert judged.objections == ("could not be tested without few (0.9 bits, underpowered)",)
    table = Table({"layer": np.arange(3), "layer_p": np.array([0.1, np.nan, 0.3])}, {"layer": "layer", "layer_p": "1"})
    found = replace(findings("a", x=scalar(p=0.1), y=scalar()), tables={"by_layer": table})
    counted = "has 2 numbers, 1 of them with a p, and 2 p-values in its tables"
    assert counted in tried({"a": found}) and counted in parse(html(made_record(found))).text
    fact = "attention depends on this prompt's content"
    both = {"a": findings("a", fact=fact, x=scalar(p=0.001)), "b": findings("b", fact=fact, y=scalar(-1.0, p=0.001))}
    assert len(contradictions(both)) == 1 and "No: A number (b.y: −1 bits, p = 0.001)" in contradictions(both)[0]


def test_probes_that_disagree_about_a_fact_are_named():
    fact = "attention narrows with depth"
    both = {"a": findings("a", fact=fact, x=scalar(p=0.001)), "b": findings("b", fact=fact, y=scalar(0.1, p=0.9))}
    assert contradictions(both) == (
        f"Probes disagree on whether {fact}. Yes: A number (a.x: 1 bits, p = 0.001). No: A number (b.y: 0.1 bits, "
        "p = 0.9). No control decides between them.",
    )
    assert contradictions({"a": both["a"]}) == ()
    tested = both | {"a": findings("a", fact=fact, x=scalar(p=0.001), sink=scalar(p=0.01))}
    assert contradictions(tested)[0].endswith(" Trust A number, whose controls agree.")
    open_one = {"a": both["a"], "b": findings("b", fact=fact, y=scalar(0.1, p=0.9, underpowered=True))}
    assert contradictions(open_one) == ()
