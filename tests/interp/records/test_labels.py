"""What numbers are called in figures and tables: in words, those of the shipped probes by the file of names."""

import tomllib

from interp.records.labels import change_in_words, in_both, in_row, label, value_in_words
from interp.registry import entries, load_entry
from tests.paths import ROOT


def test_every_number_has_a_name_of_its_own():
    assert label("attention_entropy", "sink_mass", "any meaning") == "attention to the first position"
    said = label("qk_alignment", "logit_no_first", "")
    assert (
        said == "lead of attended keys over others, minus that with another prompt's keys, without the first position"
    )
    assert label("mine", "length", "Mean length of the values: longer is more.") == "Mean length of the values"
    assert label("mine", "mean_length", "") == "Mean length" and label("mine", "r2", "") == "r2"
    named = tomllib.loads((ROOT / "interp" / "records" / "names.toml").read_text(encoding="utf-8"))
    known = {*entries("probe"), *entries("study"), "tunnel"}
    spoken = {**named.pop("verbs"), **named.pop("comparatives")}
    assert set(named) <= known and all(name.split(".")[1] in named[name.split(".")[0]] for name in spoken)
    for probe, names in named.items():
        assert len(set(names.values())) == len(names), probe


def test_a_number_of_another_target_does_not_bear_the_name_of_the_usual_one():
    for probe, name in (("value_axis", "pc1_correlation"), ("value_axis", "r2"), ("manifold", "curve_order")):
        quantity = load_entry("probe", probe).quantities[name]
        usual, *others = (
            label(probe, name, quantity.filled(target=target).in_words(quantity.meaning))
            for target in ("the next-token entropy", "“rating”", "“words”")
        )
        assert usual == label(probe, name, "") and "“rating”" in others[0] and "“words”" in others[1]
    exact = "Rank correlation of the entropy of the exact posterior with PC1."
    assert label("value_axis", "pc1_correlation", exact) == exact[:-1]


def test_a_verb_says_the_sign_of_a_share():
    name = ("attention_entropy", "reduction_no_first")
    of = "attention entropy from the first to the last layer, without the first position"
    assert in_both(*name, "", ("a", 0.217), ("b", -0.567)) == f"{of}, falls by 21.7 % in a and rises by 56.7 % in b"
    assert in_row(*name, "", "1") == of and value_in_words(*name, -0.567) == "rises by 56.7 %"
    assert change_in_words(*name, -0.784, -0.899, 0.1) == ("78.4 points", "−10 to 89.9"), "more of a rise"
    assert value_in_words("attention_entropy", "reduction_no_first_all_positions", -0.5) == "rises by 50 %"
    assert in_row("mine", "r2", "", "bits") == "r2 (bits)" and value_in_words("mine", "r2", 0.217) == "0.217"
    assert change_in_words("mine", "r2", 0.784, 0.7, 0.8) == ("0.784", "0.7 to 0.8")


def test_a_comparison_says_which_of_two_models_has_more():
    assert in_both("mine", "r2", "", ("a", 0.217), ("b", 0.5)) == "r2 is lower in a (0.217) than in b (0.5)"
    said = in_both("components", "lens_kl_trend", "", ("a", 0.5), ("b", -0.9))
    assert "is higher in a (0.5) than in b (0.4)" in in_both("components", "lens_kl_trend", "", ("a", 0.5), ("b", 0.4))
    less = "with depth, the prediction nears its final form less steadily"
    assert said == f"{less} in a (0.5) than in b (−0.9), where −1 is nearer at every layer and 0 no trend"


def test_every_headline_number_that_a_probe_declares_has_a_name():
    named = tomllib.loads((ROOT / "interp" / "records" / "names.toml").read_text(encoding="utf-8"))
    lacking = [
        f"{probe}.{name}"
        for probe in entries("probe")
        for name, of in load_entry("probe", probe).quantities.items()
        if of.is_headline
        and "{" not in name  # those of a target that a user names have their meaning
        and name.replace("_no_first", "").removesuffix("_all_positions") not in named.get(probe, {})
    ]
    assert lacking == []
