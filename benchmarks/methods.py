"""The compared methods of reading a model. All but ours read the same and reduce it as early as they can:

values of every layer at the last position, and the entropy of every attention row, averaged within each prompt.
Ours is measured on that alone too, and on everything that the observational probes of a run request.
"""

import importlib.util
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from interp.families import family_of
from interp.information import BITS_PER_NAT
from interp.loading.load import load
from interp.need import Need
from interp.prompt import Prompt, PromptSet
from interp.reading.forward import capture
from interp.reading.readable import first_lacking
from interp.reductions import PromptMean
from interp.running.choose_probes import choose_probes

EVERYWHERE = Need("pattern_entropy", PromptMean(), at="all")
VALUES = Need("v")

_NEW: Any = list
"""Inside a trace of nnsight lists have `save`."""


@dataclass
class Reading:
    """What was read from one or all batches, `[layer, prompt, ...]`, and logits of the last position."""

    values: torch.Tensor | None = None
    entropy: torch.Tensor | None = None
    logits: torch.Tensor | None = None


@dataclass
class _Captured:
    """What hooks captured in a forward pass, layer by layer."""

    values: list[torch.Tensor] = field(default_factory=list)
    entropy: list[torch.Tensor] = field(default_factory=list)


After = Callable[[], None]
Run = Callable[[Sequence[torch.Tensor], After], list[Reading]]
"""Reads batches of token ids `[prompt, pos]` and calls back after each."""


@dataclass(frozen=True)
class Method:
    """`prepare(module, folder)` may change the module; `package` has to be installed."""

    label: str
    prepare: Callable[[Any, Path], Run]
    package: str | None = None
    side: str | None = None
    """A folder of packages in the environment, for those that need other versions."""

    @property
    def is_installed(self) -> bool:
        if self.side is not None:
            return (Path(sys.prefix) / self.side / str(self.package)).is_dir()
        return self.package is None or importlib.util.find_spec(self.package) is not None

    def ready(self) -> None:
        """Put the side folder first in the path; once, at the start of a process."""
        if self.side is not None:
            sys.path.insert(0, str(Path(sys.prefix) / self.side))


def batchwise(read: Callable[[torch.Tensor], Reading]) -> Run:
    """A method that reads one batch at a time."""

    def run(batches: Sequence[torch.Tensor], after: After) -> list[Reading]:
        found = []
        for ids in batches:
            found.append(read(ids))
            after()
        return found

    return run


def floor(module: Any, folder: Path) -> Run:
    """The plain forward pass with logits of the last position."""

    def read(ids: torch.Tensor) -> Reading:
        return Reading(logits=module(input_ids=ids, use_cache=False, logits_to_keep=1).logits[:, -1])

    return batchwise(read)


def needs_of_a_run(positions: str) -> tuple[Need, ...]:
    """The activations requested by all observational probes that share the prompts of a run."""
    probes = choose_probes(["all"], {"attention_entropy": {"positions": positions}}).probes
    return tuple(dict.fromkeys(need for probe in probes if probe.own_prompts is None for need in probe.needs))


def ours(needs_of: Callable[[], tuple[Need, ...]]) -> Callable[[Any, Path], Run]:
    """One capture of all batches, as a run makes it."""

    def prepare(module: Any, folder: Path) -> Run:
        model = load(module, check=False)
        needs = [need for need in needs_of() if first_lacking(model, [need]) is None]  # no lens is at hand

        def run(batches: Sequence[torch.Tensor], after: After) -> list[Reading]:
            rows = [row for ids in batches for row in ids.cpu().numpy()]
            prompts = PromptSet("benchmark", [Prompt(text=f"text {n}") for n in range(len(rows))])
            got = capture(
                model, prompts, rows, needs, tokens_per_batch=batches[0].numel(), progress=lambda done, of: after()
            )
            kept = [torch.from_numpy(got[n]) if n in got.arrays else None for n in (VALUES, EVERYWHERE)]
            return [Reading(*kept)]

        return run

    return prepare


def eager_hooks(module: Any, folder: Path) -> Run:
    """Plain forward hooks, with the attention rows that eager attention returns."""
    module.set_attn_implementation("eager")
    captured = _Captured()
    for attention in family_of(module.config).attention_modules(module):
        attention.register_forward_hook(lambda m, args, out: captured.entropy.append(mean_entropy(out[1])))
    _hook_values(module, captured)

    def read(ids: torch.Tensor) -> Reading:
        captured.values, captured.entropy = [], []
        logits = module(input_ids=ids, use_cache=False, logits_to_keep=1).logits[:, -1]
        return _stacked(captured.values, captured.entropy, logits)

    return batchwise(read)


def output_attentions(module: Any, folder: Path) -> Run:
    """`output_attentions=True`, which returns all patterns after the pass."""
    module.set_attn_implementation("eager")
    captured = _Captured()
    _hook_values(module, captured)

    def read(ids: torch.Tensor) -> Reading:
        captured.values = []
        out = module(input_ids=ids, use_cache=False, logits_to_keep=1, output_attentions=True)
        return _stacked(captured.values, [mean_entropy(w) for w in out.attentions], out.logits[:, -1])

    return batchwise(read)


