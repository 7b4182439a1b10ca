"""Tokenizers of whole words, and prompts as a tokenizer alone reads them, whatever model there is."""

from dataclasses import replace

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from interp.prompting.tokens import as_tokens
from tests.paths import SHARED
from tests.tiny_models import tiny_model


def real_tokenizer(folder):
    path = SHARED / folder
    if not (path / "tokenizer.json").is_file():
        pytest.skip(f"the real tokenizer shared/{folder} is not on this machine")
    return AutoTokenizer.from_pretrained(path)


def tokenise(prompts, tokenizer, *, window, max_positions, vocab_size=None):
    """What a model with this tokenizer would read; without a window all tokens."""
    vocab_size = vocab_size or (1 << 40 if tokenizer is None else len(tokenizer))
    model = tiny_model("llama")
    info = replace(model.info, max_positions=max_positions, vocab_size=vocab_size)
    return as_tokens(replace(model, tokenizer=tokenizer, info=info), prompts, (), window or 0)


def of_words(*words, **special):
    """A tokenizer of these words between spaces, `<unk>` among them; special tokens and a chat template by name."""
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", **special)
