"""Names of tokens: one for each token of a vocabulary, by what it adds to a text, taken back by `one_token`."""

import dataclasses

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import interp
from interp.errors import PromptError
from interp.prompting.token_names import names_of, token_names
from interp.prompting.tokens import one_token, words_of
from tests.interp.prompting.test_tokens import EVERY, loaded
from tests.tiny_models import fresh_model

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


@pytest.mark.parametrize("name", EVERY)
def test_the_names_of_a_text_are_the_text(name):
    tokenizer = tokenizer_of(name)
    text = "The cat is on 1 mat.\n\nIs it? It's so, and (is) here"
    ids = np.array(tokenizer(text, add_special_tokens=False)["input_ids"])
    assert "".join(names_of(tokenizer, ids)).removeprefix(" ") == text


@pytest.fixture(scope="module")
def model():
    """A model with the tokenizer of pieces; ids beyond its vocabulary are embedded too, as padded models do."""
    return dataclasses.replace(fresh_model("llama", vocab_size=300), tokenizer=tokenizer_of("pieces"))


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
