"""Checks, whenever a model is read or edited, that it still is as described when it was loaded.

Its owner may have trained, cast, resized or compiled it. Changes that affect numbers raise an error; compiled code,
which ignores hooks, is set aside until the reading ends.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from typing import Any

import torch
from torch._dynamo import OptimizedModule
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from interp.errors import ModelError, UsageError
from interp.model import Model


def weights_of(*modules: torch.nn.Module) -> dict[str, Any]:
    """The current `n_parameters` (tied ones once), `dtype` (the coarsest of several) and `device` of a model."""
    n, kinds, places = 0, set(), set()
    for parameter in {id(p): p for module in modules for p in module.parameters()}.values():
        n += parameter.numel()
        kinds.add(parameter.dtype)
        places.add("offloaded" if parameter.is_meta else str(parameter.device))
    # One byte per number is quantised, and is computed with in another precision.
    plain = [kind for kind in kinds if kind.is_floating_point and kind.itemsize > 1]
    dtype = max(plain, key=lambda kind: torch.finfo(kind).eps, default=torch.get_default_dtype())
    return {"n_parameters": n, "dtype": _name(dtype), "device": ", ".join(sorted(places))}


@contextmanager
def as_described(model: Model) -> Iterator[None]:
    """Let a model be read or edited inside the block, uncompiled and as described.

    Raises `UsageError` for settings that change its passes, `ModelError` if the model itself has changed.
    """
    parts = [*model.module.modules()]
    refuse_mode(model)
    _refuse_training(model, parts)
    _refuse_changed(model, parts)
    with _uncompiled(parts):
        yield


def refuse_mode(model: Model) -> None:
    """Raise `UsageError` for settings that may change between passes: mode, autocast, default dtype, kind of output."""
    for found, fix in _modes(model):
        raise UsageError(asked=f"reading {model.name}", found=found, fix=fix)


def _modes(model: Model) -> Iterator[tuple[str, str]]:
    """Settings that would change a pass, with what to do about each."""
    if model.module.training:
        yield _in_training("it")
    default = torch.get_default_dtype()
    if default.itemsize < 4:
        yield (
            f"PyTorch's default dtype is {_name(default)}: sums and softmaxes beside the model would be rounded to it",
            "Call torch.set_default_dtype(torch.float32); the dtype of a model is an argument of its loading.",
        )
    for kind in {place.partition(":")[0] for place in model.info.device.split(", ")} - {"offloaded", ""}:
        if torch.is_autocast_enabled(kind):
            yield (
                f"torch.autocast is on: products are rounded to {_name(torch.get_autocast_dtype(kind))}, and the model "
                f"is described as {model.info.dtype}",
                "Read it outside of the autocast block; to measure in half precision, load the model in it.",
            )
    if torch.get_default_device().type == "meta":
        yield (
            "PyTorch's default device is meta, where tensors have no numbers",
            "Read it outside of `torch.device('meta')`, or call torch.set_default_device('cpu').",
        )
    if model.info.dtype == "float32" and torch.get_float32_matmul_precision() == "medium":
        yield (
            "PyTorch's precision of float32 products is 'medium': they may be rounded to bfloat16",
            "Call torch.set_float32_matmul_precision('highest').",
        )
    kernel = str(model.config._attn_implementation)
    computed: Any = ALL_ATTENTION_FUNCTIONS.get(kernel)
    home = getattr(getattr(computed, "func", computed), "__module__", "interp.")
    if not home.startswith(("transformers.", "interp.")) and "/" not in kernel:  # a kernel of the hub has such a name
        yield (
            f"its attention is computed by {kernel!r}, which is not one of transformers and which hooks would replace",
            "Call `model.set_attn_implementation('sdpa')` first, if that is the same attention.",
        )
    if getattr(model.module.config, "return_dict", True) is False:
        yield (
            "its configuration says return_dict=False, so that passes give plain tuples",
            "Set `model.config.return_dict = True` first; of a folder, `return_dict` in its config.json.",
        )


def _in_training(what: str) -> tuple[str, str]:
    found = f"{what} is in training mode, where dropout makes every pass different"
    return found, "Call `.eval()` on the model first, and `.train()` again when training continues."


def _refuse_training(model: Model, parts: list[torch.nn.Module]) -> None:
    dropping = {id(part) for part in parts if part.training and _drops(part)}
    if dropping:
        where = next(name for name, part in model.module.named_modules() if id(part) in dropping)
        found, fix = _in_training(f"its part {where}")
        raise UsageError(asked=f"reading {model.name}", found=found, fix=fix)


def _drops(part: torch.nn.Module) -> bool:
    """Whether a part is random in training mode: it has a rate of dropout or noise."""
    named = {f"{type(part).__name__}.{name}".lower(): value for name, value in vars(part).items()}
    return any(
        isinstance(value, float) and value > 0 and ("drop" in name or "jitter" in name) for name, value in named.items()
    )


def _refuse_changed(model: Model, parts: list[torch.nn.Module]) -> None:
    now, info = weights_of(*_read(model)), model.info
    changes = []
    if new := {type(part) for part in parts} - model.kinds - {OptimizedModule}:
        named = model.module.named_modules()
        changes = [f"its part {name} is a {type(part).__name__}" for name, part in named if type(part) in new][:1]
    elif now["n_parameters"] != info.n_parameters:
        changes.append(f"it has {now['n_parameters']:,} parameters and had {info.n_parameters:,}")
    changes += [
        f"its weights are {what} {now[name]} and were {what} {getattr(info, name)}"
        for name, what in (("dtype", "in"), ("device", "on"))
        if now[name] != getattr(info, name)
    ]
    if changes:
        raise ModelError(
            asked=f"reading {model.name}",
            found=f"it has changed since it was loaded: {'; '.join(changes)}",
            fix="Load it as it is now: `interp.load(model.module, tokenizer=model.tokenizer)`.",
        )


def _read(model: Model) -> tuple[Any, ...]:
    """The modules that process text: all, or the language model and head of a multimodal one."""
    if model.info.text_part_of is None:
        return (model.module,)
    return attrgetter(model.family.layers.rpartition(".")[0])(model.module), model.module.get_output_embeddings()


@contextmanager
def _uncompiled(parts: list[torch.nn.Module]) -> Iterator[None]:
    """Let every part run its own Python code: compiled code keeps the hooks and attention that it was made with.

    Covers `module.compile()`, `torch.compile` of a part or of its `forward`, and the `forward` under autocast of models
    that accelerate has prepared for mixed precision.
    """
    with ExitStack() as stack:
        for part in parts:
            if part._compiled_call_impl is not None:
                stack.enter_context(held(part, "_compiled_call_impl", None))
            original = vars(part).get(_UNROUNDED) or getattr(vars(part).get("forward"), _ORIGINAL, None)
            if original is not None:
                stack.enter_context(held(part, "forward", original))
        yield


_ORIGINAL, _UNROUNDED = "_torchdynamo_orig_callable", "_original_forward"
"""Attributes with the original function of torch.compile, and the `forward` without autocast of accelerate."""

_NOTHING = object()


@contextmanager
def held(part: Any, name: str, value: object) -> Iterator[None]:
    """Set an attribute of an object inside the block, and restore it, or its absence, afterwards."""
    before = vars(part).get(name, _NOTHING)
    setattr(part, name, value)
    try:
        yield
    finally:
        if before is _NOTHING:
            delattr(part, name)
        else:
            setattr(part, name, before)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
