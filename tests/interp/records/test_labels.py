"""What numbers are called in figures and tables: in words, those of the shipped probes by the file of names."""

import tomllib

from interp.records.labels import label
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
    assert set(named) <= known
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
