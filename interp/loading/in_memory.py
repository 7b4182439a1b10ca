"""What is handed over in memory in place of a model that can be read: named before anything runs, with what to do."""

from collections.abc import Iterator
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from interp.errors import InterpError, ModelError, UsageError


def not_a_model(thing: Any) -> InterpError:
    """The refusal of a thing that is no model: one round a model, a class, a configuration, or anything else."""
    kind = type(thing).__name__
    inner = _inside(thing)
    if isinstance(thing, type):
        kind, found = thing.__name__, "it is a class, not a model made of it"
        fix = f"Give a model: `{kind}.from_pretrained(...)`, or the name or folder itself."
    elif isinstance(thing, PreTrainedConfig):
        found, fix = "it is a configuration, which has no weights", "Give the name or folder that the weights are of."
    elif inner is None:
        found = "it is neither a name, nor a transformers model, nor a TransformerLens bridge"
        fix = "Give a name, a folder, a PreTrainedModel or a TransformerBridge."
    else:
        where, model = inner
        found = f"it is a wrapper around a {type(model).__name__} (.{where})"
        has_words = not isinstance(thing, torch.nn.Module) and getattr(thing, "tokenizer", None) is not None
        words = f", tokenizer={_NAME}.tokenizer" if has_words else ""
        fix = f"Give what is inside: `interp.load({_NAME}.{where}{words})`."
        if any(_adapters(model)):
            fix = _MERGE
        elif type(thing).__module__.startswith("peft."):
            fix = f"Only adapters that change weights can be merged; `{_NAME}.{where}` is the base without this one."
    return UsageError(asked=f"loading the {kind}", found=found, fix=fix)


def refuse_unreadable(module: PreTrainedModel) -> None:
    """`ModelError` for adapters beside the weights, for parts that PyTorch quantised, and for weights on `meta`."""
    adapted, rounded, absent = (next(found(module), None) for found in (_adapters, _quantised, _absent))
    if adapted is not None:
        found, fix = f"an adapter of PEFT lies in it ({adapted}): `W_Q` and others would be those of its base", _MERGE
    elif rounded is not None:
        found = f"PyTorch quantised it ({rounded}): weights per head cannot be read from such parts"
        fix = "Give the model as it was before `quantize_dynamic`, which works on a copy unless you pass inplace=True."
    elif absent is not None:
        found = f"weights are on the device meta, without numbers ({absent})"
        fix = "Read them: `from_pretrained(...)` outside of torch.device('meta'), or give its name to `interp.load`."
    else:
        return
    raise ModelError(asked=f"reading the {type(module).__name__} in memory", found=found, fix=fix)


_NAME = "given"
_MERGE = (
    "Merge it: give what `PeftModel.merge_and_unload()` returns, or name base and adapter, "
    "`interp.load(base, adapter=folder)`."
)


def _inside(thing: Any) -> tuple[str, PreTrainedModel] | None:
    """Where a model lies in a thing of another kind: inside a module, or as the `model` of a pipeline."""
    parts = thing.named_modules() if isinstance(thing, torch.nn.Module) else getattr(thing, "__dict__", {}).items()
    return next(((name, part) for name, part in parts if isinstance(part, PreTrainedModel)), None)


def _adapters(module: torch.nn.Module) -> Iterator[str]:
    """Names of the layers that PEFT put round those of a model; PEFT is not imported to find out."""
    for name, part in module.named_modules():
        if any(c.__name__ == "BaseTunerLayer" and c.__module__.startswith("peft.") for c in type(part).__mro__):
            yield name


def _quantised(module: torch.nn.Module) -> Iterator[str]:
    for name, part in module.named_modules():
        if type(part).__module__.startswith("torch.ao.nn."):
            yield f"{name}, {type(part).__name__}"


def _absent(module: torch.nn.Module) -> Iterator[str]:
    """Names of weights without numbers that accelerate does not bring in when they are needed."""
    for name, part in module.named_modules():
        if not hasattr(part, "_hf_hook"):
            yield from (f"{name}.{key}" for key, p in part._parameters.items() if p is not None and p.is_meta)
