"""Where the parts of each model family are: one row a family, verified by the self-check on every load.

The attention hook captures q, k, v and z without this table; it serves keys and queries before rotary embedding,
weights per head, block outputs and the residual stream. Other packages register a `Family` under the entry points
`interp.families` by its `model_type`, and unknown classes with `AutoConfig` and `AutoModelForCausalLM`.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from interp.errors import ModelError
from interp.family import Family, HeadShape, Layout, Projection, QkNorm
from interp.registry import entries, load_entry

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel


_LLAMA = Family(
    name="llama",
    layers="model.layers",
    final_norm="model.norm",
    attention="self_attn",
    mlp="mlp",
    layout=Layout("separate", ("q_proj", "k_proj", "v_proj")),
    out="o_proj",
)


_GPT2 = Family(
    name="gpt2",
    layers="transformer.h",
    final_norm="transformer.ln_f",
    attention="attn",
    mlp="mlp",
    layout=Layout("blocks", ("c_attn",), transposed=True),
    out="c_proj",
    out_transposed=True,
)


def _like_llama(name: str, **changes: Any) -> Family:
    return replace(_LLAMA, name=name, **changes)


def _like_gpt2(name: str, module: str, **changes: Any) -> Family:
    """With linear layers; one `module` gives queries, keys and values."""
    own: dict[str, Any] = {"layout": Layout("per_head", (module,)), "out_transposed": False}
    return replace(_GPT2, name=name, **own | changes)


_SANDWICH = {"attention_sum": "post_attention_layernorm", "mlp_sum": "post_feedforward_layernorm"}
"""Both outputs are normalised before they are added to the residual stream."""

_CAP = "final_logit_softcapping"
_BY_POSITION = QkNorm("q_norm", "k_norm", "pos_head")
_BY_HEAD = QkNorm("q_norm", "k_norm", "head_pos")
_BEHIND = QkNorm("q_norm", "k_norm", "head_pos", behind_rotary=True)
_FLAT = QkNorm("q_norm", "k_norm", "flat")

_SHARED = {"mlp": ("block_sparse_moe", "shared_mlp"), "router": "block_sparse_moe.router",
           "added_times": "residual_multiplier", "logits_over": "logits_scaling"}  # fmt: skip
"""Granite with experts and a feed-forward that all tokens pass; either may be missing."""

_GATED = "linear attention in most layers; a gate multiplies head outputs, z is what enters W_O"
_ITS_OWN = "its own attention, which does not use transformers' interface, is replaced while it is read"

_TABLE = (
    _like_gpt2("gpt_neox", "query_key_value", layers="gpt_neox.layers", final_norm="gpt_neox.final_layer_norm",
               attention="attention", out="dense", parallel="use_parallel_residual"),
    _like_llama("phi", final_norm="model.final_layernorm", out="dense", parallel=True,
                qk_norm=QkNorm("q_layernorm", "k_layernorm", "head_pos")),
    _LLAMA,
    *map(_like_llama, (
        "mistral", "arcee", "helium", "ernie4_5", "seed_oss", "nemotron", "qwen2", "qwen2_vl_text", "qwen2_5_vl_text",
        "gemma", "internlm3", "jais2", "starcoder2",
    )),
    _like_llama("ministral", note="sliding window in some layers"),
    _like_llama("mixtral", router="mlp.gate", note="mixture of experts"),
    _like_llama("smollm3", note="no rotary embedding in every fourth layer"),
    _like_llama("granite", added_times="residual_multiplier", logits_over="logits_scaling",
                note="scaled residual branches, embeddings and logits"),
    _like_llama("phimoe", router="mlp.router", note="mixture of experts"),
    _like_llama("cohere", parallel=True, logits_times="logit_scale", note="interleaved rotary embedding, scaled logits",
                qk_norm=_BY_POSITION),
    _like_llama("cohere2", parallel=True, logits_times="logit_scale",
                note="sliding window; no rotary embedding in every fourth layer; scaled logits"),
    _like_llama("glm", note="interleaved, partial rotary embedding"),
    _like_llama("glm4", attention_sum="post_self_attn_layernorm", mlp_sum="post_mlp_layernorm",
                note="interleaved, partial rotary embedding; both branches normalised"),
    _like_llama("exaone4", qk_norm=_BY_HEAD, **_SANDWICH, note="no rotary embedding in global layers"),
    _like_llama("apertus", qk_norm=_BY_HEAD),
    _like_llama("qwen2_moe", router="mlp.gate", note="mixture of experts"),
    _like_llama("qwen3", qk_norm=_BY_POSITION),
    _like_llama("qwen3_vl_text", qk_norm=_BY_POSITION),
    _like_llama("qwen3_vl_moe_text", qk_norm=_BY_POSITION, note="mixture of experts"),
    _like_llama("qwen3_moe", qk_norm=_BY_POSITION, router="mlp.gate", note="mixture of experts"),
    _like_llama("gemma2", **_SANDWICH, logits_cap=_CAP, kernel="eager",
                note="soft-capped scores and logits; sliding window in every second layer"),
    _like_llama("gemma3_text", qk_norm=_BY_HEAD, **_SANDWICH, logits_cap=_CAP, note="sliding window in most layers"),
    _like_llama("olmo", clip="clip_qkv", note="projections clipped in some models"),
    _like_llama("olmo2", qk_norm=_FLAT, **_SANDWICH),
    _like_llama("olmo3", qk_norm=_FLAT, **_SANDWICH, note="sliding window in most layers"),
    _like_llama("olmoe", qk_norm=_FLAT, clip="clip_qkv", router="mlp.gate",
                note="mixture of experts; projections clipped in some models"),
    _like_llama("gpt_oss", kernel="eager", router="mlp.router",
                note="a learnt sink in every row; sliding window in every second layer; mixture of experts"),
    _like_llama("llama4_text", mlp="feed_forward", qk_norm=QkNorm("qk_norm", "qk_norm", "pos_head", behind_rotary=True),
                note="chunked attention; layers without rotary embedding, whose queries grow in long texts; mixture "
                "of experts"),
    _like_llama("nanochat", qk_norm=_BEHIND, logits_cap=_CAP, note="soft-capped logits"),
    _like_llama("aria_text", note="mixture of experts"),
    _like_llama("cohere2_moe", parallel=True, logits_times="logit_scale",
                note="sliding window in most layers; mixture of experts"),
    _like_llama("cwm", note="sliding window in most layers"),
    _like_llama("ernie4_5_moe", note="mixture of experts"),
    _like_llama("exaone_moe", qk_norm=_BY_HEAD, note="sliding window in most layers; mixture of experts"),
    _like_llama("flex_olmo", qk_norm=_FLAT, **_SANDWICH, note="mixture of experts"),
    _like_llama("dots1", qk_norm=_BY_POSITION, note="mixture of experts"),
    _like_llama("glm4_moe", qk_norm=_BY_POSITION, note="partial rotary embedding; mixture of experts"),
    _like_llama("granitemoe", mlp="block_sparse_moe", added_times="residual_multiplier", logits_over="logits_scaling",
                router="block_sparse_moe.router",
                note="scaled residual branches, embeddings and logits; mixture of experts"),
    _like_llama("granitemoeshared", **_SHARED,
                note="scaled residual branches, embeddings and logits; mixture of experts"),
    _like_llama("hy_v3", qk_norm=_BY_HEAD, note="mixture of experts"),
    _like_llama("hyperclovax", added_times="residual_multiplier", logits_times="logits_scaling",
                attention_sum="post_norm1", mlp_sum="post_norm2",
                note="scaled residual branches, embeddings and logits; both branches normalised"),
    _like_llama("mellum", qk_norm=_BY_POSITION, note="sliding window in most layers; mixture of experts"),
    _like_llama("minimax_m2", qk_norm=_FLAT, note="partial rotary embedding; mixture of experts"),
    _like_llama("ministral3", note="queries grow in long texts"),
    _like_llama("solar_open", note="mixture of experts"),
    _like_llama("vaultgemma", kernel="eager", logits_cap=_CAP,
                note="soft-capped scores and logits; sliding window in some layers"),
    _like_llama("stablelm", parallel="use_parallel_residual",
                qk_norm=QkNorm("q_layernorm", "k_layernorm", "head_pos")),
    _like_llama("persimmon", layout=Layout("per_head", ("query_key_value",)), out="dense",
                final_norm="model.final_layernorm", qk_norm=QkNorm("q_layernorm", "k_layernorm", "pos_head"),
                note="partial rotary embedding"),
    _like_llama("phi3", layout=Layout("blocks", ("qkv_proj",))),
    _GPT2,
    _like_gpt2("gpt_bigcode", "c_attn", note="one head of keys and values in most models"),
    _like_gpt2("gptj", "", layout=_LLAMA.layout, out="out_proj", parallel=True, kernel="eager",
               note="interleaved, partial rotary embedding; " + _ITS_OWN),
    _like_gpt2("gpt_neo", "", layout=_LLAMA.layout, attention="attn.attention", out="out_proj", kernel="eager",
               note="scores are not scaled; window in every second layer; " + _ITS_OWN),
    _like_gpt2("bloom", "query_key_value", attention="self_attention", attention_sum="self_attention.dense",
               mlp_sum="mlp.dense_4h_to_h", out="dense", kernel="eager", note="ALiBi; " + _ITS_OWN,
               refused=(("apply_residual_connection_post_layernorm", True, "what a block adds is added to its "
                         "normalised input, and not to the residual stream"),)),
    _like_gpt2("mpt", "", layout=Layout("blocks", ("Wqkv",)), layers="transformer.blocks",
               final_norm="transformer.norm_f", mlp="ffn", mlp_sum="ffn.down_proj", out="out_proj",
               clip="attn_config.clip_qkv", kernel="eager",
               note="ALiBi; projections clipped in some models; " + _ITS_OWN),
    _like_gpt2("falcon", "query_key_value", attention="self_attention", out="dense", parallel="parallel_attn",
               kernel="eager", note=_ITS_OWN,
               refused=(("alibi", True, "the two attentions that transformers has for it disagree: eager adds ALiBi "
                         "twice (Falcon-RW)"),)),
    _like_llama("opt", layers="model.decoder.layers", final_norm="model.decoder.final_layer_norm", out="out_proj",
                mlp="fc2", scales_queries=True, behind_norm="model.decoder.project_out",
                adds_if="do_layer_norm_before"),
    _like_llama("lfm2", final_norm="model.embedding_norm", mixer="conv", mlp="feed_forward", out="out_proj",
                qk_norm=QkNorm("q_layernorm", "k_layernorm", "pos_head"),
                note="convolutions in place of attention in most layers"),
    _like_llama("jamba", final_norm="model.final_layernorm", mixer="mamba", mlp="feed_forward",
                note="Mamba in place of attention in most layers; no rotary embedding; mixture of experts"),
    _like_llama("bamba", final_norm="model.final_layernorm", mixer="mamba", mlp="feed_forward",
                note="Mamba-2 in place of attention in most layers; partial rotary embedding"),
    _like_llama("granitemoehybrid", mixer="mamba", **_SHARED,
                note="Mamba-2 in place of attention in most layers; scaled residual branches, embeddings and logits; "
                "mixture of experts in some models"),
    _like_llama("falcon_h1", final_norm="model.final_layernorm", mixer="mamba", mlp="feed_forward",
                added_times={"attn_out": "attention_out_multiplier", "mixer_out": "ssm_out_multiplier"},
                logits_times="lm_head_multiplier",
                note="Mamba-2 beside attention in every layer; scaled keys, branches, embeddings and logits"),
    _like_llama("mllama_text_model", unpassed="cross_attention_layers",
                note="Llama 3.2 Vision: layers of cross-attention are left out, text passes none of them"),
    _like_llama("qwen3_next", qk_norm=_BY_POSITION, mixer="linear_attn", note=_GATED + "; mixture of experts"),
    _like_llama("qwen3_5_text", qk_norm=_BY_POSITION, mixer="linear_attn", note=_GATED),
    _like_llama("qwen3_5_moe_text", qk_norm=_BY_POSITION, mixer="linear_attn", note=_GATED + "; mixture of experts"),
    Family(name="mamba", layers="backbone.layers", final_norm="backbone.norm_f"),
)  # fmt: skip

_LATENT = (
    "all its heads make their keys and values from one latent vector that is normalised first, and share a part of "
    "each key: no head has projection weights W_K and W_V, and its keys are of another size than its values"
)
_NORMED_LATE = "it normalises queries and keys behind rotary embedding, by weights that are not the same before it"

REFUSED = {
    "deepseek_v2": ("DeepSeek-V2", _LATENT),
    "deepseek_v3": ("DeepSeek-V3", _LATENT),
    "glm4_moe_lite": ("GLM-4.7 Flash", _LATENT),
    "longcat_flash": ("LongCat Flash", _LATENT),
    "minicpm3": ("MiniCPM3", _LATENT),
    "youtu": ("Youtu-LLM", _LATENT),
    "hunyuan_v1_dense": ("HunYuan", _NORMED_LATE),
    "hunyuan_v1_moe": ("HunYuan MoE", _NORMED_LATE),
    "bitnet": ("BitNet", "head outputs are normalised together before the output projection"),
    "gemma4_text": (
        "Gemma 4",
        "its heads are of another size in some layers, some layers use the keys and values of others, and every block "
        "rescales the residual stream",
    ),
}
"""Families that cannot be read, by `model_type`: name and reason."""


@cache
def families() -> dict[str, Family]:
    """Every known family by its `model_type`. Imports the packages that register further ones."""
    return families_of_transformers() | {name: load_entry("family", name) for name in entries("family")}


def families_of_transformers() -> dict[str, Family]:
    """The families of the table above, without an import."""
    return {family.name: family for family in _TABLE}


def family_of(config: "PretrainedConfig") -> Family:
    """The family of a configuration; `ModelError` for one that cannot be read or is unknown."""
    kind = config.model_type
    if kind in families():
        families()[kind].refuse_shape(config)
        return families()[kind]
    name, reason = REFUSED.get(kind, ("", "there is no entry for this family"))
    own = "Add it: a row in `interp/families.py`, or an entry point `interp.families`"
    raise ModelError(
        asked=f"reading a model of the family {name} ({kind})" if name else f"reading a model of the family {kind!r}",
        found=reason,
        fix=f"{'Choose another model' if name else own}; `interp list families` shows all that can be read.",
    )


def rotary_size(config: "PretrainedConfig", shape: HeadShape) -> int | None:
    """How many dimensions of a key are rotated; None without rotary embedding or without attention."""
    parameters = getattr(config, "rope_parameters", None)
    if not parameters:
        return getattr(config, "rotary_dim", None)
    return int(shape.d_head * parameters.get("partial_rotary_factor", 1.0))


def iterate_weights(
    module: "PreTrainedModel", family: Family, which: Literal["W_Q", "W_K", "W_V", "W_O"]
) -> "Iterator[torch.Tensor]":
    """The weight of each layer, per head, as the site of this name. Use each before the next: it may be offloaded."""
    from interp.system.offload import brought_in

    shape = family.head_shape(module.config.get_text_config())
    for attention in family.attention_modules(module):
        with brought_in(attention):
            if which == "W_O":
                yield family.output_weight(attention, shape)[0]
            else:
                letter: Projection = which[-1].lower()  # pyrefly: ignore[bad-assignment]
                yield family.projection_weight(attention, letter, shape)[0]
