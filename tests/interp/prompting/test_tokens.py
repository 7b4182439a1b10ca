"""Texts as token ids with real tokenizers: the first token, the window, and what is refused."""

import logging
from functools import cache

import numpy as np
import pytest
from tokenizers import normalizers, processors
from transformers import AutoTokenizer

from interp.errors import PromptError
from interp.prompt import Prompt, PromptSet
from tests.tiny_models import prompts_of
from tests.tokenised import of_words, real_tokenizer, tokenise

WITH_BOS = ("tokenizers/mistral-v0.1", "models/stories260K")
WITHOUT_BOS = ("tokenizers/pythia-gpt-neox-20b", "tokenizers/phi-2")
EVERY = (*WITH_BOS, *WITHOUT_BOS)

TEXTS = [
    "The",
    "The cat sat on the mat, and the dog lay down beside it because the",
    "    if x:\n        return y\n    else:\n        return the",
    "Für Élise, 漢字 and\tso on and",
]


loaded = cache(real_tokenizer)


def text_set(*texts):
    return PromptSet("some", [Prompt(text=t) for t in texts])


def word_tokenizer(template=None):
    """A tokenizer of whole words with the template of its own that is asked for."""
    made = of_words("<s>", "</s>", "<unk>", "a", "b", "c", bos_token="<s>", eos_token="</s>")
    if template is not None:
        ends = processors.TemplateProcessing(single=template, special_tokens=[("<s>", 0), ("</s>", 1)])
        made.backend_tokenizer.post_processor = ends
    return made


@pytest.mark.parametrize("folder", EVERY)
@pytest.mark.parametrize("window", [None, 2, 5, 8, 1000])
def test_ids_are_the_tokenizers_own_and_a_window_keeps_the_last_and_the_first_special_one(folder, window):
    tokenizer = loaded(folder)
    tokens = tokenise(text_set(*TEXTS), tokenizer, window=window, max_positions=None)
    n_front = int(folder in WITH_BOS)
    whole = [tokenizer(text)["input_ids"] for text in TEXTS]
    kept = [x if window is None else x[:n_front] + x[n_front:][n_front - window :] for x in whole]
    assert [ids.tolist() for ids in tokens.ids] == kept
    assert tokens.has_bos is bool(n_front) and all(ids.dtype == np.int64 for ids in tokens.ids)
    assert {int(ids[0]) == tokenizer.bos_token_id for ids in tokens.ids} == {tokens.has_bos}
    assert tokens.lengths.tolist() == [len(x) for x in kept]
    assert tokens.n_truncated == sum(len(x) < len(y) for x, y in zip(kept, whole, strict=True))
    assert (tokens.window, tokens.notes) == (window, ())


def test_windows_without_room_and_prompts_too_long_are_refused():
    prompts = text_set("a b c")
    with pytest.raises(PromptError, match="Take at least 2"):
        tokenise(prompts, word_tokenizer("<s> $A"), window=1, max_positions=None)
    assert tokenise(prompts, word_tokenizer(), window=1, max_positions=None).ids[0].tolist() == [5]
    prompts = text_set("a", "a b c a b", "a b c a")
    with pytest.raises(PromptError) as caught:
        tokenise(prompts, word_tokenizer("<s> $A"), window=None, max_positions=4)
    assert str(caught.value) == (
        "prompt 2 of 'some': it has 6 tokens and the model reads at most 4; 2 prompts are too long\n"
        "  Shorten it, or take `--window 4` (the last tokens of each text)."
    )
    assert tokenise(prompts, word_tokenizer("<s> $A"), window=4, max_positions=4).lengths.tolist() == [2, 4, 4]
    assert tokenise(prompts, word_tokenizer("<s> $A"), window=None, max_positions=6).lengths.tolist() == [2, 6, 5]


