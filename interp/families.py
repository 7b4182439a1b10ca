"""Where the parts of each model family are: data, one entry a family, proved by the self-check on every load.

The attention hook needs none of this for q, k, v and z. The table serves what it does not see: keys and queries before
rotary embedding, projection weights per head, block outputs and the residual stream. Further families register an
entry under the entry points `interp.families`, by their `model_type`; one that transformers does not have registers
its classes with `AutoConfig` and `AutoModelForCausalLM` in the same module.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from interp.errors import ModelError
from interp.registry import entries, load_entry

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel

Projection = Literal["q", "k", "v"]


@dataclass(frozen=True)
class Layout:
    """How queries, keys and values lie in the output of the projection modules.

    `separate`: three modules, each `(head, d_head)`. `per_head`: one module, for each head its query, key and value,
    `(head, 3, d_head)` (GPT-NeoX); of grouped heads the queries of the group, the key and the value (Falcon).
    `blocks`: one module, all query heads, then all key heads, then all value heads (Phi-3; GPT-2 with `transposed`
    weights, stored `(in, out)`).
    """

    kind: Literal["separate", "per_head", "blocks"]
    modules: tuple[str, ...]
    transposed: bool = False

    def __post_init__(self) -> None:
        if len(self.modules) != (3 if self.kind == "separate" else 1):
            raise ValueError(f"a {self.kind} layout cannot have the modules {self.modules}")

    def module_of(self, which: Projection) -> str:
        return self.modules["qkv".index(which)] if self.kind == "separate" else self.modules[0]

    def pick(self, out: "torch.Tensor", which: Projection, shape: "HeadShape") -> "torch.Tensor":
        """The heads of one projection from a module's output `[..., out]`: `[..., head, d_head]`."""
        if self.kind == "separate":
            n_heads = shape.n_heads if which == "q" else shape.n_kv_heads
            heads = out.unflatten(-1, (n_heads, -1))[..., : shape.d_head]  # a gate may stand behind each query
            return heads * shape.key_scale if which == "k" and shape.key_scale != 1.0 else heads
        if self.kind == "per_head":
            groups = out.unflatten(-1, (shape.n_kv_heads, -1, shape.d_head))
            return groups[..., :-2, :].flatten(-3, -2) if which == "q" else groups[..., "kv".index(which) - 2, :]
        starts = {"q": 0, "k": shape.n_heads, "v": shape.n_heads + shape.n_kv_heads}
        count = shape.n_heads if which == "q" else shape.n_kv_heads
        return out.unflatten(-1, (-1, shape.d_head))[..., starts[which] : starts[which] + count, :]


@dataclass(frozen=True)
class HeadShape:
    """Numbers of heads, their size, and what keys are multiplied by (Falcon-H1), from the configuration."""

    n_heads: int
    n_kv_heads: int
    d_head: int
    key_scale: float = 1.0


@dataclass(frozen=True)
class QkNorm:
    """Normalisation of queries and keys before rotary embedding: two modules of the attention, and what they see.

    `flat` `[batch, pos, head * d_head]`, `pos_head` `[batch, pos, head, d_head]`, `head_pos` `[batch, head, pos,
    d_head]`. Where a configuration switches it off, or in layers that do without it, the modules are absent.
    """

    q: str
    k: str
    order: Literal["flat", "pos_head", "head_pos"]
    behind_rotary: bool = False
    """The model normalises behind rotary embedding, without weights: the same as before it, since lengths are kept."""

    def module(self, attention: "torch.nn.Module", which: Projection) -> "torch.nn.Module | None":
        """The module that normalises queries or keys of one layer; values are never normalised."""
        return None if which == "v" else getattr(attention, self.q if which == "q" else self.k, None)

    def normalised(self, module: "torch.nn.Module", heads: "torch.Tensor") -> "torch.Tensor":
        """What the module makes of `[batch, pos, head, d_head]`, in that order again."""
        return self.to_heads(module(self.from_heads(heads)), heads.shape[-1])

    def to_heads(self, seen: "torch.Tensor", d_head: int) -> "torch.Tensor":
        """What the module sees or gives, as `[batch, pos, head, d_head]`."""
        if self.order == "flat":
            return seen.unflatten(-1, (-1, d_head))
        return seen.transpose(1, 2) if self.order == "head_pos" else seen

    def from_heads(self, heads: "torch.Tensor") -> "torch.Tensor":
        """The reverse of `to_heads`."""
        if self.order == "flat":
            return heads.flatten(-2)
        return heads.transpose(1, 2) if self.order == "head_pos" else heads


