"""A tiny random Llama written as a GGUF file, as llama.cpp's converter would."""

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

WORDS = ["<s>", "</s>", "<unk>", *(chr(i) for i in range(ord("a"), ord("z") + 1)), "Ġ", "ab", "Ġa"]
LAYERS, HEADS, KV_HEADS, WIDTH, INNER = 2, 4, 2, 64, 96


def original() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, max_position_embeddings=64, initializer_range=0.2,
        tie_word_embeddings=False, bos_token_id=0, eos_token_id=1, rms_norm_eps=1e-6,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def interleaved(weight: np.ndarray, n_heads: int) -> np.ndarray:
    """The rows of a projection in the order of llama.cpp, whose rotary embedding turns neighbours."""
    return weight.reshape(n_heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def written(path, model, kind=None, add=lambda out: None):
    """The model as a GGUF file, its matrices in the quantisation `kind`; `add` puts more into it."""
    out = gguf.GGUFWriter(str(path), "llama")
    said = {
        "block_count": LAYERS, "context_length": 64, "embedding_length": WIDTH, "feed_forward_length": INNER,
        "head_count": HEADS, "head_count_kv": KV_HEADS, "layer_norm_rms_eps": 1e-6, "rope_freq_base": 10000.0,
        "vocab_size": len(WORDS), "tokenizer_model": "gpt2", "token_list": WORDS, "token_merges": ["a b", "Ġ a"],
        "bos_token_id": 0, "eos_token_id": 1, "unk_token_id": 2,
        "chat_template": "{% for m in messages %}{{ m['content'] }}{% endfor %}",
    }  # fmt: skip
    for name, value in said.items():
        getattr(out, f"add_{name}")(value)
    names = {"embed_tokens": "token_embd", "lm_head": "output", "norm": "output_norm"}
    parts = {
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    names |= {f"layers.{i}.{ours}": f"blk.{i}.{theirs}" for i in range(LAYERS) for ours, theirs in parts.items()}
    for name, tensor in model.state_dict().items():
        weight = tensor.numpy().astype(np.float32)
        if "q_proj" in name or "k_proj" in name:
            weight = interleaved(weight, HEADS if "q_proj" in name else KV_HEADS)
        place = names[name.removeprefix("model.").removesuffix(".weight")] + ".weight"
        if kind is None or weight.ndim == 1:
            out.add_tensor(place, weight)
        else:
            out.add_tensor(place, gguf.quants.quantize(weight, kind), raw_dtype=kind)
    add(out)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path
