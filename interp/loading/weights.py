"""Reads weights and verifies them: complete files, every tensor in its place, and no code run to read them."""

import pickle
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedConfig, PreTrainedModel

from interp.errors import ModelError
from interp.families import family_of
from interp.loading.hub_files import ModelFiles
from interp.loading.placement import Placement
from interp.loading.quiet_libraries import quiet_libraries
from interp.loading.text_part import is_multimodal, model_class
from interp.model import Check
from interp.system.foreign_files import read_json, readable

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_ADAPTER = "adapter_config.json"
_BUFFERS = (".inv_freq", ".attn.bias", ".attention.bias", ".masked_bias")
_BYTES = ("F8", "I8", "U8", "BOOL")
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")


def read_weights(files: ModelFiles, config: PreTrainedConfig, placement: Placement) -> tuple[PreTrainedModel, Check]:
    """The model in evaluation mode, without gradients, and a check that its files have every tensor.

    Raises `ModelError` for truncated or corrupt files, missing tensors, tensors of another shape, pickled weights
    (unless allowed) and too little memory.
    """
    family = family_of(config.get_text_config())
    if _ADAPTER in files.names:  # transformers would apply it or not, depending on installed packages
        fix = "Keep them in two folders and name both (--adapter), or merge it and save the model."
        raise _unreadable(files, f"there is also an adapter ({_ADAPTER}), and it is unclear whether to apply it", fix)
    names = weight_files(files)
    files.fetch(names)
    is_safe = names[0].endswith(".safetensors")
    source: dict[str, Any] = {"gguf_file": files.gguf} if files.gguf else {"use_safetensors": is_safe}
    if is_safe:
        _refuse_damaged(files, names, is_rounded=getattr(config, "quantization_config", None) is not None)
    try:
        with quiet_libraries():
            loaded: Any = model_class(config).from_pretrained(
                files.folder,
                config=config,
                dtype=getattr(torch, placement.dtype),
                attn_implementation=family.kernel if family.has_attention else None,
                device_map=placement.device_map or (None if placement.device == "cpu" else {"": placement.device}),
                local_files_only=True,
                trust_remote_code=files.trust_remote_code,
                ignore_mismatched_sizes=True,  # `_verified` raises for them, with their shapes
                output_loading_info=True,
                **source,
            )
    except (MemoryError, torch.OutOfMemoryError) as error:
        found = f"memory ran out while reading them ({placement.dtype} on {placement.device})"
        raise _unreadable(files, found, "Free some memory, or load in bfloat16.") from error
    except ImportError as error:
        found = f"reading them needs a package that is not installed ({str(error).strip().splitlines()[0]})"
        raise _unreadable(files, found, "Install it, or name the repository of the original weights.") from error
    except (OSError, ValueError, RuntimeError, LookupError, EOFError, pickle.PickleError, SafetensorError) as error:
        raise _unreadable(files, f"transformers cannot read them: {str(error).strip()}") from error
    module, report = loaded
    if placement.dtype == "float64":
        module.config.get_text_config()._experts_implementation = "eager"  # the fast one has no float64
    if files.gguf:
        module.config.quantization_config = None  # transformers has dequantised them
    return module.eval().requires_grad_(False), _verified(files, report, module)


def weight_files(files: ModelFiles) -> list[str]:
    """The names of the files that hold the weights: safetensors, in one piece or in shards, or one GGUF file."""
    if files.gguf is not None:
        return [files.gguf]
    if _SINGLE in files.names:  # before the index, as transformers does
        return [_SINGLE]
    if _INDEX in files.names:
        files.fetch([_INDEX])
        return _shards(files, _INDEX)
    pickles = sorted(name for name in files.names if name.endswith(_PICKLES) and "/" not in name)
    if pickles and files.allow_pickle:
        index = "pytorch_model.bin.index.json"
        files.fetch([index] if index in files.names else [])
        return _shards(files, index) if index in files.names else ["pytorch_model.bin"]
    if pickles:
        fix = (
            "Name a revision with safetensors, or allow_pickle=True (--allow-pickle) if you trust where they come from."
        )
        raise _unreadable(files, f"they are pickled ({pickles[0]}), and unpickling can run code hidden in a file", fix)
    fix = "Check that the folder or repository has the weights, not only the configuration."
    raise _unreadable(files, f"there is no {_SINGLE}", fix)


