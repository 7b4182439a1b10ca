"""What numbers are called in figures and tables: in words, those of the shipped probes by the file of names."""

import tomllib

from interp.records.labels import label, subject, value_in_words
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
    signs = {name: words for name, words in named.pop("verbs").items() if len(words) == 3}
    assert set(named) <= known and all(name.split(".")[1] in named[name.split(".")[0]] for name in signs)
    for probe, names in named.items():
        assert len(set(names.values())) == len(names), probe


def test_a_verb_says_the_sign_of_a_share():
    name = ("attention_entropy", "reduction_no_first")
    assert subject(*name, "") == "attention entropy from the first to the last layer, without the first position,"
    assert [value_in_words(*name, x) for x in (0.217, -0.567)] == ["falls by 22 %", "rises by 57 %"]
    assert subject("mine", "r2", "") == "r2," and value_in_words("mine", "r2", 0.217) == "0.217"


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
