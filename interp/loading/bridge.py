"""A TransformerLens bridge as a model: the transformers modules inside it, without the wrappers, on the same weights.

A bridge runs its own attention around the parts of a transformers model, so our attention function would not run in it.
What is read instead is the model that it wraps: the same parameters, no second copy. Whether that is what the bridge
computes is a check of its own: a bridge with processed weights (folded norms, say) or changed parts is refused.
"""

import copy
from collections import OrderedDict
from typing import Any

import torch
from transformers import PreTrainedModel

from interp.errors import ModelError
from interp.hooks.attention import claimed
from interp.model import Check, Model

_BOUND = 1e-3
_WRAPPERS = "transformer_lens."


def is_bridge(thing: object) -> bool:
    """Whether this is a `TransformerBridge`; TransformerLens is not imported to find out."""
    return any(c.__name__ == "TransformerBridge" and c.__module__.startswith(_WRAPPERS) for c in type(thing).__mro__)


def plain_module(bridge: Any) -> PreTrainedModel:
    """The transformers model inside a bridge, sharing its parameters; the bridge is left as it is."""
    return _Unwrapping().plain(bridge.original_model)


def bridge_check(bridge: Any, model: Model) -> Check:
    """That the plain model computes what the bridge computes. Raises `ModelError` where it does not."""
    ids = torch.arange(min(9, model.info.vocab_size), device=model.input_device)[None]
    with claimed(model), torch.inference_mode():
        ours, theirs = model.module(input_ids=ids, use_cache=False).logits.float(), bridge(ids).float()
    error = float((ours - theirs).abs().max() / theirs.abs().max())
    check = Check("bridge", "logits equal the TransformerLens bridge's", error <= _BOUND, error, _BOUND)
    if not check.passed:
        raise ModelError(
            asked=f"reading the TransformerLens bridge of {model.name}",
            found=f"the model inside it gives other logits than the bridge (relative error {error:.2g})",
            fix="Create it without weight processing and without changed parts, or pass its transformers model.",
        )
    return check


class _Unwrapping:
    """Copies modules without their wrappers, hooks or shared configuration; parameters and buffers stay the same."""

    def __init__(self) -> None:
        self.configs: dict[int, Any] = {}

    def plain(self, module: Any) -> Any:
        while type(module).__module__.startswith(_WRAPPERS):
            module = module.original_component
        twin = copy.copy(module)
        for hooks in ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_with_kwargs",
                      "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called"):  # fmt: skip
            setattr(twin, hooks, OrderedDict())
        twin.__dict__["_modules"] = {name: self.plain(child) for name, child in module._modules.items()}
        if hasattr(twin, "config"):
            twin.config = self.configs.setdefault(id(twin.config), copy.deepcopy(twin.config))
        return twin
