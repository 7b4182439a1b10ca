"""Answers in plain words: the same on every surface, in the order of the questions, with what would change them."""

import string
from dataclasses import replace

import pytest
from interp.reports.page.render import html

from interp.cli.tables import print_record
from interp.findings import Control, Findings, Null, Scalar
from interp.formatting import plain
from interp.probe import Sentences
from interp.records.answers import SAID, answers, settled, unclear
from interp.records.labels import clause
from interp.records.record import RunRecord
from interp.registry import entries, load_entry
from tests.reports.everything import small_run
from tests.reports.parsed import parse
from tests.reports.pictures import made_record

PROBES = tuple(entries("probe"))


def scalar(value: float, p: float | None = 0.001, **more) -> Scalar:
    about = {"n": 75, "meaning": "a number"} | more
    return Scalar(
        value, "bits", (value - 0.1, value + 0.1), "bootstrap", "", Null("chance", 0.0, (-0.2, 0.2)), p=p, **about
    )


YES, NO, OPPOSITE = scalar(1.0), scalar(0.1, 0.8), scalar(-1.0)


def record_of(*probes: Findings, **parameters) -> RunRecord:
    found = {findings.probe: replace(findings, parameters=parameters) for findings in probes}
    return replace(made_record(), findings=found)


def attention(number: Scalar, twin: Scalar, essential: bool = False) -> Findings:
    controls = {"content_sharpening": (Control("without the first position", "twin", essential),)}
    scalars = {"content_sharpening": number, "twin": twin}
    return Findings("attention_entropy", scalars, headline=("content_sharpening",), controls=controls)


@pytest.mark.parametrize(
    ("number", "verdict", "words"),
    [
        (YES, "yes", "is 1 bits lower"),
        (NO, "no", "is no lower"),
        (OPPOSITE, "opposite", "is 1 bits higher"),
        (replace(YES, underpowered=True, enough=200), "unclear", "200 prompts would do"),
        (replace(YES, null=None, null_reason="one prompt"), "unclear", "one prompt"),
        (replace(YES, value=float("nan")), "unclear", "not a finite number"),
        (
            replace(NO, value=0.0, interval=(0.0, 0.0), null=Null("n", 0.0, (0.0, 0.0))),
            "unclear",
            "nothing else may be",
        ),
    ],
)
def test_the_side_of_its_null_on_which_a_number_lies_is_the_answer(number, verdict, words):
    (answer,) = answers(record_of(attention(number, number)))
    assert answer.verdict == verdict and words in answer.said and answer.said.startswith(SAID[verdict])


@pytest.mark.parametrize(
    ("twin", "verdict", "words"),
    [
        (OPPOSITE, "depends", "in place of its own. Without the first position, the opposite: −1 bits."),
        (NO, "yes", "in place of its own."),
        (scalar(-0.1, 0.8), "depends", "Without the first position: −0.1 bits, not significant (p = 0.8)."),
    ],
)
def test_a_control_that_turns_the_answer_stands_in_its_sentence_and_every_control_in_the_methods(twin, verdict, words):
    (answer,) = answers(record_of(attention(YES, twin)))
    assert answer.verdict == verdict and words in answer.said and answer.said.startswith(SAID[verdict])
    assert answer.methods == (
        f"Holds without the first position: {'yes' if twin is YES else 'no'} ({twin.cells[0]}, p = {twin.p})."
    )


@pytest.mark.parametrize(("p", "verdict"), [(0.02, "depends"), (0.03, "no")])
def test_a_control_turns_a_no_where_its_p_corrected_over_the_controls_is_significant(p, verdict):
    findings = attention(NO, scalar(1.0, p))
    (control,) = findings.controls["content_sharpening"]
    (answer,) = answers(record_of(replace(findings, controls={"content_sharpening": (control, control)})))
    assert answer.verdict == verdict
    assert ("Without the first position: 1 bits." in answer.sentence) == (verdict == "depends")


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (
            scalar(0.3, 0.07),
            "outside the baseline's range, but p also counts results that lie as far",
        ),
        (scalar(0.25, None), "outside the baseline's range, but its interval reaches into it"),
        (scalar(-0.3, 0.07), "The value lies below the baseline's range; only a larger one would be a “Yes”."),
        (scalar(-0.3, 0.99), "The value lies below the baseline's range; only a larger one would be a “Yes”."),
        (scalar(-0.1, 0.07), ""),
    ],
)
def test_a_number_outside_the_band_of_its_null_that_is_no_different_says_why(number, why):
    (answer,) = answers(record_of(attention(number, NO)))
    assert answer.change.startswith("The value lies ") == bool(why) and why in answer.change
    assert answer.verdict in ("no", "unshown") and "found 80 %" in answer.change


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((0.02, 0.09), "hardly"),
        ((0.02, 0.11), "partly"),
        ((0.2, 0.4), "partly"),
        ((0.7, 0.85), "yes"),
        ((0.97, 1.02), "yes"),
        ((1.3, 1.6), "partly"),
        (None, "yes"),
    ],
)
def test_a_slope_that_misses_that_of_bayes_is_partly_a_yes_and_a_correlation_by_the_same_rule(interval, verdict):
    slope = replace(YES, interval=interval, interval_reason="" if interval else "one prompt")
    (answer,) = answers(record_of(Findings("sula", {"slope": slope}, headline=("slope",))))
    assert answer.verdict == verdict and answer.said.startswith(SAID[verdict])
    order = replace(slope, meaning="Rank correlation of the first axis with entropy.")
    (answer,) = answers(
        record_of(Findings("manifold", {"entropy_correlation": order}, headline=("entropy_correlation",)))
    )
    assert answer.verdict == verdict


