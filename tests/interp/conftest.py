"""Models small enough for every test, with random weights: one that reads bytes, and one of a hub with revisions."""

from dataclasses import replace

import pytest


@pytest.fixture(scope="session")
def tunnel():
    """The shipped model; tests must leave it as it is."""
    import interp

    return interp.load("tunnel:bijection-gpt-neox")


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


@pytest.fixture(scope="session")
def revisions(tmp_path_factory, word_tokenizer):
    """A hub cache of one repository whose `main` is its last step."""
    import torch

    from interp.loading.quiet_libraries import quiet_libraries
    from tests.gguf_files import original, written
    from tests.hub_cache import lay_out
    from tests.tiny_models import fresh_model

    home = tmp_path_factory.mktemp("revisions")
    for ref, seed in (("step1", 1), ("step64", 2), ("step1000", 3), ("main", 3), ("early-bird", 4)):
        folder = home / f"files-{ref}"
        model = fresh_model("gpt_neox")
        torch.manual_seed(seed)
        with torch.no_grad():
            for p in model.module.parameters():
                p.add_(0.1 * torch.randn_like(p))
        with quiet_libraries():
            model.module.save_pretrained(folder)
            word_tokenizer.save_pretrained(folder)
        written(folder / "tiny.gguf", original())
        lay_out(folder, "EleutherAI/pythia-70m", home / "hub", ref)
    return home / "hub"
