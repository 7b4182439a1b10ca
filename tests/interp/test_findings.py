"""Numbers and their controls: a headline stands out only where its essential controls agree."""

from dataclasses import replace

import pytest

from interp.findings import ALPHA, Control, Findings, Interval, Null, Scalar
from interp.formatting import counted, of_clusters


def scalar(value: float, p: float | None, **more) -> Scalar:
    return Scalar.of(
        value, "bits", Interval(value - 0.1, value + 0.1, "bootstrap"), Null("chance", 0.0, (-0.2, 0.2)), p=p, **more
    )


ABOVE, BELOW, WITHIN = scalar(1.0, 0.01), scalar(-1.0, 0.01), scalar(0.1, 0.6)
WEAK = scalar(1.0, 0.01, underpowered=True)


@pytest.mark.parametrize(
    ("own", "others", "standing"),
    [
        (ABOVE, [], "above"),
        (ABOVE, [ABOVE, ABOVE], "above"),
        (ABOVE, [ABOVE, WITHIN], "within"),
        (ABOVE, [BELOW], "within"),
        (BELOW, [BELOW], "below"),
        (ABOVE, [ABOVE, WEAK], "unjudged"),
        (ABOVE, [WITHIN, WEAK], "within"),
        (WITHIN, [ABOVE], "within"),
        (WEAK, [ABOVE], "unjudged"),
    ],
)
def test_a_number_stands_out_where_its_essential_controls_do_on_the_same_side(own, others, standing):
    scalars = {"own": own} | {f"other_{i}": other for i, other in enumerate(others)}
    controls = tuple(Control("without it", name) for name in scalars if name != "own")
    found = Findings("p", scalars, headline=("own",), controls={"own": controls})
    assert found.standing("own") == standing
    optional = replace(found, controls={"own": tuple(replace(c, essential=False) for c in controls)})
    assert optional.standing("own") == own.standing()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "above"),
        ({"interval": (-0.6, -0.4)}, "below"),
        ({"interval": (0.2, 0.6)}, "within"),
        ({"interval": (0.1, 0.6)}, "within"),
        ({"interval": (float("nan"), 0.6)}, "above"),
        ({"interval": None, "interval_reason": "weights only"}, "above"),
        ({"interval": None, "interval_reason": "weights only", "value": 0.1}, "within"),
        ({"p": ALPHA, "interval": (0.1, 0.6)}, "above"),
        ({"p": 0.051}, "within"),
        ({"p": float("nan")}, "within"),
        ({"p": 0.04, "value": -0.1, "interval": (-0.3, 0.1)}, "below"),
        ({"null": None, "null_reason": "a control"}, "unjudged"),
        ({"value": float("nan")}, "unjudged"),
        ({"null": Null("chance", 0.0, (float("nan"), 0.2))}, "unjudged"),
        ({"underpowered": True}, "unjudged"),
    ],
)
def test_a_number_stands_to_its_null_by_the_rule_printed_on_the_page(given, expected):
    number = replace(scalar(0.5, None), interval=(0.4, 0.6))
    assert replace(number, **given).standing() == expected


@pytest.mark.parametrize(("last", "standing"), [(ABOVE, "above"), (WITHIN, "within"), (WEAK, "unjudged")])
def test_a_control_needs_its_own_controls(last, standing):
    controls = {"own": (Control("a", "other"),), "other": (Control("b", "last"),), "last": (Control("c", "own"),)}
    found = Findings("p", {"own": ABOVE, "other": ABOVE, "last": last}, headline=("own",), controls=controls)
    assert found.standing("own") == standing
    assert [words for words, _ in found.essential_controls("own")] == ["a", "b", "c"]


def test_corrections_replace_p_and_few_prompts_say_how_many_would_do():
    found = Findings("p", {"own": ABOVE})
    assert found.standing("own", 0.06) == "within" and found.standing("own", 0.04) == "above"
    assert scalar(1.0, 0.01, underpowered=True, enough=200).cells[0] == "1 bits (underpowered: 200 prompts would do)"
    clustered = scalar(1.0, 0.01, underpowered=True, enough=200, n_clusters=48)
    assert clustered.cells[0] == "1 bits (underpowered: 200 clusters would do)"
    assert scalar(1.0, 0.01, n=8, n_unit="hypothesis").n_text == "8 hypotheses" and counted(1, "prompt") == "1 prompt"
    assert of_clusters(16, "prompt", 4, "the column category") == "16 prompts of 4 categories"


@pytest.mark.parametrize(
    "given",
    [{"headline": ("absent",)}, {"facts": {"absent": "a fact"}}, {"controls": {"own": (Control("so", "absent"),)}},
     {"controls": {"absent": ()}}],
)  # fmt: skip
def test_what_names_no_number_is_refused(given):
    with pytest.raises(ValueError, match=r"names no scalar: \['absent'\]"):
        Findings("p", {"own": ABOVE}, **given)