def test_what_the_tokenizer_adds_or_lacks_is_said():
    tokens = tokenise(text_set("a b", "c"), word_tokenizer("<s> $A </s>"), window=None, max_positions=None)
    assert [ids.tolist() for ids in tokens.ids] == [[0, 3, 4], [0, 5]]
    assert tokens.notes == ("the tokenizer's closing </s> is left off: texts are read at their own last token",)
    tokens = tokenise(text_set("<s> <s> a", "b"), word_tokenizer("<s> $A"), window=None, max_positions=None)
    assert [ids.tolist() for ids in tokens.ids] == [[0, 0, 0, 3], [0, 4]]
    assert tokens.notes == ("1 texts already begin with what the tokenizer puts in front: it stands there twice",)
    tokens = tokenise(text_set("a z", "b", "z z"), word_tokenizer(), window=None, max_positions=None)
    assert tokens.notes == ("2 texts hold characters that this vocabulary lacks: they are read as <unk>",)


def test_a_long_text_draws_no_warning_of_the_tokenizer(caplog):
    long = text_set("word " * 3000 + "the")
    fresh = AutoTokenizer.from_pretrained(loaded("models/stories260K").name_or_path)  # one warns only once
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    level = logger.level
    logger.setLevel(logging.WARNING)  # other libraries turn it down
    try:
        tokenise(long, fresh, window=16, max_positions=512)
        assert caplog.messages == []
        fresh(long.prompts[0].text)
        assert "longer than the specified maximum" in caplog.text
    finally:
        logger.removeHandler(caplog.handler)
        logger.setLevel(level)


def test_token_ids_pass_through_and_the_models_vocabulary_counts():
    prompts = prompts_of((3, 1, 2), (0,))
    for tokenizer in (None, word_tokenizer("<s> $A")):
        tokens = tokenise(prompts, tokenizer, window=None, max_positions=3)
        assert [ids.tolist() for ids in tokens.ids] == [[3, 1, 2], [0]]
        assert tokens.has_bos is False
    beyond = tokenise(prompts_of((6,)), word_tokenizer(), window=None, max_positions=None, vocab_size=7)
    assert beyond.ids[0].tolist() == [6]


@pytest.mark.parametrize(
    "prompts, options, found",
    [
        (prompts_of((3, 6)), {}, "it holds the token id 6; the vocabulary's are 0 to 5"),
        (prompts_of((3, 6)), {"vocab_size": 6}, "it holds the token id 6; the vocabulary's are 0 to 5"),
        (text_set("a c"), {"vocab_size": 5}, "the token id 5; the vocabulary's are 0 to 4"),
        (prompts_of((3, -1)), {}, "it holds the token id -1"),
        (PromptSet("ids", [Prompt(token_ids=())]), {}, "it holds no token"),
        (prompts_of((1, 2, 3)), {"max_positions": 2}, "it has 3 tokens and the model reads at most 2"),
        (prompts_of((1, 2, 3)), {"window": 2}, "its prompts are token ids"),
        (text_set("a", " "), {}, "prompt 2 of 'some': its text ' ' has no token"),
        (text_set("a"), {"tokenizer": None}, "the model came without a tokenizer"),
    ],
)
def test_what_cannot_be_read_is_refused(prompts, options, found):
    with pytest.raises(PromptError, match=found):
        tokenise(prompts, **{"tokenizer": word_tokenizer(), "window": None, "max_positions": None, **options})


def test_texts_that_a_tokenizer_cannot_tell_apart_are_counted():
    tokenizer = of_words("<unk>", "a", "b", eos_token="<unk>")
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    assert tokenizer.decode(tokenizer("A B")["input_ids"]) == "a b"
    prompts = PromptSet("some", [Prompt(text=t) for t in ("A b", "a b", "a  B", "b a", "b a")])
    tokens = tokenise(prompts, tokenizer, window=None, max_positions=None)
    assert tokens.notes == ("2 texts have the same tokens as another text: this tokenizer does not distinguish them",)
    assert tokenise(prompts.take([0, 3, 4]), tokenizer, window=None, max_positions=None).notes == ()