@pytest.mark.parametrize(
    ("interval", "verdict"), [((0.02, 0.09), "hardly"), ((0.2, 0.4), "partly"), ((0.7, 0.85), "yes")]
)
def test_a_share_of_variance_is_partly_a_yes_by_the_same_rule_which_is_said(interval, verdict):
    share = replace(YES, unit="fraction", interval=interval, meaning="Share of the variance that a readout explains.")
    rest = (Control("beyond the last token", "r2_beyond_token"),)
    found = {"r2": share, "r2_beyond_token": share, "nuisance_r2": replace(share, value=0.25)}
    findings = Findings("value_axis", found, headline=("r2",), controls={"r2": rest})
    (answer,) = answers(replace(record_of(findings), prompts={"unit": "sequence"}))
    rest = f"the activations explain 1 (interval {share.interval_text})."
    assert answer.verdict == verdict and answer.said.endswith(rest)
    assert "Holds beyond the last token: yes (1" in answer.methods
    assert ("“Partly”: the whole interval lies below 0.8." in answer.change) == (verdict == "partly")
    assert ("“Hardly”: the whole interval lies below 0.1." in answer.change) == (verdict == "hardly")
    assert "Decodable does not mean used" in answer.change


def test_the_evidence_says_why_a_permuted_baseline_is_above_0_and_what_an_undecided_rest_means():
    share = replace(YES, unit="fraction", meaning="Share of the variance that a readout explains.", interval=(0.9, 1.1))
    kept = replace(share, null=Null("refitted on entropies permuted between sequences", 0.3, (0.28, 0.32)))
    rest = (Control("beyond position", "r2_beyond_token"),)
    for number, why in ((kept, " (above 0, because this keeps what position predicts);"), (share, "chance;")):
        found = {"r2": number, "r2_beyond_token": replace(share, interval=(-0.5, 2.5)), "nuisance_r2": share}
        (answer,) = answers(record_of(Findings("value_axis", found, headline=("r2",), controls={"r2": rest})))
        assert why in answer.evidence and ("above 0" in answer.evidence) == (number is kept)
        assert answer.sentence.endswith(
            " 75 prompts are too few to tell whether it holds more than the last token and position. These two alone "
            "explain 1 (interval 0.9 to 1.1; 0 or less is no better than predicting the mean); of what they leave, a "
            "second readout explains 1 (interval −0.5 to 2.5, too wide to tell)."
        )
        assert answer.verdict == "yes" and answer.said.startswith(
            "Yes, but undecided beyond position. A linear readout"
        )


@pytest.mark.parametrize(("value", "verdict"), [(0.02, "no"), (-0.19, "no"), (0.19, "unshown")])
def test_what_would_often_be_missed_is_not_denied(value, verdict):
    """Of this null and interval a difference of 0.243 bits would be found 80 % of the time."""
    (answer,) = answers(record_of(attention(scalar(value, 0.8), NO)))
    assert answer.verdict == verdict and answer.said.startswith(SAID[verdict]) and "0.243 bits" in answer.change


def test_a_number_without_the_first_position_says_so():
    findings = attention(YES, OPPOSITE)
    named = {"content_sharpening_no_first": YES, "twin": OPPOSITE}
    findings = replace(findings, scalars=named, headline=("content_sharpening_no_first",), controls={})
    assert answers(record_of(findings))[0].sentence.startswith(
        "Without the first position, attention entropy is 1 bits"
    )


def test_a_failed_control_leaves_the_answer_open_and_is_named_as_what_would_change_it():
    (answer,) = answers(record_of(attention(YES, NO, essential=True)))
    assert answer.verdict == "unclear" and "does not hold without the first position (0.1 bits" in answer.sentence
    assert "If that control agreed" in answer.change


