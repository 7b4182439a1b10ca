"""Simulations of `causal`: removing axes fitted to noise, or to noise and the model's own entropies."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.certificates.simulations import Grouping, Simulation, Trials, grouped, in_common
from interp.findings import Findings
from interp.prompt import Clusters, Prompt, PromptSet
from interp.registry import load_entry

from ..causal.edits import Name

if TYPE_CHECKING:
    from interp.editing.conditions import Run
    from interp.model import Model

_VOCAB, _N_TEXTS, _FEATURE = 101, 160, 17
"""Of the model with one informative feature: vocabulary, prompts, and the index of the feature in the head outputs."""


def causal() -> Trials:
    read_outs = ("kl_beyond_controls", "entropy_moved_beyond_controls", "posterior_kl_beyond_controls")
    small = {"n_bootstrap": 40}
    tunnel = small | {"n_prompts": 24, "n_controls": 19}
    feature = small | {"site": "z", "layers": (("middle",),), "n_controls": 39}
    kinds: tuple[tuple[str, Grouping, int], ...] = (
        ("one feature tells", "alone", 40), ("five near-copies of each prompt", "fives", 110),
        ("templates of unequal size", "templates", 90),
    )  # fmt: skip
    effects = tuple(f"fitted to {0.3 * k:.1f} of the model's own entropies" for k in (1, 2, 3))
    simulations = []
    for axis in ("leace", "ridge", "encoding"):
        fitted = f"{axis} axis fitted to noise"
        simulations.append(
            Simulation("causal", f"{fitted}, shipped tunnel", partial(_axis, _tunnel, "alone"), read_outs, read_outs,
                  (), "24 sequences", tunnel | {"axis": axis})
        )  # fmt: skip
        simulations += [
            Simulation("causal", f"{fitted}, {name}", partial(_axis, _one_feature, clusters), read_outs[:2], (),
                  effects, f"{n} prompts", feature | {"n_prompts": n, "axis": axis})
            for name, clusters, n in kinds if axis != "encoding"  # with one feature it equals leace
        ]  # fmt: skip
    return Trials(tuple(simulations))


def _axis(
    of: "Callable[[Grouping], tuple[Model, Run, np.ndarray]]", clusters: Grouping, made: Any,
    rng: np.random.Generator, seed: int, size: float,
) -> Findings:  # fmt: skip
    """Findings on removing an axis fitted to noise and, by `size`, to the entropies of the model."""
    from interp.editing.conditions import read_conditions
    from interp.reading.forward import capture

    model, run, cluster = of(clusters)
    base = capture(model, run.prompts, run.ids, made.needs)
    prompt, own = base.rows["prompt"], base.rows["next_entropy_bits"]
    drawn = rng.standard_normal(base.rows.n_rows)
    if clusters != "alone":  # prompts of one cluster have the same wording
        drawn = in_common(lambda n: rng.standard_normal(n), cluster, 0.95)[prompt]
    entropy = drawn + 0.3 * size * (own - own.mean()) / own.std()
    rows = replace(base.rows, columns={**base.rows.columns, "next_entropy_bits": entropy})
    base = replace(base, tables={**base.tables, "scored": rows})
    named = [(condition, Name.parse(condition.name)) for condition in made.conditions(base)]
    wanted = [
        condition for condition, name in named
        if name.how == "removed" and name.subject.split()[0] in ("baseline", "axis", "control")
    ]  # fmt: skip
    return made.analyse(base, read_conditions(model, run, wanted))


@cache
def _tunnel(clusters: Grouping) -> "tuple[Model, Run, np.ndarray]":
    from interp.editing.conditions import Run
    from interp.loading.load import load
    from interp.prompting.tunnel_sequences import sampled_prompts

    prompts = sampled_prompts(load_entry("tunnel", "bijection")(), n=130)
    ids = [np.array(prompt.token_ids) for prompt in prompts.prompts]
    return load("tunnel:bijection-gpt-neox"), Run(prompts, ids), grouped(clusters, len(ids), np.random.default_rng(0))


@cache
def _one_feature(clusters: Grouping) -> "tuple[Model, Run, np.ndarray]":
    """A model that reads other tokens through a single feature of the head outputs of its middle layer."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    from interp.editing.conditions import Run
    from interp.loading.load import load

    config = LlamaConfig(
        vocab_size=_VOCAB, hidden_size=48, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, initializer_range=0.2,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    loud = 2.0
    first, middle, last = module.model.layers
    with torch.no_grad():
        for silent in (first.self_attn.o_proj, last.self_attn.o_proj, last.mlp.down_proj, middle.mlp.down_proj):
            silent.weight.zero_()
        out, direction = middle.self_attn.o_proj.weight, module.lm_head.weight[17]
        out.zero_()
        out[:, _FEATURE] = 2.0 * direction / direction.norm() / loud
        middle.self_attn.v_proj.weight[_FEATURE - 12] *= loud  # of KV head 0, which serves heads 0 and 1
    rng = np.random.default_rng(0)
    cluster = grouped(clusters, _N_TEXTS if clusters == "alone" else 150, rng)
    frames, changed = rng.integers(1, _VOCAB, size=(_N_TEXTS, 7)), rng.integers(1, _VOCAB, size=len(cluster))
    ids = [np.append(frames[of], 3) for of in cluster]
    for one, token in zip(ids, changed, strict=True):
        one[0] = token
    prompts = PromptSet(
        "tokens", [Prompt(token_ids=tuple(x.tolist())) for x in ids], clusters=Clusters(cluster, "made so")
    )
    return load(module), Run(prompts, ids), cluster
