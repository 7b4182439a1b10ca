"""The prompt pool: counts, matched last words, balanced predictability, and how little the prompts share."""

import re
from collections import Counter, defaultdict
from functools import cache

import numpy as np
import pytest
from interp.prompts import pool

from interp.errors import PromptError
from interp.registry import entries, load_entry
from tests.named_prompts import resolve_prompts
from tests.quick import quick
from tests.tokenised import real_tokenizer, tokenise

DOMAINS = {"mathematics", "code", "philosophy", "general", "fiction", "prose"}
SETS = {"mixed", "same-last-token", *DOMAINS}

LAST_WORDS = {
    "determiner": "the a an this that its his her their our your my each every some any no",
    "preposition": "of in on to with for by from at into over under between through about against during without "
    "toward across upon within after",
    "auxiliary": "is are was were be been has have had can could will would may might must should does did do not",
    "conjunction": "and or but because if when while although since unless whereas whether that which who than so as",
}
OTHER_FUNCTION_WORDS = (
    "these those all both either neither towards before off up down out being having shall whom whose what "
    "where why how nor though until i you he she it we they me him us them one there here then"
)
FUNCTION_WORDS = set(" ".join([*LAST_WORDS.values(), OTHER_FUNCTION_WORDS]).split())
LONGEST_SHARED_RUN = 6
FRAME_SHARE = 0.05


def words(text):
    """Lower-case words without punctuation; an apostrophe inside a word stays."""
    return re.findall(r"[^\W_]+(?:['’][^\W_]+)*", text.lower())


def shared_runs(texts, n):
    """Runs of `n` consecutive words that more than one text has, with the numbers of those texts."""
    owners = defaultdict(set)
    for number, text in enumerate(texts):
        w = words(text)
        for start in range(len(w) - n + 1):
            owners[tuple(w[start : start + n])].add(number)
    return {" ".join(run): sorted(numbers) for run, numbers in owners.items() if len(numbers) > 1}


def opening(text):
    return tuple(words(text)[:2])


def ending(text):
    return tuple(words(text)[-3:])


def skeleton(text):
    """The first eight words with content words blanked; None with fewer than two function words, which fix nothing."""
    kept = [w if w in FUNCTION_WORDS else "_" for w in words(text)[:8]]
    return tuple(kept) if sum(w != "_" for w in kept) >= 2 else None


def commonest_frame(texts, frame):
    """The most frequent frame and the share of the texts that have it."""
    counts = Counter(f for f in map(frame, texts) if f is not None)
    found, n = counts.most_common(1)[0]
    return found, n / len(texts)


def class_agrees(text, last_class):
    """Whether a text ends in a word (or comma) of the class it is filed under."""
    if last_class == "comma":
        return re.search(r"\w,$", text) is not None
    last = re.search(r"[^\W_]+$", text)
    if last is None:
        return False
    listed = {name for name, listing in LAST_WORDS.items() if last[0].lower() in listing.split()}
    return last_class in listed if listed else last_class == "content"


@cache
def everything():
    return load_entry("prompt", "mixed")()


def counted(prompts, *columns):
    return Counter(tuple(p.columns[c] for c in columns) for p in prompts)


def test_every_set_is_registered_and_every_domain_has_its_own():
    assert set(entries("prompt")) >= SETS
    for name in SETS:
        prompts = load_entry("prompt", name)()
        assert prompts.name == name
        assert prompts.units == dict.fromkeys(("domain", "last_class", "predictability"), "label")
        assert prompts.window == 32 and prompts.is_text and prompts.seed is None
        assert str(len(prompts)) in prompts.source
    for domain in DOMAINS:
        prompts = load_entry("prompt", domain)()
        assert [p.text for p in prompts] == [p.text for p in everything() if p.columns["domain"] == domain]


