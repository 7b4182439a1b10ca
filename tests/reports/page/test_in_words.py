"""The headline in words: the verdict is the stated rule, and every number said is the record's."""

from dataclasses import replace

import pytest
from interp.reports.page.in_words import Noted, in_words, summary
from interp.reports.page.render import html

from interp.findings import ALPHA, Null, Scalar
from tests.reports.parsed import parse
from tests.reports.pictures import made_findings, made_record


def scalar(value=0.5, interval=(0.4, 0.6), band=(0.0, 0.2), p=None, **more) -> Scalar:
    null = Null("noise", sum(band) / 2, band) if band else None
    return Scalar(
        value, "1", interval, "bootstrap" if interval else "", "" if interval else "weights only", null,
        "" if null else "a control", p,
        meaning="Share of the variance that lies in one plane: near 1, a sheet.", **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "above"),
        ({"value": -0.5, "interval": (-0.6, -0.4)}, "below"),
        ({"interval": (0.2, 0.6)}, "within"),
        ({"interval": (0.1, 0.6)}, "within"),
        ({"interval": None}, "above"),
        ({"interval": None, "value": 0.1}, "within"),
        ({"interval": (float("nan"), 0.6)}, "above"),
        ({"p": ALPHA}, "above"),
        ({"p": 0.051}, "within"),
        ({"p": float("nan")}, "within"),
        ({"p": 0.04, "interval": (0.1, 0.6)}, "above"),
        ({"p": 0.04, "value": -0.1, "interval": (-0.3, 0.1)}, "below"),
        ({"band": None}, "unjudged"),
        ({"value": float("nan")}, "unjudged"),
        ({"band": (float("nan"), 0.2)}, "unjudged"),
        ({"underpowered": True}, "unjudged"),
    ],
)
def test_the_verdict_follows_the_rule_printed_on_the_page(given, expected):
    assert scalar(**given).standing() == expected


def test_what_stands_out_and_what_does_not_are_said_with_interval_and_null():
    headline = {"out": scalar(p=0.002), "not": scalar(p=0.4), "weak": scalar(underpowered=True)}
    record = made_record(replace(made_findings(), scalars=headline, headline=tuple(headline)))
    (words,) = in_words(record)
    share = "share of the variance that lies in one plane, 0.5 (95 % 0.4 to 0.6)"
    assert words.sentences == (
        f"Stands out: {share}, above the 0.1 of its null, p = 0.004.",
        f"Does not stand out: {share}, against 0.1 in its null, p = 0.4.",
        f"Not judged: {share}: underpowered.",
    )
    assert words.count == "1 of 2 stands out"
    assert words.standing == (Noted("0.5", "0.1", "share of the variance that lies in one plane"),)
    assert summary(record) == (
        "Of 2 headline numbers that have a null, 1 stands out from it. 1 more is not judged (no null, or "
        "underpowered). The record holds 3 numbers, 2 of them with a p, and 5 p in its tables."
    )


def test_the_page_says_them_before_the_numbers_with_the_rule():
    text = parse(html(made_record())).text
    said = text.index("Of 3 headline numbers that have a null, 3 stand out from it")
    assert (
        said
        < text.index("Stands out: share of the values' variance")
        < text.index("A number stands out from its null where")
    )
    assert text.index("A number stands out from its null where") < text.index("Number by number")


def test_nothing_is_said_of_findings_without_a_headline():
    record = made_record(replace(made_findings(), headline=()))
    assert in_words(record) == () and summary(record) == ""
    assert "stand out" not in parse(html(record)).text


def test_no_clause_is_cut_to_nothing_and_symbols_keep_their_case():
    meanings = {
        "Removing the axis: KL divergence of the prediction.": "removing the axis: KL divergence of the prediction",
        "|cos| between PC1 and the ridge axis: near 1, one axis.": "|cos| between PC1 and the ridge axis",
        "KL of the exact posterior from the stream.": "KL of the exact posterior from the stream",
        "": "out",
    }
    for meaning, clause in meanings.items():
        found = replace(made_findings(), scalars={"out": replace(scalar(), meaning=meaning)}, headline=("out",))
        assert in_words(made_record(found))[0].sentences[0].startswith(f"Stands out: {clause}, 0.5")
