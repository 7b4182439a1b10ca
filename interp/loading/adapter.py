"""LoRA adapters in PEFT's files, merged into the weights before anything is read."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file

from interp.errors import ModelError, optional_part
from interp.loading.hub_files import ModelFiles, files_in_folder, files_on_hub
from interp.loading.quiet_libraries import quiet_libraries
from interp.model import Check
from interp.system.foreign_files import is_folder, read_json, readable
from interp.system.rounding import BOUND, relative_error

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

_N_TOKENS = 16
"""Tokens on which the merged model is compared with base and adapter."""

_ROUNDED_AGAIN = 3
"""Factor on the bound of two kernels, because every changed weight is rounded once more."""


def locate_adapter(name: str) -> ModelFiles:
    """The files of an adapter: a folder that PEFT's `save_pretrained` wrote, or a repository of the hub (@revision)."""
    folder, (hub_id, _, revision) = Path(name).expanduser(), name.partition("@")
    is_on_hub = name.count("/") == 1 and not name.startswith((".", "/", "~")) and not is_folder(folder)
    files = files_on_hub(hub_id, revision or None, CONFIG) if is_on_hub else files_in_folder(folder, CONFIG)
    if WEIGHTS not in files.names:
        raise ModelError(
            asked=f"the adapter {name}",
            found=f"there is no {WEIGHTS} in it ({', '.join(sorted(files.names)[:5])})",
            fix="Give the folder that PEFT's `save_pretrained` wrote, with its weights as safetensors.",
        )
    return files


def merge_adapter(
    module: "PreTrainedModel", base: str, name: str, files: ModelFiles
) -> "tuple[PreTrainedModel, Check]":
    """The model with the adapter's changes in its weights, and a check that it predicts what PEFT's layers do.

    Tied embeddings become two weights if the adapter changes them differently. Raises `UsageError` if PEFT is missing,
    and `ModelError` if the adapter is damaged, of another kind or base, or predicts something else once merged.
    """
    asked = f"the adapter {name} on {base}"
    with optional_part("peft", asked):
        from peft import PeftModel, get_peft_model_state_dict
    files.fetch([CONFIG, WEIGHTS])
    shapes = _shapes(asked, files)
    _refuse_unfit(asked, base, files)
    before = _squares(module)
    fix = "Name the base that it was trained on, and an adapter as it was saved."
    with readable(asked, fix, found="it does not fit", error=ModelError), quiet_libraries():
        adapted = PeftModel.from_pretrained(module, str(files.folder))
        placed = {key: tuple(x.shape) for key, x in get_peft_model_state_dict(adapted).items()}
        if placed != shapes:
            key = min(key for key in placed.keys() | shapes.keys() if placed.get(key) != shapes.get(key))
            lacks = key not in shapes
            found = f"{'its file lacks' if lacks else 'the model has no place for'} {key}"
            raise ModelError(asked=asked, found=found, fix="It belongs to another base or was edited; save it again.")
        adapted.eval()
        expected = _logits(adapted)
        _part_shared_weights(adapted)
    fix = "Only an adapter that changes weights and nothing else can be read: measure its base, or another adapter."
    with readable(asked, fix, found="it cannot be merged into the weights", error=ModelError), quiet_libraries():
        merged: Any = adapted.merge_and_unload(safe_merge=True).eval()
        error = relative_error(_logits(merged), expected)
    after = _squares(merged)
    moved = sum(after[key] != before[key] for key in before)
    if not moved:
        raise ModelError(asked=asked, found="it changes no weight: it was not trained", fix="Leave --adapter out.")
    bound = _ROUNDED_AGAIN * BOUND[str(merged.dtype).removeprefix("torch.")]
    if not error <= bound:
        raise ModelError(
            asked=asked,
            found=f"merged into the weights, its predictions differ from those of PEFT: error {error:.2g} of the "
            f"largest logit, at most {bound:.2g} by rounding",
            fix="Merge it yourself, save the model, and name its folder without --adapter.",
        )
    check = Check(
        "adapter", "merged weights predict what the adapter beside them does", True, error, bound,
        detail=f"{len(shapes)} tensors of {name} change {moved} weights; relative error of the logits",
    )  # fmt: skip
    return merged.requires_grad_(False), check


def _logits(module: Any) -> torch.Tensor:
    n = module.config.vocab_size
    ids = torch.linspace(0, n - 1, min(n, _N_TOKENS)).long()[None].to(module.device)
    with torch.inference_mode():
        return module(input_ids=ids, use_cache=False).logits


def _part_shared_weights(adapted: torch.nn.Module) -> None:
    """Copy shared weights in every layer that an adapter changes, so that their other users stay the same."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    users = Counter(id(p) for part in adapted.modules() for p in part.parameters(recurse=False))
    for part in adapted.modules():
        layer: Any = part.get_base_layer() if isinstance(part, BaseTunerLayer) else None
        weight = getattr(layer, "weight", None)
        if weight is not None and users[id(weight)] > 1:
            users[id(weight)] -= 1
            layer.weight = torch.nn.Parameter(weight.detach().clone(), requires_grad=False)


def _refuse_unfit(asked: str, base: str, files: ModelFiles) -> None:
    with readable(asked, "Save it again.", found=f"{CONFIG} cannot be read", error=ModelError):
        config = read_json(files.folder / CONFIG)
        kind, trained_on = config.get("peft_type"), str(config.get("base_model_name_or_path") or "")
    if kind != "LORA":
        fix = "Only low-rank adapters (LORA) are merged; merge others yourself."
        raise ModelError(asked=asked, found=f"its kind is {kind}", fix=fix)
    if config.get("megatron_config") is not None:
        found = f"it names a module to import ({config.get('megatron_core')})"
        raise ModelError(asked=asked, found=found, fix="Use an adapter as PEFT saved it.")
    both_on_hub = all(name.count("/") == 1 and not is_folder(name) for name in (base, trained_on))
    if both_on_hub and base.lower() != trained_on.lower():
        raise ModelError(
            asked=asked,
            found=f"it was trained on {trained_on}",
            fix=f"Use --model {trained_on}, or another adapter.",
        )


def _shapes(asked: str, files: ModelFiles) -> dict[str, tuple[int, ...]]:
    fix = "Copy or save the adapter again."
    with readable(asked, fix, found=f"{WEIGHTS} is truncated or corrupt", error=ModelError):
        tensors = load_file(files.folder / WEIGHTS)
    for key, tensor in tensors.items():
        is_rounded = tensor.dtype.itemsize == 1
        if is_rounded or not tensor.isfinite().all():
            what = f"is rounded to {tensor.dtype}" if is_rounded else "has values that are not finite"
            raise ModelError(asked=asked, found=f"{key} {what}", fix="Save the adapter again.")
    return {key: tuple(tensor.shape) for key, tensor in tensors.items()}


def _squares(module: "PreTrainedModel") -> dict[str, float]:
    """The sum of squares of every weight, which shows if the weight changed."""
    return {
        name: float(p.detach().float().square().sum()) for name, p in module.named_parameters(remove_duplicate=False)
    }
