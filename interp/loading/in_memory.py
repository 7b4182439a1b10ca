"""Models that are passed as objects: TransformerLens bridges are unwrapped, unreadable objects raise an error."""

import copy
from collections import OrderedDict
from typing import Any

import torch
from transformers import PreTrainedModel

from interp.errors import InterpError, ModelError, UsageError
from interp.hooks.attention import claimed
from interp.model import Check, Model

_BOUND = 1e-3
BRIDGE = "transformer_lens.", "TransformerBridge"
_ADAPTED = "peft.", "BaseTunerLayer"
"""A layer that PEFT wraps around one of a model."""
_PROMPTED = "peft.", "PeftModel"


def is_a(thing: object, kind: tuple[str, str]) -> bool:
    """Whether an object is of a class of another package, without importing the package."""
    return any(c.__module__.startswith(kind[0]) and c.__name__ == kind[1] for c in type(thing).__mro__)


def plain_module(bridge: Any) -> PreTrainedModel:
    """The transformers model inside a bridge, sharing its parameters; the bridge stays as it is.

    A bridge computes attention itself, without the attention hook.
    """
    configs: dict[int, Any] = {}

    def plain(module: Any) -> Any:
        """A copy without wrappers, hooks or shared configuration, with the same parameters and buffers."""
        while type(module).__module__.startswith(BRIDGE[0]):
            module = module.original_component
        copied = copy.copy(module)
        for hooks in ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_with_kwargs",
                      "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called"):  # fmt: skip
            setattr(copied, hooks, OrderedDict())
        copied.__dict__["_modules"] = {name: plain(child) for name, child in module._modules.items()}
        if hasattr(copied, "config"):
            copied.config = configs.setdefault(id(copied.config), copy.deepcopy(copied.config))
        return copied

    return plain(bridge.original_model)


def bridge_check(bridge: Any, model: Model) -> Check:
    """Check that model and bridge give the same logits; raises `ModelError` for processed weights or changed parts."""
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


def not_a_model(thing: Any) -> InterpError:
    """The error for an object that is not a model; names a model inside it."""
    parts = thing.named_modules() if isinstance(thing, torch.nn.Module) else getattr(thing, "__dict__", {}).items()
    inner = next(((name, part) for name, part in parts if isinstance(part, PreTrainedModel)), None)
    if inner is None or isinstance(thing, type):
        found = "it is neither a name, nor a transformers model, nor a TransformerLens bridge"
        fix = "Give a name, a folder, a PreTrainedModel or a TransformerBridge."
    else:
        found = f"it is a wrapper around a {type(inner[1]).__name__} (.{inner[0]})"
        is_adapted = any(is_a(part, _ADAPTED) for part in inner[1].modules())
        fix = _MERGE if is_adapted else f"Give what is inside: `interp.load(given.{inner[0]})`."
        if is_a(thing, _PROMPTED) and not is_adapted:
            found += ", with an adapter that puts prompts or prefixes before every text and changes no weights"
            fix += " That is the model without its adapter."
    return UsageError(asked=f"loading the {type(thing).__name__}", found=found, fix=fix)


_ROUNDING = ("torch.ao.nn.", "torchao.", "optimum.quanto.")
"""Modules with the classes of parts and weights that packages quantised in memory."""

_MERGE = (
    "Merge it: give what `PeftModel.merge_and_unload()` returns, or name base and adapter, "
    "`interp.load(base, adapter=folder)`."
)


def refuse_unreadable(module: PreTrainedModel) -> None:
    """Raise `ModelError` for adapters beside the weights, parts quantised in memory, and weights on `meta`."""
    for name, part in module.named_modules():
        # a hook of accelerate loads these when they are needed
        own = {} if hasattr(part, "_hf_hook") else part._parameters
        kinds = [type(part), *map(type, own.values())]
        rounded = next((kind for kind in kinds if kind.__module__.startswith(_ROUNDING)), None)
        absent = [key for key, weight in own.items() if weight is not None and weight.is_meta]
        if is_a(part, _ADAPTED):
            found, fix = f"it contains an adapter of PEFT ({name}): `W_Q` and others would be those of its base", _MERGE
        elif rounded is not None:
            package = rounded.__module__.partition(".")[0]
            found = (
                f"{package} quantised it ({name}, {rounded.__name__}): weights per head cannot be read from such parts"
            )
            fix = "Give the model as it was before `quantize_dynamic`, `quantize_` or `quantize`: keep a copy.deepcopy."
        elif absent:
            found = f"weights are on the device meta, without numbers ({name}.{absent[0]})"
            fix = "Read them: `from_pretrained(...)` outside of torch.device('meta'), or load it by its name."
        else:
            continue
        raise ModelError(asked=f"reading the {type(module).__name__} in memory", found=found, fix=fix)
