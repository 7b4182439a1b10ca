"""The headline in words: the verdict is the stated rule, and every number said is the record's."""

from dataclasses import replace

import pytest
from interp.reports.page.in_words import N_LEADING, clause, evidence, leading, summary, usual_n
from interp.reports.page.render import html

from interp.findings import ALPHA, Control, Findings, Null, Scalar
from interp.records.headlines import headlines
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


def judged(**scalars: Scalar):
    return headlines({"probe": Findings("probe", scalars=scalars, headline=tuple(scalars))})


def test_every_number_is_said_with_interval_null_and_p():
    given = judged(out=scalar(p=0.002), within=scalar(p=0.4), weak=scalar(underpowered=True), bare=scalar(band=None))
    assert [evidence(h) for h in given] == [
        "95 % interval 0.4 to 0.6; above its null, 0.1 (0 to 0.2), p = 0.004",
        "95 % interval 0.4 to 0.6; no different from its null, 0.1 (0 to 0.2), p = 0.4",
        "95 % interval 0.4 to 0.6; not judged: underpowered",
        "95 % interval 0.4 to 0.6; not judged: a control",
    ]
    assert [h.verdict for h in given] == ["above its null", "no different", "underpowered", "not judged"]
    assert summary(given) == (
        "Of 2 headline numbers with a null, 1 stands out from it. 2 more are not judged (no null, or underpowered)."
    )


def test_the_least_p_is_a_bound_and_a_null_without_a_band_is_one_number():
    (h,) = judged(out=scalar(interval=None, band=(0.1, 0.1), p=1e-6))
    assert evidence(h) == "no interval; above its null, 0.1, p < 1e−6"


def test_a_number_that_an_essential_control_does_not_share_fails_it():
    scalars = {"out": scalar(p=0.002), "without": scalar(p=0.7)}
    controls = {"out": (Control("without the first position", "without"),)}
    (h,) = headlines({"probe": Findings("probe", scalars=scalars, headline=("out",), controls=controls)})
    assert h.verdict == "fails a control" and h.agreement == "0 of 1"
    assert evidence(h).endswith("; does not hold without the first position (0.5, p = 0.7)")


def test_what_stands_out_is_said_first_and_every_probe_before_the_second_of_another():
    out, within = scalar(p=0.002), scalar(p=0.9)
    found = {
        "a": Findings("a", scalars={"x": out, "y": out, "z": within}, headline=("x", "y", "z")),
        "b": Findings("b", scalars={"x": within, "y": out}, headline=("x", "y")),
        "c": Findings("c", scalars=dict.fromkeys("uvw", out), headline=tuple("uvw")),
    }
    said = [headlines(found)[i] for i in leading(headlines(found))]
    assert len(said) == N_LEADING == 5
    assert [(h.probe, h.name) for h in said] == [("a", "x"), ("a", "y"), ("b", "y"), ("c", "u"), ("c", "v")]


def test_the_page_says_them_before_the_numbers_with_the_rule():
    text = parse(html(made_record())).text
    first = text.index("Share of the values' variance that lies in their first two directions")
    assert first < text.index("Of 3 headline numbers with a null, 3 stand out from it") < text.index("Number by number")
    assert text.index("Number by number") < text.index("A number stands out from its null where")


def test_nothing_is_said_of_findings_without_a_headline():
    record = made_record(replace(made_findings(), headline=()))
    assert summary(()) == "" and leading(()) == []
    assert "stand out" not in parse(html(record)).text


def test_no_clause_is_cut_to_nothing_and_symbols_keep_their_case():
    meanings = {
        "removing the axis: KL divergence of the prediction.": "Removing the axis: KL divergence of the prediction",
        "|cos| between PC1 and the ridge axis: near 1, one axis.": "|cos| between PC1 and the ridge axis",
        "KL of the exact posterior from the stream.": "KL of the exact posterior from the stream",
        "": "Out of it",
    }
    for meaning, said in meanings.items():
        assert clause("out_of_it", replace(scalar(), meaning=meaning)) == said


def test_the_count_of_most_numbers_is_said_once():
    assert usual_n([scalar(n=75), scalar(n=75), scalar(n=9)]) == "75 prompts"
    assert usual_n([scalar(n=75), scalar(n=8), scalar(n=9)]) == "" and usual_n([]) == ""