def transformer_lens(is_filtered: bool, **options: Any) -> Callable[[Any, Path], Run]:
    """`run_with_cache`, for the names that are read or for all.

    Without `options` for the forward pass it is the documented call, which computes logits at every position.
    """

    def prepare(module: Any, folder: Path) -> Run:
        from transformer_lens.model_bridge import TransformerBridge

        n_layers = module.config.num_hidden_layers
        names = [f"blocks.{n}.attn.hook_{site}" for n in range(n_layers) for site in ("v", "pattern")]
        asked = options | ({"names_filter": names} if is_filtered else {})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            device = str(next(module.parameters()).device)
            bridge: Any = TransformerBridge.boot_transformers(str(folder), hf_model=module, device=device)

        def read(ids: torch.Tensor) -> Reading:
            logits, cache = bridge.run_with_cache(ids, **asked)
            heads = [cache[f"blocks.{n}.attn.hook_v"][:, -1] for n in range(n_layers)]
            values = [by_head(v.flatten(1), module.config) for v in heads]
            entropy = [mean_entropy(cache[f"blocks.{n}.attn.hook_pattern"]) for n in range(n_layers)]
            return _stacked(values, entropy, logits[:, -1])

        return batchwise(read)

    return prepare


def nnsight(module: Any, folder: Path) -> Run:
    """An nnsight trace with the reduction inside."""
    from nnsight import LanguageModel
    from transformers import AutoTokenizer

    module.set_attn_implementation("eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced: Any = LanguageModel(module, tokenizer=AutoTokenizer.from_pretrained(folder))
    config = module.config
    is_fused = config.model_type == "gpt_neox"
    blocks = traced.gpt_neox.layers if is_fused else traced.model.layers
    attentions = [block.attention if is_fused else block.self_attn for block in blocks]

    def read(ids: torch.Tensor) -> Reading:
        with traced.trace(ids, use_cache=False, logits_to_keep=1):
            values, entropy = _NEW().save(), _NEW().save()
            for attention in attentions:
                projected = attention.query_key_value.output if is_fused else attention.v_proj.output
                values.append(values_in(projected[:, -1], config))
                entropy.append(mean_entropy(attention.output[1]))
            logits = traced.output.logits[:, -1].save()
        return _stacked(values, entropy, logits)

    return batchwise(read)


def nnterp(module: Any, folder: Path) -> Run:
    """nnterp's own accessor of attention probabilities, reduced inside its trace; it loads the folder itself."""
    from nnterp import StandardizedTransformer

    first = next(module.parameters())
    device, dtype, config = str(first.device), first.dtype, module.config
    del module, first
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced: Any = StandardizedTransformer(str(folder), enable_attention_probs=True, device_map=device, dtype=dtype)
    is_fused = config.model_type == "gpt_neox"
    # the accessor rewrites a layer's code at first use, which must be before that layer runs
    with traced.trace(torch.ones(1, 2, dtype=torch.long)):
        for n in range(config.num_hidden_layers):
            traced.attention_probabilities[n].sum()

    def read(ids: torch.Tensor) -> Reading:
        with traced.trace(ids, use_cache=False, logits_to_keep=1):
            values, entropy = _NEW().save(), _NEW().save()
            for n in range(config.num_hidden_layers):
                attention = traced.layers[n].self_attn
                projected = attention.query_key_value.output if is_fused else attention.v_proj.output
                values.append(values_in(projected[:, -1], config))
                entropy.append(mean_entropy(traced.attention_probabilities[n]))
            logits = traced.output.logits[:, -1].save()
        return _stacked(values, entropy, logits)

    return batchwise(read)


def mean_entropy(weights: torch.Tensor) -> torch.Tensor:
    """Entropy in bits of attention rows `[prompt, head, pos, key_pos]`, averaged over positions."""
    return torch.special.entr(weights.float()).sum(dim=-1).mean(dim=-1) * BITS_PER_NAT


def values_in(projected: torch.Tensor, config: Any) -> torch.Tensor:
    """Values `[prompt, kv_head, d_head]` from the output of the (fused) projection at one position."""
    if config.model_type != "gpt_neox":
        return by_head(projected, config)
    return projected.unflatten(-1, (config.num_attention_heads, 3, -1))[:, :, 2].clone()


def by_head(values: torch.Tensor, config: Any) -> torch.Tensor:
    return values.unflatten(-1, (family_of(config).head_shape(config).n_kv_heads, -1)).clone()


def _hook_values(module: Any, captured: _Captured) -> None:
    for attention in family_of(module.config).attention_modules(module):
        projection: Any = getattr(attention, "query_key_value", None) or getattr(attention, "v_proj")  # noqa: B009
        projection.register_forward_hook(
            lambda m, args, out: captured.values.append(values_in(out[:, -1], module.config))
        )


def _stacked(values: Any, entropy: Any, logits: torch.Tensor) -> Reading:
    return Reading(torch.stack(list(values)), torch.stack(list(entropy)), logits)


METHODS: dict[str, Method] = {
    "floor": Method("plain forward pass (the floor)", floor),
    "ours-same": Method("interp, the same two alone", ours(lambda: (VALUES, EVERYWHERE))),
    "ours-last": Method("interp, last position", ours(lambda: needs_of_a_run("scored"))),
    "ours-entropy": Method("interp, entropy everywhere", ours(lambda: (*needs_of_a_run("scored"), EVERYWHERE))),
    "ours-all": Method("interp, `--probe all`", ours(lambda: needs_of_a_run("both"))),
    "eager-hooks": Method("eager attention, plain hooks", eager_hooks),
    "output-attentions": Method("output_attentions=True", output_attentions),
    "lens-filtered": Method("TransformerLens, names filtered", transformer_lens(True), "transformer_lens"),
    "lens-last": Method(
        "TransformerLens, names filtered, logits of the last position",
        transformer_lens(True, use_cache=False, logits_to_keep=1),
        "transformer_lens",
    ),
    "lens-whole": Method("TransformerLens, whole cache", transformer_lens(False), "transformer_lens"),
    "nnsight": Method("nnsight, reduced in its trace", nnsight, "nnsight"),
    "nnterp": Method("nnterp, reduced in its trace", nnterp, "nnterp", side="nnterp"),
}
