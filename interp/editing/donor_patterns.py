"""The queries and keys of another model, the donor, on the same tokens, to replace those of a model.

The donor runs right before each pass of the model, on the same input and under the same window, up to the last layer
that is needed. Both models must agree in shape, tokens and positions: `refuse_unlike`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

import torch

from interp.edits import PatternsOf
from interp.errors import UsageError
from interp.hooks.attention import Listener, Ours, in_own_thread, listening
from interp.hooks.block_hooks import EnoughRead, ending
from interp.hooks.own_attention import cache_given
from interp.hooks.pattern import AttentionCall
from interp.hooks.window import window_here
from interp.model import Model

_OF_INPUT = ("input_ids", "attention_mask", "position_ids")


class DonorPatterns(Listener):
    """Queries and keys of a donor at some layers in the current pass."""

    def __init__(self, donor: Model, layers: Sequence[int]) -> None:
        self.donor, self.layers = donor, frozenset(layers)
        self._kept: dict[tuple[str, int], torch.Tensor] = {}

    def before(self, call: AttentionCall) -> None:
        if call.layer in self.layers:
            for site, x in (("q", call.q), ("k", call.k)):
                self._kept[site, call.layer] = x.transpose(1, 2).flatten(2)  # [batch, pos, feature]

    def take(self, site: str, layer: int) -> torch.Tensor:
        """Queries or keys of the pass, heads concatenated; each can be taken once."""
        if (site, layer) not in self._kept:
            raise UsageError(
                asked=f"attention patterns of {self.donor.name}",
                found="only a part of the model was run, so the source model got no tokens",
                fix="Run the whole model: model.module(input_ids=...).",
            )
        return self._kept.pop((site, layer))

    def following(self, model: Model, ours: Ours) -> AbstractContextManager[object]:
        """Run the donor before every pass of `model` inside the block, in threads that are `ours`."""
        window = window_here()

        def run(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = dict(zip(_OF_INPUT, args, strict=False)) | kwargs
            if given.get("input_ids") is None or cache_given(given) is not None:
                raise UsageError(
                    asked=f"attention patterns of {self.donor.name}",
                    found="the model was given no token ids, or a cache of earlier ones",
                    fix="Give whole sequences: model.module(input_ids=..., use_cache=False).",
                )
            place = self.donor.input_device
            same = {name: given[name].to(place) for name in _OF_INPUT if given.get(name) is not None}
            self._kept = {}
            ends = ending(self.donor, max(self.layers) + 1)
            with suppress(EnoughRead), torch.no_grad(), listening(self.donor, *window, self), ends:
                self.donor.module(**same, use_cache=False)

        return model.module.register_forward_pre_hook(in_own_thread(ours, run), with_kwargs=True)


def refuse_unlike(edit: PatternsOf, model: Model) -> None:
    """Raise `UsageError` if the donor is not loaded, or its patterns would mean something else in this model."""
    for found, fix in _obstacles(edit, model):
        raise UsageError(asked=str(edit), found=found, fix=fix)


def _obstacles(edit: PatternsOf, model: Model) -> Iterator[tuple[str, str]]:
    donor = edit.donor
    if not isinstance(donor, Model):
        found = f"{edit.donor_name} is a name, not a loaded model"
        yield found, "Give donor=interp.load(name); a run with --edit loads it by itself."
        return
    if donor.module is model.module:
        yield "donor and model are the same object", "Load another model, or load this one twice."
    for what, of in _SHARED.items():
        theirs, own = of(donor), of(model)
        if theirs != own:
            found = f"the {what} of {donor.name} and {model.name} are not the same"
            fix = "Choose a donor of the same shape with the same tokens: another step, seed or fine-tuning."
            yield f"{found}: {theirs!s:.120} there, {own!s:.120} here", fix
    words = [each.tokenizer.get_vocab() for each in (donor, model) if each.tokenizer is not None]
    if len(words) == 2 and words[0] != words[1]:
        found = f"the tokenizers of {donor.name} and {model.name} have different tokens"
        yield found, "Choose a donor that reads the same tokens."


def _settings(*names: str) -> Callable[[Model], object]:
    return lambda model: {name: getattr(model.config, name, None) for name in names}


_SHARED: dict[str, Callable[[Model], object]] = {
    "layers": lambda model: model.info.n_layers,
    "heads": lambda model: (model.info.n_heads, model.info.n_kv_heads),
    "head sizes": lambda model: model.info.d_head,
    "vocabularies": lambda model: model.info.vocab_size,
    "tasks": lambda model: model.task.name if model.task is not None else None,
    "attention windows": _settings("sliding_window", "use_sliding_window", "layer_types"),
    "rotary settings": lambda model: (model.info.n_rotary, _settings("rope_parameters", "no_rope_layers")(model)),
    "learnt sinks": lambda model: [
        p.tolist() for name, p in model.module.named_parameters() if name.endswith(".sinks")
    ],
    "scales of scores": lambda model: (
        _settings("attn_logit_softcapping")(model),
        [getattr(module, "scaling", None) for module in model.family.attention_modules(model.module)],
    ),
}
"""Properties that must be equal in both models, in the order in which they are compared."""
