"""SULA as texts: labels of one token, lengths, balance, controls, and what each carries."""

from collections import Counter

import numpy as np
import pytest
from interp.prompts.one_token_labels import as_labels, encode_all, equally_long, find_labels, refuse_merged
from interp.prompts.sula import CARRIERS, CONDITIONS, KS, sula, sula_prompts, taken

from interp.errors import PromptError, UsageError
from interp.prompting.files import needs_tokenizer
from interp.registry import load_entry
from tests.named_prompts import resolve_prompts
from tests.quick import quick
from tests.tokenised import real_tokenizer

FOLDERS = (
    "tokenizers/pythia-gpt-neox-20b", "tokenizers/phi-2", "tokenizers/mistral-v0.1", "models/stories260K",
)  # fmt: skip


@pytest.fixture(scope="module", params=quick(FOLDERS[2:], FOLDERS))
def tokenizer(request):
    return real_tokenizer(request.param)


@pytest.fixture(scope="module")
def prompts(tokenizer):
    return sula_prompts(tokenizer, per_k=24, seed=3)


def column(prompts, name, condition=None):
    return np.array([p.columns[name] for p in prompts if condition in (None, p.columns["condition"])])


def texts(prompts, condition):
    return [p.text for p in prompts if p.columns["condition"] == condition]


def counts_in(text, first, second):
    """How often each label stands behind a colon in the examples."""
    said = [part.split(":")[1].strip(" .") for part in text.split(",")] if ". " in text else []
    said = [word.split(".")[0] for word in said]
    return said.count(first), said.count(second)


def test_every_label_is_the_one_next_token_behind_every_prompt(tokenizer, prompts):
    ids = encode_all(tokenizer, [p.text for p in prompts])
    for i in (0, 1):
        named = [f"{p.text} {p.columns[f'label_{i + 1}']}" for p in prompts]
        for mine, longer, outcome in zip(ids, encode_all(tokenizer, named), prompts.outcome_ids[:, i], strict=True):
            assert longer == [*mine, outcome]


def test_posteriors_and_labels_of_every_prompt_are_what_it_says_in_balance(prompts):
    for p, exact in zip(prompts, prompts.posterior, strict=True):
        n_1, n_2 = counts_in(p.text, p.columns["label_1"], p.columns["label_2"])
        assert (n_1, n_2) == (p.columns["n_1"], p.columns["n_2"]) and n_1 + n_2 == p.columns["k"]
        odds = 9.0 ** (n_1 - n_2)
        np.testing.assert_allclose(exact, [odds / (1 + odds), 1 / (1 + odds)], rtol=1e-10)
        assert p.columns["p_label_1"] == exact[0]
    assert prompts.units["log_odds_bits"] == "bits" and prompts.seed == 3 and "seed 3" in prompts.source
    cells = Counter(
        (p.columns["condition"], p.columns["k"], p.columns["label_1"], p.columns["latent"] == p.columns["label_1"])
        for p in prompts
        if p.columns["condition"] not in ("shuffled",)
    )
    assert set(cells.values()) == {6}


def test_all_conditions_say_what_they_should(prompts):
    main = texts(prompts, "main")
    assert {c: len(texts(prompts, c)) for c in CONDITIONS} == dict.fromkeys(CONDITIONS, 24 * len(KS))
    for name in ("n_1", "n_2", "latent", "problem"):
        for same in ("ablated", "permuted", "padded", "fixed_last"):
            assert (column(prompts, name, same) == column(prompts, name, "main")).all(), (name, same)
    first, second = column(prompts, "label_1", "main"), column(prompts, "label_2", "main")
    other_1, other_2 = column(prompts, "label_1", "remap"), column(prompts, "label_2", "remap")
    assert not {*first, *second} & {*other_1, *other_2}
    for i, (text, other) in enumerate(zip(main, texts(prompts, "remap"), strict=True)):
        there = {first[i]: other_1[i], second[i]: other_2[i]}
        assert " ".join(_replaced(word, there) for word in text.split()) == other
    for text, other in zip(main, texts(prompts, "permuted"), strict=True):
        assert sorted(_items(text)) == sorted(_items(other)) and text.split()[-1] == other.split()[-1]
    assert sum(a != b for a, b in zip(main, texts(prompts, "permuted"), strict=True)) > 40
    assert set(column(prompts, "latent", "shuffled")) == {"none"}
    ablated = {item.split(":")[0] for text in texts(prompts, "ablated") for item in _items(text)}
    assert len(ablated) == 1
    assert len(set(column(prompts, "carrier_last", "main"))) > 5
    assert len(set(column(prompts, "carrier_last", "fixed_last"))) == 1


def _items(text):
    return text.replace(". ", ", ").split(", ")


def _replaced(word, there):
    bare = word.strip(",.")
    return there[bare] + word[len(bare) :] if bare in there else word


def test_length_tells_k_and_nothing_else_and_is_fixed_where_padded(tokenizer, prompts):
    lengths = np.array([len(ids) for ids in encode_all(tokenizer, [p.text for p in prompts])])
    condition, k = column(prompts, "condition"), column(prompts, "k")
    for name in CONDITIONS:
        by_k = [set(lengths[(condition == name) & (k == n)]) for n in KS]
        assert all(len(found) == 1 for found in by_k), name
        assert (len(set.union(*by_k)) == 1) == (name == "padded")
    assert set(lengths[condition == "padded"]) == set(lengths[(condition == "main") & (k == 8)])
    last = {ids[-1] for ids in encode_all(tokenizer, [p.text for p in prompts])}
    assert len(last) == 1


