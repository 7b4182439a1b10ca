"""A closing template and unequal lengths are no content: where attention depends on token and position alone."""

import numpy as np
import pytest
import torch
from interp.probes.attention_entropy.probe import AttentionEntropy
from interp.probes.qk_alignment.probe import QKAlignment
from transformers import LlamaConfig, LlamaForCausalLM

import interp

N_WORLDS, N_PROMPTS, CLOSING = 30, 150, (3, 4, 5, 6)


def world(seed: int) -> dict[str, interp.Scalar]:
    """One layer; texts of 5 to 39 random tokens, then four tokens that all share, to which the last of them attends."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=60, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    module = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        attention = module.model.layers[0].self_attn
        attention.k_proj.weight.normal_(std=0.25)
        attention.q_proj.weight.copy_(attention.k_proj.weight.reshape(2, 8, 32).repeat_interleave(2, 0).reshape(32, 32))
        module.model.embed_tokens.weight[list(CLOSING)] += module.model.embed_tokens.weight[3]
    rng = np.random.default_rng(seed)
    ids = [(*rng.integers(7, 60, rng.integers(5, 40)).tolist(), *CLOSING) for _ in range(N_PROMPTS)]
    prompts = interp.PromptSet("closing", [interp.Prompt(token_ids=x) for x in ids], cluster="none")
    model = interp.load(module, check=False)
    probes = (AttentionEntropy(n_bootstrap=99, n_permutations=199), QKAlignment(n_bootstrap=99, n_permutations=199))
    read = interp.collect(model, prompts, [need for probe in probes for need in probe.needs])
    found = [probe.analyse(read, {}) for probe in probes]
    return {name: each[name] for each in found for name in ("content_sharpening", "logit") if name in each.scalars}


@pytest.mark.slow
def test_what_a_closing_template_and_length_do_is_not_called_content() -> None:
    worlds = [world(seed) for seed in range(N_WORLDS)]
    for name in ("content_sharpening", "logit"):
        called = sum(found[name].standing() in ("above", "below") for found in worlds)
        judged = sum(found[name].standing() != "unjudged" for found in worlds)
        assert judged == N_WORLDS and called <= 2, (name, called)
    assert 0.6 * N_PROMPTS < (worlds[0]["logit"].n or 0) < N_PROMPTS
