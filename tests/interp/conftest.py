"""A text model small enough for every test: bytes as tokens, random weights."""

from dataclasses import replace

import pytest


@pytest.fixture(scope="session")
def tiny_text_model():
    """A random Llama that reads bytes, 64 of them at most."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from tests.tiny_models import fresh_model

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner)
    model = fresh_model("llama", vocab_size=256, max_position_embeddings=64)
    return replace(model, tokenizer=tokenizer, info=replace(model.info, max_positions=64))