def test_what_would_change_an_answer_is_said_with_numbers():
    few = replace(YES, underpowered=True, enough=200)
    kinds = (NO, few, replace(few, n=288, n_clusters=48))
    found = [answers(record_of(attention(n, YES)))[0].change for n in kinds]
    assert found == [
        "A value of 0.243 bits or more would be found 80 % of the time. "
        "With more prompts, smaller effects could be found.",
        "More prompts may decide it: 200 are enough.",
        "More clusters may decide it: 200 are enough.",
    ]


def test_neither_p_nor_the_alphabet_orders_answers():
    weak, strong = Findings("value_axis", {"r2": NO}, headline=("r2",)), attention(YES, YES)
    for order in ((weak, strong), (strong, weak)):
        assert [a.headline.probe for a in answers(record_of(*order))] == ["value_axis", "attention_entropy"]


def test_what_cannot_be_told_shares_one_line():
    weak = replace(YES, underpowered=True)
    found = answers(record_of(attention(weak, YES), Findings("value_axis", {"r2": weak}, headline=("r2",))))
    assert settled(found) == () and unclear(found).count("?") == 2 and "\n" not in unclear(found)
    assert unclear(()) == ""


def test_another_target_has_its_name_in_question_and_answer():
    findings = Findings("value_axis", {"r2": YES}, headline=("r2",))
    (usual,) = answers(record_of(findings, target="next_entropy_bits"))
    (other,) = answers(record_of(findings, target="is_true"))
    assert "the model's next-token entropy" in usual.question and "“is_true”" in other.question + other.sentence
    assert "entropy" not in other.question + other.sentence


def test_a_probe_that_declares_nothing_or_is_gone_gives_its_headline_numbers():
    (answer,) = answers(record_of(Findings("gone", {"x": replace(YES, meaning="Bits of it.")}, headline=("x",))))
    assert (answer.question, answer.said) == ("Bits of it", "1 bits, above its null.")


def test_the_sentence_names_the_site_and_the_layer_that_were_read():
    findings = Findings("value_axis", {"r2": YES}, headline=("r2",))
    said = [
        answers(record_of(findings, sites=[site, "q"], layer=layer))[0].sentence
        for site, layer in (("v", -1), ("v", 1), ("v", -2), ("resid", -1), ("resid", 3), ("resid", -2))
    ]
    n = made_record().model["n_layers"]
    assert n > 4
    assert [text.split(" explains")[0].removeprefix("A linear readout of ") for text in said] == [
        "the attention value vectors of the last layer",
        "the attention value vectors of layer 1",
        f"the attention value vectors of layer {n - 2}",
        "the residual stream after the last layer",
        "the residual stream after layer 2",
        f"the residual stream after layer {n - 2}",
    ]


def test_what_an_older_record_lacks_is_left_out_of_its_sentence():
    (answer,) = answers(record_of(Findings("belief", {"r2": YES}, headline=("r2",))))
    assert "explains 1 bits of the variance" in answer.sentence and "alone explain" not in answer.sentence


def test_a_number_of_a_part_of_the_prompts_says_of_how_many():
    found = [answers(replace(record_of(attention(YES, NO)), prompts=read))[0].evidence
             for read in ({"n": 500}, {"n": 75}, {"n": 500, "unit": "sequence"})]  # fmt: skip
    assert [("75 of the 500 prompts" in text, "75 prompts" in text) for text in found] == [
        (True, False), (False, True), (False, True),
    ]  # fmt: skip


def test_a_no_of_a_small_edit_says_what_would_have_been_found():
    """Controls have 1.1 on average; a sentence whose number an older record lacks is left out."""
    beyond = {"kl": scalar(1.0), "kl_beyond_controls": scalar(-0.1, 0.8), "remaining_r2": scalar(0.2),
              "axis_r2": scalar(0.9), "resample_kl": scalar(9.0)}  # fmt: skip
    for known in (beyond, {name: beyond[name] for name in ("kl", "kl_beyond_controls")}):
        (answer,) = answers(record_of(Findings("causal", known, headline=("kl_beyond_controls",))))
        assert answer.verdict == "no" and "matched directions: 1.1 bits on average (0.9 to 1.3 for" in answer.sentence
        assert "A change by 1.34 bits or more would be found 80 % of the time" in answer.sentence
        assert ("a linear readout explains 0.9 bits before the removal and, refitted, 0.2" in answer.methods) == (
            known is beyond
        )
        assert not answer.change


