"""Paths of the parts of a model family in its module, layouts of projections, and norms of queries and keys."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from interp.errors import ModelError

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
        count = shape.n_heads if which == "q" else shape.n_kv_heads
        if self.kind == "separate":
            heads = out.unflatten(-1, (count, -1))[..., : shape.d_head]  # a gate may stand behind each query
            return heads * shape.key_scale if which == "k" and shape.key_scale != 1.0 else heads
        if self.kind == "per_head":
            groups = out.unflatten(-1, (shape.n_kv_heads, -1, shape.d_head))
            return groups[..., :-2, :].flatten(-3, -2) if which == "q" else groups[..., "kv".index(which) - 2, :]
        starts = {"q": 0, "k": shape.n_heads, "v": shape.n_heads + shape.n_kv_heads}
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
        """The module's output for `[batch, pos, head, d_head]`, in the same order."""
        seen = heads.flatten(-2) if self.order == "flat" else heads
        seen = heads.transpose(1, 2) if self.order == "head_pos" else seen
        return self.to_heads(module(seen), heads.shape[-1])

    def to_heads(self, seen: "torch.Tensor", d_head: int) -> "torch.Tensor":
        """The module's input or output as `[batch, pos, head, d_head]`."""
        if self.order == "flat":
            return seen.unflatten(-1, (-1, d_head))
        return seen.transpose(1, 2) if self.order == "head_pos" else seen


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
    """The attention of transformers that is right without hooks: sdpa leaves out caps and learnt sinks."""
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
        """The factor of a block's output before it is added to the residual stream."""
        field = self.added_times.get(site) if isinstance(self.added_times, Mapping) else self.added_times
        return 1.0 if field is None else float(getattr(config, field))

    def logit_scale(self, config: "PretrainedConfig") -> float:
        """The factor of the logits."""
        times = 1.0 if self.logits_times is None else getattr(config, self.logits_times)
        return times if self.logits_over is None else times / getattr(config, self.logits_over)

    def logit_cap(self, config: "PretrainedConfig") -> float | None:
        """The soft-cap of the logits; None without one."""
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
                raise self._refusal(f" with {field} = {found}", reason)
        if self.attention_layers(config) == ():
            raise self._refusal("", f"none of its {config.num_hidden_layers} layers has attention")

    def _refusal(self, shape: str, reason: str) -> ModelError:
        asked, fix = f"reading a model of the family {self.name}{shape}", "Other models of the family can be read."
        return ModelError(asked=asked, found=reason, fix=fix)

    def is_parallel(self, config: "PretrainedConfig") -> bool:
        return self.parallel if isinstance(self.parallel, bool) else bool(getattr(config, self.parallel))

    def behind_blocks(self, module: "PreTrainedModel") -> "torch.nn.Module":
        """The module that reads the residual stream after the last block: final norm, projection, or head."""
        between = [attrgetter(path)(module) for path in (self.final_norm, self.behind_norm) if path is not None]
        head: Any = module.get_output_embeddings()
        return next((part for part in between if part is not None), head)

    def layer_modules(self, module: "PreTrainedModel") -> list["torch.nn.Module"]:
        """The decoder layers that text passes, in their order."""
        unpassed = self._unpassed(module.config.get_text_config())
        return [layer for n, layer in enumerate(attrgetter(self.layers)(module)) if n not in unpassed]

    def n_layers(self, config: "PretrainedConfig") -> int:
        """How many decoder layers text passes, as the configuration states them."""
        return config.num_hidden_layers - len(self._unpassed(config))

    def _unpassed(self, config: "PretrainedConfig") -> Collection[int]:
        listed = () if self.unpassed is None else getattr(config, self.unpassed)
        return [layer for layer in listed if layer < config.num_hidden_layers]

    def attends(self, layer: "torch.nn.Module") -> bool:
        """Whether a decoder layer has attention, and not another module in its place."""
        return self.attention is not None and _has(layer, self.attention)

    def attention_by_layer(self, module: "PreTrainedModel") -> dict[int, "torch.nn.Module"]:
        """The attention of each layer that has one, by the number of the layer."""
        layers = enumerate(self.layer_modules(module))
        return {n: attrgetter(self.attention or "")(layer) for n, layer in layers if self.attends(layer)}

    def attention_modules(self, module: "PreTrainedModel") -> list["torch.nn.Module"]:
        return list(self.attention_by_layer(module).values())

    def attention_layers(self, config: "PretrainedConfig") -> tuple[int, ...] | None:
        """The layers that have attention, where not all have, as the configuration states them."""
        if self.mixer is None:
            return None
        kinds = ("attention", "full_attention", "hybrid")
        having = tuple(n for n, kind in enumerate(config.layer_types) if kind in kinds)
        return None if len(having) == len(config.layer_types) else having

    def refuse_shared_parts(self, module: "PreTrainedModel") -> None:
        """Raise `ModelError` where two layers share a module with weights, whose hooks could not tell them apart."""
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

        A mixer in place of attention or beside it is `mixer_out`, which is not a site. Outputs of several modules of
        one site are summed; they are in the order in which they run.
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