@dataclass(frozen=True)
class Family:
    """Paths of the parts of one family; `layers` from the model, the others from one decoder layer.

    A family without attention (recurrent, state-space, feed-forward) names no `attention`, `layout` and `out`: it has 0
    heads and no site of the attention hook, and its residual stream is what passes from block to block. `mlp` is left
    out where no module of a block is a feed-forward.
    """

    name: str
    layers: str
    final_norm: str
    attention: str | None = None
    mixer: str | None = None
    """Module that some layers have in place of attention, or all beside it: a convolution, a state-space model."""
    unpassed: str | None = None
    """Field of the configuration that lists layers which text does not pass; the others are numbered without them."""
    mlp: str | tuple[str, ...] | None = None
    """The feed-forward, or modules whose outputs are summed (experts, and one that all tokens pass), in their order."""
    layout: Layout | None = None
    out: str | None = None
    parallel: bool | str = False
    """Attention and feed-forward read the same input: always, never, or by this field of the configuration."""
    out_transposed: bool = False
    attention_sum: str | None = None
    """Module whose output is added to the residual stream, where that is not the attention module itself."""
    mlp_sum: str | None = None
    router: str | None = None
    """Module of a block that chooses experts and returns logits of all, weights of the chosen and which these are."""
    qk_norm: QkNorm | None = None
    kernel: str = "sdpa"
    """The attention of transformers that is right where nobody listens: sdpa leaves out caps and learnt sinks."""
    scales_queries: bool = False
    """Queries are divided by the root of d_head before the attention hook instead of the scores after it."""
    adds_if: str | None = None
    """Field of the configuration without which the sum of stream and block is normalised itself (OPT-350m)."""
    added_times: str | Mapping[str, str] | None = None
    """Field of the configuration that multiplies what all parts of a block add to the residual stream (Granite), or
    one for each site that has its own (Falcon-H1)."""
    behind_norm: str | None = None
    """Module between final norm and output head, where that is of another width than the stream (OPT)."""
    logits_times: str | None = None
    """Field of the configuration that multiplies the logits (Cohere, HyperCLOVAX)."""
    logits_over: str | None = None
    """Field of the configuration that divides the logits (Granite)."""
    logits_cap: str | None = None
    """Field of the configuration that soft-caps the logits, c tanh(x / c), unless it is None (Gemma 2)."""
    clip: str | None = None
    """Field of the configuration that bounds queries, keys and values behind their projection (OLMo's `clip_qkv`)."""
    note: str = ""
    """What is special about the family, in a few words; `interp list families` shows it."""
    refused: tuple[tuple[str, bool, str], ...] = ()
    """Shapes that cannot be read: field of the configuration, whether it is true (not 0) there, why."""

    def __post_init__(self) -> None:
        if len({self.attention is None, self.layout is None, self.out is None}) > 1:
            raise ValueError(f"{self.name}: attention, layout and out belong together; name all of them or none")

    @property
    def has_attention(self) -> bool:
        return self.attention is not None

    def head_shape(self, config: "PretrainedConfig") -> HeadShape:
        """Head counts and size as the configuration states them; all 0 without attention."""
        if not self.has_attention:
            return HeadShape(0, 0, 0)
        n_heads: int = config.num_attention_heads
        n_kv_heads = getattr(config, "num_key_value_heads", None) or getattr(config, "num_kv_heads", None) or n_heads
        if getattr(config, "multi_query", False) and not getattr(config, "new_decoder_architecture", False):
            n_kv_heads = 1
        d_head = getattr(config, "head_dim", None) or config.hidden_size // n_heads
        return HeadShape(n_heads, n_kv_heads, d_head, getattr(config, "key_multiplier", 1.0))

    def n_experts(self, config: "PretrainedConfig") -> int:
        """Experts of every layer; 0 without them, where some layers have none, and where no router is named."""
        is_mixed = getattr(config, "mlp_only_layers", None) or getattr(config, "decoder_sparse_step", 1) != 1
        if self.router is None or is_mixed:
            return 0
        count = getattr(config, "num_local_experts", None)
        return config.num_experts if count is None else count

    def adds(self, config: "PretrainedConfig") -> bool:
        """Whether the residual stream is the sum of what blocks add to it."""
        return self.adds_if is None or bool(getattr(config, self.adds_if))

    def summed_scale(self, config: "PretrainedConfig", site: str) -> float:
        """What the output of a part of a block is multiplied by before it is added to the stream."""
        field = self.added_times.get(site) if isinstance(self.added_times, Mapping) else self.added_times
        return 1.0 if field is None else float(getattr(config, field))

    def logit_scale(self, config: "PretrainedConfig") -> float:
        """What the products with the output head are multiplied by."""
        times = 1.0 if self.logits_times is None else getattr(config, self.logits_times)
        return times if self.logits_over is None else times / getattr(config, self.logits_over)

    def logit_cap(self, config: "PretrainedConfig") -> float | None:
        """What the logits never exceed; None without a soft-cap."""
        return None if self.logits_cap is None else getattr(config, self.logits_cap)

    def clipped(self, x: "torch.Tensor", config: "PretrainedConfig") -> "torch.Tensor":
        """Projections within the bounds that the configuration sets."""
        bound = None if self.clip is None else attrgetter(self.clip)(config)
        return x if bound is None else x.clamp(-bound, bound)

    def refuse_shape(self, config: "PretrainedConfig") -> None:
        """Raise `ModelError` where a field of the configuration makes this a model that cannot be read."""
        for field, value, reason in self.refused:
            found = getattr(config, field, not value)
            if bool(found) is value:
                raise ModelError(
                    asked=f"reading a model of the family {self.name} with {field} = {found}",
                    found=reason,
                    fix="Other models of the family can be read.",
                )

    def is_parallel(self, config: "PretrainedConfig") -> bool:
        return self.parallel if isinstance(self.parallel, bool) else bool(getattr(config, self.parallel))

    def head_modules(self, module: "PreTrainedModel") -> list["torch.nn.Module"]:
        """What the residual stream passes behind the last block: final norm and projection, if any, and the head."""
        paths = [path for path in (self.final_norm, self.behind_norm) if path is not None]
        between = [attrgetter(path)(module) for path in paths]
        head: Any = module.get_output_embeddings()
        return [*(part for part in between if part is not None), head]

    def layer_modules(self, module: "PreTrainedModel") -> list["torch.nn.Module"]:
        """The decoder layers that text passes, in their order."""
        unpassed = self._unpassed(module.config.get_text_config())
        return [layer for n, layer in enumerate(attrgetter(self.layers)(module)) if n not in unpassed]

    def n_layers(self, config: "PretrainedConfig") -> int:
        """How many decoder layers text passes, as the configuration states them."""
        return config.num_hidden_layers - len(self._unpassed(config))

    def _unpassed(self, config: "PretrainedConfig") -> Collection[int]:
        return () if self.unpassed is None else getattr(config, self.unpassed)

    def attends(self, layer: "torch.nn.Module") -> bool:
        """Whether a decoder layer has attention, and not another module in its place."""
        return self.attention is not None and _has(layer, self.attention)

    def attention_by_layer(self, module: "PreTrainedModel") -> dict[int, "torch.nn.Module"]:
        """The attention of each layer that has one, by the number of the layer."""
        layers = enumerate(self.layer_modules(module))
        return {n: attrgetter(self.attention or "")(layer) for n, layer in layers if self.attends(layer)}

    def attention_modules(self, module: "PreTrainedModel") -> list["torch.nn.Module"]:
        """The same modules alone, in their order."""
        return list(self.attention_by_layer(module).values())

    def attention_layers(self, config: "PretrainedConfig") -> tuple[int, ...] | None:
        """The layers that have attention, where not all have, as the configuration states them."""
        if self.mixer is None:
            return None
        kinds = ("attention", "full_attention", "hybrid")
        having = tuple(n for n, kind in enumerate(config.layer_types) if kind in kinds)
        return None if len(having) == len(config.layer_types) else having

    def refuse_shared_parts(self, module: "PreTrainedModel") -> None:
        """Raise `ModelError` where two layers have a module with weights in common: what it does is heard of both."""
        owners: dict[torch.nn.Module, int] = {}
        for layer, block in enumerate(self.layer_modules(module)):
            for name, part in block.named_modules():
                first = owners.setdefault(part, layer) if next(part.parameters(), None) is not None else layer
                if first != layer:
                    raise ModelError(
                        asked=f"reading the {type(module).__name__}",
                        found=f"layers {first} and {layer} share one module ({name or 'the whole layer'}, "
                        f"{type(part).__name__}): its layers cannot be distinguished",
                        fix="Give each layer a copy (copy.deepcopy), which may share the weights themselves.",
                    )

    def summed_modules(self, layer: "torch.nn.Module") -> dict[str, "tuple[torch.nn.Module, ...]"]:
        """The modules whose outputs a decoder layer adds to the residual stream, by site (`attn_out`, `mlp_out`).

        What stands in place of attention or beside it is `mixer_out`, which is no site, and adds to the stream all the
        same. Of several modules of one site the outputs are summed; they are in the order in which they run.
        """
        paths = {
            "attn_out": (self.attention_sum or self.attention if self.attends(layer) else None,),
            "mixer_out": (self.mixer,),
            "mlp_out": self.mlp if isinstance(self.mlp, tuple) else (self.mlp_sum or self.mlp,),
        }
        found = {
            site: tuple(attrgetter(path)(layer) for path in each if path is not None and _has(layer, path))
            for site, each in paths.items()
        }
        return {site: modules for site, modules in found.items() if modules}

    def projection_weight(
        self, attention: "torch.nn.Module", which: Projection, shape: HeadShape
    ) -> "tuple[torch.Tensor, torch.Tensor | None]":
        """Weight `[head, d_model, d_head]` (activations multiply from the left) and bias `[head, d_head]`."""
        assert self.layout is not None
        module: Any = attrgetter(self.layout.module_of(which))(attention)
        weight = module.weight if self.layout.transposed else module.weight.T
        bias = getattr(module, "bias", None)
        heads = self.layout.pick(weight, which, shape).movedim(0, 1)
        return heads, None if bias is None else self.layout.pick(bias, which, shape)

    def output_weight(
        self, attention: "torch.nn.Module", shape: HeadShape
    ) -> "tuple[torch.Tensor, torch.Tensor | None]":
        """Output projection per head `[head, d_head, d_model]` and its bias `[d_model]`."""
        assert self.out is not None
        module: Any = attrgetter(self.out)(attention)
        weight = module.weight if self.out_transposed else module.weight.T
        return weight.unflatten(0, (shape.n_heads, shape.d_head)), getattr(module, "bias", None)