@pytest.mark.parametrize(("random", "verdict"), [(-0.9, "no"), (0.9, "depends")])
def test_a_removal_that_does_less_than_random_ones_is_no_use_either(random, verdict):
    numbers = {"kl": scalar(1.0), "kl_beyond_controls": scalar(-0.1, 0.8), "kl_beyond_random": scalar(random)}
    control = Control("beyond random directions", "kl_beyond_random", essential=False)
    found = Findings("causal", numbers, headline=("kl_beyond_controls",), controls={"kl_beyond_controls": (control,)})
    (answer,) = answers(record_of(found))
    assert answer.verdict == verdict and answer.opening == {"no": "No sign of it.", "depends": "It depends."}[verdict]
    assert answer.sentences[1:2] == ["Compared with random directions: 0.9 bits."] or verdict == "no"


def test_a_tiny_effect_is_given_in_millionths_of_a_bit_with_all_that_it_is_compared_with():
    """What would be found is counted from the controls' mean, as the effect itself is."""
    found = {}
    for scale in (1.0, 1e-6):
        numbers = {"kl": scalar(1.0), "kl_beyond_controls": scalar(-0.1, 0.8), "matched_top_kl": scalar(5.0)}
        numbers["kl_beyond_random"] = scalar(-0.15, 0.9)
        small = {
            name: replace(s, value=scale * s.value, interval=tuple(scale * x for x in s.interval),
                          null=replace(s.null, value=0.0, band=tuple(scale * x for x in s.null.band)))
            for name, s in numbers.items()
        }  # fmt: skip
        random = Control("beyond random directions", "kl_beyond_random", essential=False)
        findings = Findings(
            "causal", small, headline=("kl_beyond_controls",), controls={"kl_beyond_controls": (random,)}
        )
        (answer,) = answers(record_of(findings))
        found[scale] = [answer.sentence, answer.evidence, answer.methods, answer.change]
    assert "by 1 millionths of a bit, no more" in found[1e-6][0] and "by 1.34 bits or more" in found[1.0][0]
    said = [text.replace(" (practically nothing)", "").replace("millionths of a bit", "bits") for text in found[1e-6]]
    assert said == found[1.0]


def test_a_sentence_can_say_what_the_meaning_names_after_its_colon():
    ratio = replace(YES, meaning="Harm of the most harmful head relative to the second: layer 3 head 1.")
    numbers = {"top_head_ratio": ratio, "top_head_effect": YES}
    (answer,) = answers(record_of(Findings("heads", numbers, headline=("top_head_ratio",))))
    assert answer.sentence.endswith("as much as without the next one. The most important is layer 3 head 1.")


@pytest.mark.parametrize("name", PROBES)
def test_every_probe_declares_sentences_that_name_what_they_are_given(name):
    declared: tuple[Sentences, ...] = load_entry("probe", name).sentences
    assert declared, f"{name} says nothing in words"
    for said in declared:
        texts = (said.question, said.yes, said.no, said.opposite, said.rest, said.open, said.further)
        assert said.question.endswith("?") and all(t.endswith(".") for t in texts[1:] if t)
        assert all(t.strip()[0] in "{“" or t.strip()[0].isupper() for t in texts if t.strip()), "whatever it follows"
        fields = {field for text in texts for _, field, _, _ in string.Formatter().parse(text) if field}
        assert ("bits" not in said.yes and fields >= {"value"}) or fields & {*said.numbers, "kl"}, name
    places = [said.order for said in declared]
    assert places == sorted(places)


def test_no_two_probes_ask_at_the_same_place():
    placed = {(said.order, name) for name in PROBES for said in load_entry("probe", name).sentences}
    assert len({order for order, _ in placed}) == len(placed)


@pytest.mark.slow
def test_terminal_notebook_and_page_say_the_same_of_every_probe(tmp_path, capsys):
    record = small_run(tmp_path)
    found = answers(record)
    assert {a.headline.probe for a in found} == set(record.findings) and all(a.verdict != "number" for a in found)
    print_record(record)
    surfaces = (capsys.readouterr().out, parse(record._repr_html_()).text, parse(html(record)).text)
    terminal, *pages = (" ".join(text.split()) for text in surfaces)
    for answer in settled(found):
        assert "–" not in answer.sentence.replace("−", ""), answer.sentence
        assert plain(answer.said) in terminal and all(answer.said in page for page in pages)


def test_no_clause_is_cut_to_nothing_and_symbols_keep_their_case():
    meanings = {
        "removing the axis: KL divergence of the prediction.": "Removing the axis: KL divergence of the prediction",
        "|cos| between PC1 and the ridge axis: near 1, one axis.": "|cos| between PC1 and the ridge axis",
        "KL of the exact posterior from the stream.": "KL of the exact posterior from the stream",
        "": "Out of it",
    }
    for meaning, said in meanings.items():
        assert clause("out_of_it", meaning) == said
