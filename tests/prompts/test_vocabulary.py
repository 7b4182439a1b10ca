"""The vocabulary set: one token of difference between any two prompts, in every tokenizer it was made for."""

from collections import Counter

import numpy as np
import pytest
from interp.probes.measures.token_cosines import no_token_sets
from interp.prompts.vocabulary import vocabulary

from interp.loading.load import load
from interp.need import Need
from interp.prompt import Prompt, PromptSet
from interp.running.collect import collect
from tests.quick import quick
from tests.tokenised import real_tokenizer, tokenise

TOKENIZERS = ("pythia-gpt-neox-20b", "phi-2", "mistral-v0.1")


def words(prompts):
    return [p.columns["word"] for p in prompts]


def categories(prompts):
    return Counter(p.columns["category"] for p in prompts)


def last_tokens_differ_alone(prompts, tokenizer):
    """The ids of the words, where all prompts are one sequence of tokens but for the last; None where they are not."""
    tokens = tokenise(prompts, tokenizer, window=None, max_positions=2048)
    if len(set(tokens.lengths.tolist())) > 1 or len({tuple(ids[:-1].tolist()) for ids in tokens.ids}) > 1:
        return None
    return [int(ids[-1]) for ids in tokens.ids]


def test_a_smaller_pool_keeps_shares_of_words_behind_one_prefix():
    prompts = vocabulary()
    assert len(prompts) >= 300
    assert len(set(words(prompts))) == len(prompts)
    assert set(categories(prompts)) >= {"animals", "tools", "colours", "verbs", "numbers", "function"}
    assert len(categories(prompts)) == 10 and min(categories(prompts).values()) >= 24
    assert prompts.units == {"word": "label", "category": "label"}
    assert prompts.window is None and prompts.seed is None
    assert str(len(prompts)) in prompts.source
    assert {p.text.removesuffix(p.columns["word"]) for p in vocabulary()} == {"The next word on the page is "}
    one, again, other = (vocabulary(n_pool=50, seed=s) for s in (1, 1, 2))
    assert one.content_hash == again.content_hash != other.content_hash
    assert set(words(one)) < set(words(vocabulary(n_pool=120, seed=1)))
    assert one.seed == 1 and one.source.startswith("50 (drawn with seed 1, categories in proportion) of ")
    seen = {word for seed in range(100) for word in words(vocabulary(n_pool=30, seed=seed))}
    assert len(seen) > 0.95 * len(vocabulary())


@pytest.mark.parametrize("folder", quick(TOKENIZERS[:1], TOKENIZERS))
def test_every_word_is_one_token_with_its_space_at_one_position(folder):
    tokenizer = real_tokenizer(f"tokenizers/{folder}")
    prompts = vocabulary()
    ids = last_tokens_differ_alone(prompts, tokenizer)
    assert ids is not None and len(set(ids)) == len(prompts)
    shown = tokenizer.convert_ids_to_tokens(ids)
    assert [t[1:] for t in shown] == words(prompts)
    assert {t[0] for t in shown} <= {"Ġ", "▁"}
    longer = Prompt(text="The next word on the page is turquoise", columns={"word": "turquoise", "category": "colours"})
    spoilt = PromptSet("spoilt", [*prompts, longer], prompts.units)
    assert last_tokens_differ_alone(spoilt, tokenizer) is None


@pytest.mark.slow
def test_keys_before_rotary_at_layer_zero_differ_by_the_token_alone(hub_cache, use_cache):
    use_cache(hub_cache)
    model = load("pythia-410m")
    prompts = vocabulary(n_pool=30)
    another = [f"Somebody once wrote down one short word: {word}" for word in words(prompts)]
    captures = [collect(model, texts, ["k_pre"]) for texts in (prompts, another)]
    assert [no_token_sets(capture) for capture in captures] == ["", ""]
    mine, theirs = (capture[Need("k_pre")] for capture in captures)
    assert np.allclose(mine[0], theirs[0], atol=1e-5)
    assert len(np.unique(mine[0].reshape(30, -1).round(4), axis=0)) == 30
    assert not np.allclose(mine[1], theirs[1], atol=1e-3)


@pytest.mark.parametrize("n", [1, 10, 37, 100, 250])
def test_a_smaller_pool_keeps_the_shares_of_the_categories(n):
    whole = vocabulary()
    drawn = vocabulary(n_pool=n, seed=3)
    assert len(set(words(drawn))) == len(drawn) == n
    for category, size in categories(whole).items():
        assert abs(categories(drawn)[category] - n * size / len(whole)) <= 1, category
    assert words(drawn) == [w for w in words(whole) if w in set(words(drawn))]