def test_reliability_carriers_and_shuffled_labels_are_those_asked_for(tokenizer):
    prompts = sula_prompts(tokenizer, per_k=200, conditions=("shuffled",))
    for k, expected in ((2, 0.547), (4, 0.423), (8, 0.316)):
        entropy = column(prompts, "bayes_entropy_bits")[column(prompts, "k") == k]
        assert entropy.mean() == pytest.approx(expected, abs=4 * entropy.std() / np.sqrt(200))
    n_1, k = column(prompts, "n_1").sum(), column(prompts, "k").sum()
    assert n_1 / k == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(k))
    prompts = sula_prompts(tokenizer, per_k=3, ks=(3, 5), reliability=0.7, carriers="mood", conditions=("main",))
    assert set(column(prompts, "k")) == {3, 5}
    odds = (0.7 / 0.3) ** (column(prompts, "n_1") - column(prompts, "n_2"))
    np.testing.assert_allclose(prompts.posterior[:, 0], odds / (1 + odds))
    assert set(column(prompts, "carrier_last")) <= set(CARRIERS["mood"].split())


def test_a_seed_repeats_and_a_smaller_pool_keeps_whole_problems(tokenizer, prompts):
    one, again, other = (sula_prompts(tokenizer, per_k=4, seed=s) for s in (1, 1, 2))
    assert one.content_hash == again.content_hash != other.content_hash
    # leaving conditions out changes none of the others
    alone = sula_prompts(tokenizer, per_k=4, seed=1, conditions=("padded",))
    assert texts(alone, "padded") == texts(one, "padded")
    for n in (1, 70, 75, len(prompts)):
        drawn = taken(prompts, n, seed=5)
        assert len(drawn) == len(drawn.posterior) == len(drawn.outcome_ids) == n
        rows = Counter(p.columns["problem"] for p in drawn)
        assert sorted(rows.values())[1:] == [7] * (len(rows) - 1)
        np.testing.assert_allclose(drawn.posterior[:, 0], column(drawn, "p_label_1"))
    by_k = Counter(p.columns["k"] for p in taken(prompts, 70, seed=0))
    assert set(by_k.values()) == {14}


@pytest.mark.parametrize("is_whole", quick([False], [False, True]))
def test_the_registered_sets(is_whole):
    tokenizer = real_tokenizer(FOLDERS[0])
    assert needs_tokenizer(sula) and load_entry("prompt", "sula") == sula
    if is_whole:
        assert len(resolve_prompts("sula", tokenizer=tokenizer)) == 7 * 250
    assert len(resolve_prompts("sula", n_pool=30, tokenizer=tokenizer)) == 30
    for n in (2000, 0):
        with pytest.raises(PromptError, match="prompts of 'sula': it has"):
            sula(n_pool=n, tokenizer=tokenizer)


def test_without_a_tokenizer_the_set_is_refused():
    with pytest.raises(PromptError, match="made for a tokenizer"):
        resolve_prompts("sula", tokenizer=None)


def test_labels_and_words_that_are_impossible_are_refused(tokenizer):
    with pytest.raises(PromptError, match="the label 'incomprehensibility': it is not one token"):
        as_labels(tokenizer, ["incomprehensibility"])
    word = find_labels(tokenizer, 1)[0].word
    with pytest.raises(PromptError, match="two of them are the same token"):
        as_labels(tokenizer, [word, word])
    with pytest.raises(PromptError, match="two pairs and a neutral label"):
        sula_prompts(tokenizer, labels=[(word, word)])
    (label,) = find_labels(tokenizer, 1)
    with pytest.raises(PromptError, match="not the one next token"):
        refuse_merged(tokenizer, [f"stone: {label.word}, paper: z"], [(label, type(label)(label.word + "q", 0))])
    with pytest.raises(UsageError, match="there is no condition"):
        sula_prompts(tokenizer, conditions=("mian",))
    with pytest.raises(UsageError, match="list of carriers"):
        sula_prompts(tokenizer, carriers="moods")
    with pytest.raises(PromptError, match="equally long"):
        equally_long(tokenizer, ["stone", "stone", "stone"])
    few = equally_long(tokenizer, CARRIERS["neutral"].split())[:3]
    assert equally_long(tokenizer, few) == few, "two that vary, and one to mask the others with"
    with pytest.raises(PromptError, match="2 of them are equally long"):
        equally_long(tokenizer, few[:2])


def test_labels_are_found_in_a_vocabulary_or_given(word_tokenizer, tokenizer):
    assert [label.word for label in find_labels(word_tokenizer, 2)] == ["w10", "w11"]
    with pytest.raises(PromptError, match="1000 labels of one token each"):
        find_labels(word_tokenizer, 1000)
    a, b, c, d, e = (label.word for label in find_labels(tokenizer, 5))
    prompts = sula_prompts(tokenizer, per_k=4, labels=[(e, d), (c, b)], neutral=a)
    assert set(column(prompts, "label_1", "main")) == {d, e} and set(column(prompts, "label_1", "remap")) == {b, c}
    assert f": {a}" in texts(prompts, "padded")[0]
    found = sula_prompts(tokenizer, per_k=4, neutral=a)
    assert {*column(found, "label_1"), *column(found, "label_2")} == {b, c, d, e}, "none of them is the neutral one"
