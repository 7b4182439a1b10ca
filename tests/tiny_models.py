"""Tiny random models with the families' real layouts, for tests."""

from functools import cache

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    PhiConfig,
    PreTrainedModel,
)

from interp.capture import ModelInfo
from interp.families import family_of, rotary_size
from interp.model import Model
from interp.prompt import Prompt, PromptSet

FAMILIES = ("gpt_neox", "phi", "llama", "mistral")
VOCAB = 101

_SIZES = {"vocab_size": VOCAB, "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 3}


def tiny_config(family: str, **changes):
    """A configuration of the family: partial rotary, grouped heads and a window where the family has them."""
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    made = {
        "gpt_neox": lambda: GPTNeoXConfig(
            **{**_SIZES, "num_attention_heads": 4, "rotary_pct": 0.5, "hidden_act": "gelu", **changes}
        ),
        "phi": lambda: PhiConfig(**{**_SIZES, "num_attention_heads": 4, "partial_rotary_factor": 0.5, **changes}),
        "llama": lambda: LlamaConfig(**{**_SIZES, **heads, **changes}),
        "mistral": lambda: MistralConfig(**{**_SIZES, **heads, "sliding_window": 5, **changes}),
    }
    return made[family]()


def wrap(module: PreTrainedModel, name: str | None = None) -> Model:
    """A `Model` around a module in memory, without the loader."""
    config = module.config
    family = family_of(config)
    shape = family.head_shape(config)
    info = ModelInfo(
        name=name or f"tiny-{config.model_type}", source="memory", family=config.model_type,
        n_layers=config.num_hidden_layers, n_heads=shape.n_heads, n_kv_heads=shape.n_kv_heads, d_head=shape.d_head,
        d_model=config.hidden_size, vocab_size=config.vocab_size,
        n_parameters=sum(p.numel() for p in module.parameters()), dtype="float32", device="cpu",
        attention_kernel="sdpa", n_rotary=rotary_size(config, shape), n_experts=family.n_experts(config),
    )  # fmt: skip
    return Model(module, None, info, family)


def fresh_model(family: str, **changes) -> Model:
    """A random model with weights spread enough that attention is far from uniform."""
    torch.manual_seed(0)
    config = tiny_config(family, initializer_range=0.2, **changes)
    module = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    with torch.no_grad():
        for name, p in module.named_parameters():
            if name.endswith("bias"):
                p.normal_(0, 0.1)
    return wrap(module)


def prompts_of(*ids, **how) -> PromptSet:
    """Prompts of these token ids; scored positions and columns are the same for each."""
    return PromptSet("ids", [Prompt(token_ids=tuple(np.asarray(x).tolist()), **how) for x in ids])


@cache
def tiny_model(family: str) -> Model:
    """The same model every time, made outside of whatever mode it is asked in; tests must leave it as it is."""
    with torch.inference_mode(False):
        return fresh_model(family)


def shapes_of_passes(model: Model) -> list[tuple[int, ...]]:
    """A list that takes the shape of the ids of every pass from now on."""
    shapes: list[tuple[int, ...]] = []
    model.module.register_forward_pre_hook(
        lambda module, args, given: shapes.append(tuple(given["input_ids"].shape)), with_kwargs=True
    )
    return shapes


def n_hooks(module) -> int:
    """How many hooks hang on a module and its parts, and functions put in the place of their own."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(len(getattr(each, kind)) for each in module.modules() for kind in kinds) + sum(
        "forward" in each.__dict__ for each in module.modules()
    )


def alike_prompts():
    """Prompts that begin alike, the first eight tokens in all and four more in two kinds; with twins, and one apart."""
    rng = np.random.default_rng(0)
    shared, kinds = rng.integers(3, VOCAB, 8), rng.integers(3, VOCAB, (2, 4))
    ids = [np.concatenate([shared, kinds[i % 2], rng.integers(3, VOCAB, i % 4)]) for i in range(12)]
    ids += [rng.integers(3, VOCAB, 5), ids[3], shared]
    prompts = [Prompt(token_ids=tuple(int(t) for t in x)) for x in ids]
    posterior = np.full((len(ids), 3), 1 / 3)
    return PromptSet("alike", prompts, posterior=posterior, outcome_ids=np.arange(3)), ids