def _has(layer: "torch.nn.Module", path: str) -> bool:
    return getattr(layer, path.partition(".")[0], None) is not None


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
    """Weights are those of linear layers; queries, keys and values come out of one `module`."""
    own: dict[str, Any] = {"layout": Layout("per_head", (module,)), "out_transposed": False}
    return replace(_GPT2, name=name, **own | changes)


_SANDWICH = {"attention_sum": "post_attention_layernorm", "mlp_sum": "post_feedforward_layernorm"}
"""Both blocks are normalised once more before they are added to the residual stream."""

_CAP = "final_logit_softcapping"
_BY_POSITION = QkNorm("q_norm", "k_norm", "pos_head")
_BY_HEAD = QkNorm("q_norm", "k_norm", "head_pos")
_BEHIND = QkNorm("q_norm", "k_norm", "head_pos", behind_rotary=True)
_FLAT = QkNorm("q_norm", "k_norm", "flat")

_SHARED = {"mlp": ("block_sparse_moe", "shared_mlp"), "router": "block_sparse_moe.router",
           "added_times": "residual_multiplier", "logits_over": "logits_scaling"}  # fmt: skip
"""Granite with experts, and beside them a feed-forward that all tokens pass; the one or the other may be missing."""

_GATED = "linear attention in most layers; a gate multiplies head outputs, z is what enters W_O"
_ITS_OWN = "its attention asks no interface, and is asked by its own forward while it is read"