def test_the_pool_is_balanced_in_domains_last_classes_and_predictability():
    cells = counted(everything(), "domain", "last_class")
    assert len(everything()) == 1008
    assert {domain for domain, _ in cells} == DOMAINS
    assert {last_class for _, last_class in cells} == {*LAST_WORDS, "comma", "content"}
    assert set(cells.values()) == {28}
    cells = counted(everything(), "domain", "last_class", "predictability")
    assert len(cells) == 6 * 6 * 3
    assert set(cells.values()) <= {9, 10}
    totals = counted(everything(), "predictability")
    assert set(totals) == {("high",), ("medium",), ("low",)}
    assert max(totals.values()) - min(totals.values()) <= 18


def test_the_stated_class_is_that_of_the_last_word():
    assert [p.text[-30:] for p in everything() if not class_agrees(p.text, p.columns["last_class"])] == []
    assert not class_agrees("they had still", "auxiliary")
    assert not class_agrees("and so on,", "content") and not class_agrees("the", "content")
    assert class_agrees("SELECT x FROM", "preposition") and class_agrees("they had still", "content")


def test_texts_are_clean_and_share_no_more_than_six_consecutive_words():
    for p in everything():
        assert p.text == p.text.strip()
        assert not [c for c in p.text if ord(c) < 32 and c not in "\n\t"], p.text
        assert 32 <= len(p.text.split()) <= 70, p.text
    assert len({p.text for p in everything()}) == len(everything())
    assert shared_runs([p.text for p in everything()], LONGEST_SHARED_RUN + 1) == {}
    texts = ["One two, three four five six SEVEN eight", "zero; one two three-four five six seven", "one two three"]
    assert shared_runs(texts, 7) == {"one two three four five six seven": [0, 1]}
    assert shared_runs(texts, 8) == {}
    assert shared_runs(["a b c d e f g a b c d e f g"], 7) == {}


@pytest.mark.parametrize("frame", [opening, ending, skeleton])
@pytest.mark.parametrize("domain", ["mixed", *sorted(DOMAINS)])
def test_at_most_one_in_twenty_comes_from_one_frame(domain, frame):
    found, share = commonest_frame([p.text for p in load_entry("prompt", domain)()], frame)
    assert share <= FRAME_SHARE, found


def test_frames_are_seen_and_the_same_last_token_ends_every_domain():
    series = [f"The capital of {land} is the old city of" for land in ("Peru", "Chad", "Fiji")]
    assert commonest_frame(series, opening) == (("the", "capital"), 1.0)
    assert commonest_frame(series, ending) == (("old", "city", "of"), 1.0)
    found, share = commonest_frame([*series, "Nobody came to see him off at all"], skeleton)
    assert found == ("the", "_", "of", "_", "is", "the", "_", "_") and share == 0.75
    assert skeleton("red green blue yellow black white pink grey") is None
    prompts = load_entry("prompt", "same-last-token")()
    assert {p.text[-4:] for p in prompts} == {" the"}
    assert counted(prompts, "domain") == dict.fromkeys([(d,) for d in DOMAINS], 22)
    assert counted(prompts, "last_class") == {("determiner",): 132}


@pytest.mark.parametrize("n", [1, 5, 6, 36, 37, 75, 100, 450, 1000, 1008])
def test_a_smaller_pool_keeps_domains_classes_and_levels_balanced(n):
    drawn = resolve_prompts("mixed", n_pool=n, seed=4)
    assert len({p.text for p in drawn}) == len(drawn) == n
    for columns, n_kinds in ((("domain",), 6), (("last_class",), 6), (("domain", "last_class"), 36)):
        counts = counted(drawn, *columns)
        assert max(counts.values()) - (min(counts.values()) if len(counts) == n_kinds else 0) <= 1, columns
    if n >= 36:
        levels = counted(drawn, "predictability").values()
        assert max(levels) - min(levels) <= 0.06 * n


