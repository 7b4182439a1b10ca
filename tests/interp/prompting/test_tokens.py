"""Texts as token ids: the first token, the window, what is refused; and a name for each token, taken back."""

import logging
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import interp
from interp.errors import PromptError
from interp.prompt import Prompt, PromptSet
from interp.prompting.token_names import names_of, token_names
from interp.prompting.tokens import one_token, words_of
from tests.tiny_models import fresh_model, prompts_of
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
    assert tokens.notes == ("1 texts already begin with what the tokenizer puts in front, which is then repeated",)
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
        fresh(long[0].text)
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
        (text_set("a c"), {"vocab_size": 5}, "its tokenizer has 'c' as token 5, and the model embeds 0 to 4"),
        (prompts_of((3, -1)), {}, "it holds the token id -1"),
        (prompts_of((1, 2, 3)), {"max_positions": 2}, "it has 3 tokens and the model reads at most 2"),
        (prompts_of((1, 2, 3)), {"window": 2}, "its prompts are token ids"),
        (text_set("a", " "), {}, "prompt 2 of 'some': its text ' ' has no token"),
        (text_set("a"), {"tokenizer": None}, "the model has no tokenizer"),
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
    assert tokenise(prompts[[0, 3, 4]], tokenizer, window=None, max_positions=None).notes == ()


FIRST = ["<unk>", "<s>"]


def pieces():
    """A vocabulary of SentencePiece: bytes, words with and without their space, a space alone, a literal tab."""
    own = [*FIRST, *(f"<0x{i:02X}>" for i in range(256)), "▁", "▁▁", "a", "▁a", "é", "\t", "▁is", "is", "1", "▁Paris"]
    inner = Tokenizer(models.BPE({piece: i for i, piece in enumerate(own)}, [("▁", "a")], byte_fallback=True))
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0),
    ])  # fmt: skip
    return inner


def bytes_of_gpt2():
    """A vocabulary of bytes with letters of two bytes, whose halves are called like other letters."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    own = [*FIRST, *alphabet, "Ġa", "ĠĠ", "Ã©", "Ãĥ", "Ã¢", "is", "Ġis"]
    inner = Tokenizer(models.BPE({piece: i for i, piece in enumerate(own)}, []))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    inner.add_tokens([AddedToken("  ", normalized=False)])  # as GPT-NeoX has them
    return inner


def words():
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate([*FIRST, "a", "is", "Paris"])}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return inner


def wordpieces():
    own = [*FIRST, "a", "##a", "is", "##is", "paris", "."]
    inner = Tokenizer(models.WordPiece({w: i for i, w in enumerate(own)}, unk_token="<unk>"))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    return inner


MADE = {made.__name__: made for made in (pieces, bytes_of_gpt2, words, wordpieces)}


def tokenizer_of(name):
    if name not in MADE:
        return loaded(name)
    return PreTrainedTokenizerFast(tokenizer_object=MADE[name](), unk_token="<unk>", bos_token="<s>")


@pytest.mark.parametrize("name", [*MADE, *EVERY])
def test_any_two_tokens_of_a_vocabulary_have_different_names(name):
    tokenizer = tokenizer_of(name)
    ids = np.arange(len(tokenizer))
    names = names_of(tokenizer, ids)
    assert len(set(names)) == len(ids) and all(names)
    of = token_names(tokenizer)  # once: some versions count their vocabulary slowly, whenever they are asked
    assert [of[one] for one in names] == ids.tolist()


CALLED = {
    "pieces": {
        "▁is": " is", "is": "is", "▁": " ", "▁▁": "  ", "<0x0A>": "\n", "<0x09>": "<0x09>", "\t": "\t", "a": "a",
        "<0x61>": "<0x61>", "<0xC3>": "<0xC3>", "é": "é", "<s>": "<s>", "▁Paris": " Paris",
    },
    "bytes_of_gpt2": {
        "Ġis": " is", "is": "is", "ĠĠ": "ĠĠ", "  ": "  ", "Ã©": "é", "Ãĥ": "Ã", "Ã¢": "â", "Ċ": "\n", "Ã": "Ã #129",
    },
    "words": {"a": "a", "is": "is", "Paris": "Paris", "<s>": "<s>"},
    "wordpieces": {"is": " is", "##is": "is", "paris": " paris"},
    "tokenizers/mistral-v0.1": {
        "▁is": " is", "is": "is", "▁Paris": " Paris", "1": "1", "<0x0A>": "\n", "<0x41>": "<0x41>",
    },
    "tokenizers/phi-2": {"ĠParis": " Paris", "Paris": "Paris", "Ċ": "\n"},
}  # fmt: skip


@pytest.mark.parametrize("name", CALLED)
def test_a_token_is_called_by_what_it_adds_to_a_text(name):
    tokenizer = tokenizer_of(name)
    ids = tokenizer.convert_tokens_to_ids([*CALLED[name]])
    assert names_of(tokenizer, np.array(ids)) == tuple(CALLED[name].values())
    before = token_names(tokenizer)
    assert [before[called] for called in CALLED[name].values()] == ids
    if name == "pieces":
        tokenizer.add_tokens(["<new>"])
        assert token_names(tokenizer) == before | {"<new>": len(before)}


@pytest.fixture(scope="module")
def model():
    """A model with the tokenizer of pieces; ids beyond its vocabulary are embedded too, as padded models do."""
    return replace(fresh_model("llama", vocab_size=300), tokenizer=tokenizer_of("pieces"))


def test_one_token_takes_the_names_that_tables_show_and_ids(model):
    n = len(model.tokenizer)
    for i, name in enumerate(words_of(model, np.arange(n))):
        assert one_token(model, name) == i
    assert words_of(model, np.array([n])) == (f"#{n}",)


@pytest.mark.parametrize(
    "word, fix",
    [("Paris", "Name ' Paris', which is one."), (" 1", "Name '1', which is one."), ("is a", "with its space in front")],
)
def test_what_is_no_token_is_refused_with_the_nearest_that_is(model, word, fix):
    with pytest.raises(PromptError, match="no token has this name; read as a text it is") as error:
        one_token(model, word)
    assert fix in error.value.fix
    with pytest.raises(PromptError, match=f"'{word}'"):
        interp.logit_attribution(model, ["a a"], answer=word)
