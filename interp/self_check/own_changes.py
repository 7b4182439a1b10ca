"""What its owner changed in a model that failed a check or a pass: the reason in words, where one is found.

The model is compared with a twin that transformers makes of its configuration, without weights, and looked at for
hooks, forwards and precisions of its owner's. None of that is looked at while all checks pass: such a model is read as
it is.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import torch

from interp.model import Model

_LIBRARIES = ("transformers.", "accelerate.", "torch.", "interp.")
_HOOKS = ("_forward_pre_hooks", "_forward_hooks")


@dataclass(frozen=True)
class Change:
    """What was found, and what to do about it."""

    found: str
    fix: str


def change_found(model: Model) -> Change | None:
    """The first change of its owner's that is found in a model; None where it is as transformers makes it."""
    looks = (_of_layers, _of_parts, _of_hooks, _of_forwards, _of_precisions)
    return next((change for look in looks if (change := look(model)) is not None), None)


def _of_layers(model: Model) -> Change | None:
    """Layers removed or added."""
    n_layers, stated = len(model.family.layer_modules(model.module)), model.family.n_layers(model.config)
    if n_layers == stated:
        return None
    return Change(
        f"it has {n_layers} layers, and its configuration says {stated}",
        "Set `config.num_hidden_layers` to the number of layers and each `layer_idx` to its place from 0 on, or make "
        "the model anew from a configuration with that number.",
    )


def _of_parts(model: Model) -> Change | None:
    """A part of another kind, shape or size than its configuration makes; not of quantised models, whose parts are."""
    if model.info.quantisation is not None:
        return None
    config = copy.deepcopy(model.module.config)
    try:
        with torch.device("meta"):
            twin = type(model.module)(config)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        return Change(f"no model can be made of its configuration any more ({error})", "Set it back to what it was.")
    made, has = _described(twin), _described(model.module)
    name = next((name for name in made if has.get(name) != made[name]), None)
    if name is None:
        return None
    # The outermost part that differs: where a layer is another one, so is all that would be inside.
    name = next(outer for outer in accumulate(name.split("."), "{}.{}".format) if has.get(outer) != made[outer])
    now, then = has.get(name, "missing"), made[name]
    differs_in_rows = now.partition(" x ")[2] == then.partition(" x ")[2] != ""
    if differs_in_rows and name.removesuffix(".weight") in _ends(model.module):
        fix = (
            "Set `config.vocab_size` to the rows of embedding and head; `resize_token_embeddings(n)` changes them all."
        )
    else:
        fix = "Set the configuration to what the model has, or the part to what the configuration says."
    return Change(f"{name} is {now}, and its configuration makes it {then}", fix)


def _described(module: torch.nn.Module) -> Mapping[str, str]:
    """Shapes of all parameters, then the kind of every part and the whole numbers that it holds, by name."""
    found = {name: " x ".join(map(str, p.shape)) for name, p in module.named_parameters(remove_duplicate=False)}
    for name, part in module.named_modules():
        found[name] = type(part).__name__
        counts = {key: n for key, n in vars(part).items() if type(n) is int and "cached" not in key}
        found |= {f"{name}.{key}": str(n) for key, n in counts.items() if not key.startswith("_")}
    return found


def _ends(module: Any) -> set[str]:
    ends = (module.get_input_embeddings(), module.get_output_embeddings())
    return {name for name, part in module.named_modules() if any(part is end for end in ends)}


def _of_hooks(model: Model) -> Change | None:
    for name, part in model.module.named_modules():
        for kind in _HOOKS:
            for hook in vars(part)[kind].values():
                if not _is_of_library(hook):
                    return Change(
                        f"{_part(name)} has a hook that is no library's ({_called(hook)})",
                        "Remove it (`handle.remove()`) before the model is loaded, and add it afterwards: it acts in "
                        "readings too. To edit a pass, use `interp.applied`.",
                    )
    return None


def _is_of_library(hook: Any) -> bool:
    """Whether a hook is of transformers, accelerate or torch, which take part in the model as it is."""
    hook = hook.func if isinstance(hook, partial) else hook
    home = getattr(hook, "__module__", None) or type(hook).__module__
    return home.startswith(_LIBRARIES)


def _of_forwards(model: Model) -> Change | None:
    for name, part in _patched(model.module):
        return Change(
            f"{_part(name)} has a forward of its own ({_called(part.forward)}) in place of its class's",
            "Take it off (`del part.forward`); other mathematics needs a class and a registered family.",
        )
    return None


def _patched(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Parts whose `forward` was put on the object; those of accelerate and torch.compile pass on to the class's."""
    for name, part in module.named_modules():
        own = vars(part).get("forward")
        if own is not None and not hasattr(part, "_hf_hook") and not hasattr(own, "_torchdynamo_orig_callable"):
            yield name, part


def _of_precisions(model: Model) -> Change | None:
    """Several precisions; what transformers keeps in float32 beside half precision is not counted."""
    module: Any = model.module
    kept = {*(module._keep_in_fp32_modules or ()), *(module._keep_in_fp32_modules_strict or ())}
    first: dict[torch.dtype, str] = {}
    for name, parameter in module.named_parameters():
        if parameter.is_floating_point() and not any(part in name for part in kept):
            first.setdefault(parameter.dtype, name)
    if len(first) < 2:
        return None
    held = " and ".join(f"{str(kind).removeprefix('torch.')} ({name})" for kind, name in first.items())
    return Change(f"its weights are in several precisions: {held}", "Cast the whole model, `model.to(torch.float32)`.")


def _part(name: str) -> str:
    return f"its part {name}" if name else "the model as a whole"


def _called(thing: Any) -> str:
    return getattr(thing, "__qualname__", None) or type(thing).__qualname__