def _two_heads(module: PreTrainedModel) -> str:
    """A remark if the configuration ties the head to the embedding and the files have a separate head."""
    head, embedding = module.get_output_embeddings(), module.get_input_embeddings()
    if not getattr(module.config, "tie_word_embeddings", False) or head is None or head.weight is embedding.weight:
        return ""
    return "config.json says that the head is the embedding, but the files have a separate head, which is used"


def _shards(files: ModelFiles, index: str) -> list[str]:
    with readable(f"the weights of {files.origin}", _again(files), found=f"{index} is broken", error=ModelError):
        content = read_json(files.folder / index)
        weight_map, _ = (content[field] for field in ("weight_map", "metadata"))  # transformers needs both
        names = sorted(set(weight_map.values()))
    # Only files of this model: a name such as ../../x would lead out of its folder.
    absent = [name for name in names if name not in files.names]
    if absent or not names:
        raise _unreadable(files, f"{index} names {f'{absent[0]}, which is not there' if absent else 'no files'}")
    return names


def _refuse_damaged(files: ModelFiles, names: Collection[str], *, is_rounded: bool) -> None:
    held: dict[str, str] = {}
    for file in names:
        for name, kind in _stored(files.folder / file, files).items():
            if name in held:
                raise _unreadable(files, f"{held[name]} and {file} both hold {name}")
            held[name] = file
            if kind.startswith(_BYTES) and not is_rounded and not name.endswith(_BUFFERS):
                found = f"{name} is stored as {kind}, one byte a number, and config.json states no quantisation"
                fix = "Name the repository of the original weights: these were rounded, or have lost their scales."
                raise _unreadable(files, found, fix)


def _stored(path: Path, files: ModelFiles) -> dict[str, str]:
    """The kind of every tensor, from the header, which also determines the length of the file."""
    try:
        with safe_open(path, framework="pt") as opened:
            return {name: opened.get_slice(name).get_dtype() for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        with path.open("rb") as broken:
            is_pointer = broken.read(20).startswith(b"version https://git")
        found = "is a git-lfs pointer without its content" if is_pointer else f"is truncated or corrupt ({error})"
        raise _unreadable(files, f"{path.name} {found}") from error


def _unreadable(files: ModelFiles, found: str, fix: str = "") -> ModelError:
    return ModelError(asked=f"the weights of {files.origin}", found=found, fix=fix or _again(files))


def _again(files: ModelFiles) -> str:
    if files.hub_id is None:
        return "Copy the folder again (`git lfs pull` where it was cloned), or save the model again."
    return f"Delete {files.folder.parent.parent} and load again with a network."


def _verified(files: ModelFiles, report: Mapping[str, Any], module: PreTrainedModel) -> Check:
    """The check that every tensor of the model is in the files, in its shape; its detail names surplus tensors."""
    extra = report["unexpected_keys"]
    if report["mismatched_keys"]:
        name, theirs, ours = min(report["mismatched_keys"])
        raise _unreadable(
            files,
            f"{len(report['mismatched_keys'])} tensors have another shape than config.json says: "
            f"{name} is {list(theirs)} in the files and {list(ours)} in the model",
        )
    if report["missing_keys"]:
        held = f", and hold {_some(extra)} instead" if extra else ""
        fix = "If a prefix makes the difference, they were saved from inside a wrapper: save the model itself."
        raise _unreadable(files, f"they lack {_some(report['missing_keys'])}{held}", fix if extra else "")
    if lost := _of_blocks(module, extra):
        raise _unreadable(files, f"config.json leaves no place in the blocks for {_some(lost)}")
    owner = "the text part" if is_multimodal(module.config) else "the model"
    surplus = f"the files also hold {_some(extra)}, for which {owner} has no place" if extra else ""
    detail = "; ".join(filter(None, (_two_heads(module), surplus)))
    return Check(
        "weights", "every tensor of the model is in its files, in its shape", True, 0.0, 0.0, "tensors", detail
    )


def _of_blocks(module: PreTrainedModel, names: Collection[str]) -> set[str]:
    """The names of decoder blocks, without which it would be another model, except buffers in old files."""
    lists = [name for name, part in module.named_modules() if isinstance(part, torch.nn.ModuleList)]
    blocks = min(lists, key=len, default="") + "."
    begins = (blocks, blocks.removeprefix(f"{module.base_model_prefix}."))
    is_rounded = getattr(module.config, "quantization_config", None) is not None  # with scales that have no place
    return {name for name in names if name.startswith(begins) and not name.endswith(_BUFFERS) and not is_rounded}


def _some(names: set[str]) -> str:
    shown = sorted(names)[:3]
    return f"{len(names)} tensors ({', '.join(shown)}{', ...' if len(names) > 3 else ''})"