_TABLE = (
    _like_gpt2("gpt_neox", "query_key_value", layers="gpt_neox.layers", final_norm="gpt_neox.final_layer_norm",
               attention="attention", out="dense", parallel="use_parallel_residual"),
    _like_llama("phi", final_norm="model.final_layernorm", out="dense", parallel=True,
                qk_norm=QkNorm("q_layernorm", "k_layernorm", "head_pos")),
    _LLAMA,
    _like_llama("mistral"),
    _like_llama("ministral", note="sliding window in some layers"),
    _like_llama("mixtral", router="mlp.gate", note="mixture of experts"),
    _like_llama("arcee"),
    _like_llama("helium"),
    _like_llama("ernie4_5"),
    _like_llama("seed_oss"),
    _like_llama("nemotron"),
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
    _like_llama("qwen2"),
    _like_llama("qwen2_vl_text"),
    _like_llama("qwen2_5_vl_text"),
    _like_llama("qwen2_moe", router="mlp.gate", note="mixture of experts"),
    _like_llama("qwen3", qk_norm=_BY_POSITION),
    _like_llama("qwen3_vl_text", qk_norm=_BY_POSITION),
    _like_llama("qwen3_vl_moe_text", qk_norm=_BY_POSITION, note="mixture of experts"),
    _like_llama("qwen3_moe", qk_norm=_BY_POSITION, router="mlp.gate", note="mixture of experts"),
    _like_llama("gemma"),
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
    _like_llama("internlm3"),
    _like_llama("jais2"),
    _like_llama("mellum", qk_norm=_BY_POSITION, note="sliding window in most layers; mixture of experts"),
    _like_llama("minimax_m2", qk_norm=_FLAT, note="partial rotary embedding; mixture of experts"),
    _like_llama("ministral3", note="queries grow in long texts"),
    _like_llama("solar_open", note="mixture of experts"),
    _like_llama("vaultgemma", kernel="eager", logits_cap=_CAP,
                note="soft-capped scores and logits; sliding window in some layers"),
    _like_llama("starcoder2"),
    _like_llama("stablelm", parallel="use_parallel_residual",
                qk_norm=QkNorm("q_layernorm", "k_layernorm", "head_pos")),
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
_HYBRID = "some of its layers have no attention, and how they are built is not known to us yet"
_NORMED_LATE = "it normalises queries and keys behind rotary embedding, by weights that are not the same before it"

REFUSED = {
    "deepseek_v2": ("DeepSeek-V2", _LATENT),
    "deepseek_v3": ("DeepSeek-V3", _LATENT),
    "glm4_moe_lite": ("GLM-4.7 Flash", _LATENT),
    "longcat_flash": ("LongCat Flash", _LATENT),
    "minicpm3": ("MiniCPM3", _LATENT),
    "youtu": ("Youtu-LLM", _LATENT),
    "minimax": ("MiniMax-Text-01", _HYBRID),
    "nemotron_h": ("Nemotron-H", _HYBRID),
    "recurrent_gemma": ("RecurrentGemma", _HYBRID),
    "hunyuan_v1_dense": ("HunYuan", _NORMED_LATE),
    "hunyuan_v1_moe": ("HunYuan MoE", _NORMED_LATE),
    "bitnet": ("BitNet", "head outputs are normalised together before the output projection"),
    "gemma4_text": (
        "Gemma 4",
        "its heads are of another size in some layers, some layers use the keys and values of others, and every block "
        "rescales the residual stream",
    ),
}
"""Families known not to be readable, by `model_type`: what they are called, and why."""


@cache
def families() -> dict[str, Family]:
    """Every known family by its `model_type`: ours, and what other packages register.

    The packages are imported here, so `AutoConfig` knows the families of their own from this call on.
    """
    return families_of_transformers() | {name: load_entry("family", name) for name in entries("family")}


def families_of_transformers() -> dict[str, Family]:
    """Those of `families` that are data alone, for which nothing is imported."""
    return {family.name: family for family in _TABLE}


def family_of(config: "PretrainedConfig") -> Family:
    """The family of a configuration.

    Raises `ModelError` for a family that does not pass the attention interface (by name), and for one without an
    entry in the table: never an empty capture.
    """
    kind = config.model_type
    if kind in families():
        families()[kind].refuse_shape(config)
        return families()[kind]
    if kind in REFUSED:
        name, reason = REFUSED[kind]
        raise ModelError(
            asked=f"reading a model of the family {name} ({kind})",
            found=reason,
            fix=f"Use a model of one of these families: {', '.join(families())}.",
        )
    raise ModelError(
        asked=f"reading a model of the family {kind!r}",
        found="there is no entry for this family",
        fix=f"Known families: {', '.join(families())}. Another one can be registered under `interp.families`.",
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
    """One weight per layer, per head, as the sites of the same names describe them.

    Each is to be used before the next is asked for: where weights are offloaded, it is sent away again then.
    """
    from interp.system.offload import brought_in

    shape = family.head_shape(module.config.get_text_config())
    for attention in family.attention_modules(module):
        with brought_in(attention):
            if which == "W_O":
                yield family.output_weight(attention, shape)[0]
            else:
                letter: Projection = which[-1].lower()  # pyrefly: ignore[bad-assignment]
                yield family.projection_weight(attention, letter, shape)[0]