def test_a_smaller_pool_is_a_balanced_part_and_depends_on_its_seed_alone():
    drawn = resolve_prompts("mixed", n_pool=108, seed=2)
    assert set(counted(drawn, "domain", "last_class", "predictability").values()) == {1}
    assert len(counted(drawn, "domain", "last_class", "predictability")) == 108
    drawn = {n: [p.text for p in resolve_prompts("mixed", n_pool=n, seed=1)] for n in (40, 200, 700)}
    assert set(drawn[40]) < set(drawn[200]) < set(drawn[700])
    whole = [p.text for p in everything()]
    assert drawn[200] == [text for text in whole if text in set(drawn[200])]
    one, again, other = (resolve_prompts("code", n_pool=60, seed=s) for s in (1, 1, 2))
    assert one.content_hash == again.content_hash != other.content_hash
    assert one.seed == 1 and one.source.startswith("60 (drawn with seed 1, balanced) of 168 prompts")
    assert set(counted(one, "last_class").values()) == {10}


def test_unequal_cells_give_their_share_by_largest_remainder():
    chosen = [p for p in everything() if p.columns["domain"] == "code" and p.columns["last_class"] != "comma"]
    chosen += [p for p in everything() if p.columns["domain"] == "fiction"][:14]
    index = pool.balanced(chosen, 20, np.random.default_rng(0))
    sizes = counted(chosen, "domain", "last_class")
    counts = counted([chosen[i] for i in index], "domain", "last_class")
    assert index.tolist() == sorted(set(index.tolist())) and len(index) == 20
    quota = {cell: 20 * size / len(chosen) for cell, size in sizes.items()}
    assert all(int(quota[cell]) <= counts[cell] <= int(quota[cell]) + 1 for cell in quota)
    remainders = {cell: quota[cell] % 1 for cell in quota}
    rounded_up = {cell for cell in quota if counts[cell] > int(quota[cell])}
    assert min(remainders[c] for c in rounded_up) >= max(remainders[c] for c in quota.keys() - rounded_up)


@pytest.mark.parametrize(("name", "n", "size"), [
    ("same-last-token", 0, 132), ("same-last-token", -1, 132), ("same-last-token", 133, 132), ("vocabulary", 10_000, 3),
])  # fmt: skip
def test_a_pool_of_a_size_that_is_not_there_is_refused(name, n, size):
    with pytest.raises(PromptError, match=f"{n} prompts of '{name}': it has {size}"):
        load_entry("prompt", name)(n_pool=n)


TOKENIZERS = ["pythia-gpt-neox-20b", "phi-2", "mistral-v0.1"]


@pytest.mark.parametrize("folder", quick(["mistral-v0.1"], TOKENIZERS))
def test_a_window_of_real_tokens_lies_inside_every_prompt_and_ends_in_its_last_word(folder):
    tokenizer = real_tokenizer(f"tokenizers/{folder}")
    prompts = everything()
    tokens = tokenise(prompts, tokenizer, window=prompts.window, max_positions=2048)
    assert set(tokens.lengths.tolist()) == {32}
    assert len({tuple(ids.tolist()) for ids in tokens.ids}) == len(prompts)
    for prompt, ids in zip(prompts, tokens.ids, strict=True):
        last, last_class = tokenizer.decode(ids[-1:].tolist()), prompt.columns["last_class"]
        if last_class == "comma":
            assert last == ",", prompt.text
        elif last_class != "content":
            assert last.strip() == re.split(r"[\s`]", prompt.text)[-1], prompt.text
    the = tokenise(load_entry("prompt", "same-last-token")(), tokenizer, window=32, max_positions=2048)
    assert len({int(ids[-1]) for ids in the.ids}) == 1


@pytest.mark.parametrize("n", [60, 120, 240])
def test_a_smaller_pool_prefers_last_words_that_recur(n):
    def n_recurring(prompts):
        last = [re.findall(r"\w+|\S", p.text)[-1] for p in prompts]
        return sum(last.count(word) > 1 for word in last)

    whole = list(everything())
    at_random = [np.random.default_rng(seed).permutation(len(whole))[:n] for seed in range(8)]
    drawn = np.mean([n_recurring(resolve_prompts("mixed", n_pool=n, seed=seed)) for seed in range(8)])
    assert drawn > 1.04 * np.mean([n_recurring([whole[i] for i in rows]) for rows in at_random])
