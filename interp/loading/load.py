"""Loads a model: finds its files, checks that it can be read and fits, reads the weights, and runs the self-check.

Errors are raised before the weights are read wherever possible. The result of the self-check is kept in the user's
cache for the same files and code, unless the model has classes, a changed `forward` or a family from elsewhere.
"""

import inspect
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from huggingface_hub import cached_assets_path
from tokenizers import Tokenizer as RawTokenizer
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from interp.capture import ModelInfo
from interp.edit import Edit
from interp.editing.edit_files import resolve_edits
from interp.edits import Edits, PatternsOf
from interp.errors import ModelError, UsageError
from interp.families import families_of_transformers, family_of, rotary_size
from interp.hooks.ropes import longest_input
from interp.hooks.state import weights_of
from interp.loading.adapter import CONFIG as ADAPTER_CONFIG
from interp.loading.adapter import WEIGHTS as ADAPTER_WEIGHTS
from interp.loading.adapter import locate_adapter, merge_adapter
from interp.loading.admission import count_parameters, quantisation, read_config, refuse_quantised, refuse_unless_causal
from interp.loading.aliases import MEMORY
from interp.loading.hub_files import ModelFiles
from interp.loading.identity import identity_of
from interp.loading.in_memory import BRIDGE, bridge_check, is_a, not_a_model, plain_module, refuse_unreadable
from interp.loading.placement import choose_placement, refuse_precision
from interp.loading.sources import PROGRAM_CARD, ModelSource, files_behind, locate, source_of
from interp.loading.text_part import family_in, is_multimodal, parts_read, whole_class
from interp.loading.tokenizer import has_tokenizer, read_tokenizer
from interp.loading.weights import read_weights, weight_files
from interp.model import Check, Model
from interp.options import RunOptions
from interp.records.tunnel_card import refuse_changed
from interp.self_check.selfcheck import check_model
from interp.system.digest import digest_of
from interp.system.foreign_files import read_json
from interp.system.whole_files import writing

_LIBRARIES = ("torch.", "transformers.")

Tokenizer = PreTrainedTokenizerBase | RawTokenizer | str | Path | None


def load(
    name_or_object: object = "tunnel:bijection-gpt-neox",
    *,
    revision: str | None = None,
    gguf: str | None = None,
    adapter: str | Path | None = None,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | int | None = None,
    device_map: str | Mapping[str, int | str] | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    allow_quantised: bool = False,
    tokenizer: Tokenizer = None,
    check: bool | Literal["again"] = True,
) -> Model:
    """Load a model and check that each tensor captured from it is what its name says.

    Args:
        name_or_object: An alias (`pythia-410m`) or hub id, both with an optional `@revision`; a local folder; a GGUF
            file; `tunnel:<task>-<arch>`; or a transformers model or TransformerLens bridge in memory, which is left as
            it is. A `Model` is returned as it is.
        revision: Branch, tag or commit on the hub.
        gguf: Name of a GGUF file in the folder or repository.
        adapter: Folder or hub id of a LoRA adapter (needs `interp[peft]`), merged into the weights before the
            self-check.
        dtype: Precision: float32 by default, unless only bfloat16 fits on the GPU.
        device: Device: the first GPU by default, else the CPU.
        device_map: `"auto"` spreads a large model over devices.
        trust_remote_code: Whether Python code of the repository may run.
        allow_pickle: Whether pickled weights may be read.
        allow_quantised: Whether quantised weights may be read.
        tokenizer: A tokenizer, its folder or its hub id, if not the model's own.
        check: Whether to run the self-check. Its result is kept for the same files, options and version; `"again"`
            repeats it.

    Returns:
        The model.

    Raises:
        ModelError: The model cannot be found, read or trusted.
        UsageError: Arguments do not fit.

    Examples:
        >>> model = interp.load("tunnel:bijection-gpt-neox")
        >>> model
        Model('tunnel:bijection-gpt-neox': gpt_neox, 3 layers, 4 heads of 16, float32 on cpu; ... checks passed)
    """
    if isinstance(name_or_object, str | Path):
        asked = RunOptions(
            name_or_object, revision=revision, gguf=gguf, adapter=None if adapter is None else str(adapter),
            dtype=dtype, device=device, device_map=device_map, trust_remote_code=trust_remote_code,
            allow_pickle=allow_pickle, allow_quantised=allow_quantised, check=check == "again",
        )  # fmt: skip
        return load_as_asked(asked, tokenizer, check=bool(check))
    where = {"dtype": dtype, "device": device, "device_map": device_map}
    _refuse_changes(name_or_object, revision=revision, gguf=gguf, adapter=adapter, **where)
    if isinstance(name_or_object, Model):
        _refuse_changes(name_or_object, tokenizer=tokenizer)
        model, check = name_or_object, check and not name_or_object.checks
    elif isinstance(name_or_object, PreTrainedModel):
        model = _wrap(name_or_object, tokenizer, allow_quantised)
    elif is_a(name_or_object, BRIDGE):
        model = _wrap(plain_module(name_or_object), tokenizer, allow_quantised)
        model = replace(model, checks=(bridge_check(name_or_object, model),))
    else:
        raise not_a_model(name_or_object)
    return _checked(model, [], check)


def with_donors(edits: Edits, info: ModelInfo) -> tuple[Edit, ...]:
    """The edits with their donors loaded, in the precision and on the device of the model they edit."""
    loaded: dict[str, Model] = {}
    found = []
    for edit in resolve_edits(edits):
        if isinstance(edit, PatternsOf) and isinstance(edit.donor, str):
            if edit.donor not in loaded:
                loaded[edit.donor] = load(edit.donor, **same_placement(info))
            edit = replace(edit, donor=loaded[edit.donor])
        found.append(edit)
    return tuple(found)


def same_placement(info: ModelInfo) -> dict[str, Any]:
    """The options that load another model on the device and in the precision of this one."""
    if "," in info.device or "offloaded" in info.device:
        return {"dtype": info.dtype, "device": None, "device_map": "auto"}
    return {"dtype": info.dtype, "device": info.device, "device_map": None}


def load_as_asked(options: RunOptions, tokenizer: Tokenizer = None, *, check: bool = True, text: bool = True) -> Model:
    """The model of a run, loaded unless it is a `Model` already; `text` requires a tokenizer."""
    if isinstance(options.model, Model):
        info = options.model.info
        as_it_is = {None, info.adapter, info.revision, info.dtype, info.device, info.device.partition(":")[0]}
        asked = {name: getattr(options, name) for name in ("adapter", "revision", "gguf", "dtype", "device")}
        changes = {name: value for name, value in asked.items() if value not in as_it_is}
        _refuse_changes(options.model.module, **changes, device_map=options.device_map)
        return options.model
    source = source_of(options)
    change = None if options.adapter is None else locate_adapter(options.adapter)
    config = read_config(source.files)
    n_parameters = count_parameters(config, trust_remote_code=options.trust_remote_code)
    placement = choose_placement(config, n_parameters, options)
    words = None
    if source.task is None and (text or has_tokenizer(source.files)):
        words = _tokenizer(source.files, config, tokenizer)
    unchecked = _unchecked(source)
    module, whole = read_weights(source.files, config, placement)
    checks = [whole, *unchecked]
    names = {*weight_files(source.files), *({"config.json"} & source.files.names)}
    read = [source.files.folder / name for name in sorted(names)]
    if change is not None:
        module, merged = merge_adapter(module, source.origin, str(options.adapter), change)
        read += [change.folder / name for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS)]
        checks.append(merged)
    info = replace(
        _describe(module), name=source.name, source=source.origin, revision=source.files.revision,
        adapter=options.adapter,
    )  # fmt: skip
    if source.files.gguf is not None:
        info = replace(info, stored_as=source.files.header.rounded, tensor_kinds=source.files.header.in_words)
    model = Model(module, words, info, family_in(module), tuple(checks), source.task, source.card, source.mechanism)
    return _checked(model, read, "again" if check and options.check else check)


def _checked(model: Model, read: Sequence[Path], check: bool | Literal["again"]) -> Model:
    """The model with its self-check, run now or kept from an earlier load of the same files.

    A model without files is always checked. Raises `ModelError` if a check fails.
    """
    model.family.refuse_shared_parts(model.module)
    if not check:
        return model
    try:
        kept = _place(model, read) if read and _is_plain(model) else None
    except (OSError, ValueError):  # no folder for caches
        kept = None
    found = None if kept is None or check == "again" else _read(kept)
    if found is None:
        found = check_model(model)
        if kept is not None:
            _keep(kept, found)
    return replace(model, checks=(*model.checks, *found))


def _is_plain(model: Model) -> bool:
    """Whether all code of the model is torch's and transformers', with a family of this package."""
    kinds = {type(part) for part in model.module.modules()}
    homes = {home for kind in kinds for home in (kind.__module__, inspect.unwrap(kind.forward).__module__)}
    return all(home.startswith(_LIBRARIES) for home in homes) and model.info.family in families_of_transformers()


def _place(model: Model, files: Collection[Path]) -> Path:
    name = digest_of([identity_of(files), asdict(model.info)])
    return cached_assets_path("interp", namespace="self-check") / f"{name}.json"


def _code() -> str:
    home = Path(__file__).parent.parent
    sources = [(str(p.relative_to(home)), p.stat().st_size, p.stat().st_mtime_ns) for p in sorted(home.rglob("*.py"))]
    return digest_of([sources, *(version(name) for name in ("interp", "torch", "transformers"))])


def _read(kept: Path) -> tuple[Check, ...] | None:
    """The kept checks with the time of their run, if the file is intact and of this code."""
    try:
        content = read_json(kept)
        digest = content.pop("digest")
        if digest != digest_of(content) or content["code"] != _code():
            return None
        found = tuple(replace(Check(**each), when=content["when"]) for each in content["checks"])
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return None
    return found if found and all(each.passed for each in found) else None


def _keep(kept: Path, found: tuple[Check, ...]) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    content = {"code": _code(), "when": now, "checks": [asdict(each) for each in found]}
    with suppress(OSError), writing(kept) as draft:  # if it cannot be kept, the next load checks again
        draft.write_text(json.dumps(content | {"digest": digest_of(content)}), encoding="utf-8")


def _unchecked(source: ModelSource) -> list[Check]:
    """A remark on a tunnel whose card has no digests; raises `ModelError` if its files have changed."""
    is_tunnel = source.card is not None and PROGRAM_CARD not in source.files.names
    if not is_tunnel or refuse_changed(source.files.folder):
        return []
    detail = "the card is of before digests: that these are its weights and numbers was not checked"
    return [Check("card", "weights and configuration are those of the card", True, 0.0, 0.0, "files", detail)]


def _wrap(module: PreTrainedModel, tokenizer: Tokenizer, allow_quantised: bool) -> Model:
    """A model in memory, unchanged; its default tokenizer is that of the files it was loaded from."""
    config = module.config
    kind = type(module).__name__
    refuse_unless_causal(kind, config, [each.__name__ for each in type(module).__mro__])
    refuse_unreadable(module)
    if not allow_quantised:
        refuse_quantised(f"the {kind} in memory", getattr(config, "quantization_config", None))
    family = family_in(module)
    origin = config.name_or_path or ""
    label = Path(origin).name or kind
    info = replace(_describe(module), name=MEMORY + label, source="memory")
    refuse_precision(config, info.dtype)
    files = files_behind(origin)
    if tokenizer is None and files is not None and has_tokenizer(files):
        words = read_tokenizer(files)
    else:
        words = _given(tokenizer)
    return Model(module, words, info, family)


def _refuse_changes(module: object, **asked: object) -> None:
    given = [name for name, value in asked.items() if value is not None]
    if given:
        raise UsageError(
            asked=f"the {type(module).__name__} in memory with {', '.join(given)}",
            found="a model in memory is used as it is",
            fix="Leave it out, or load or change the model that way before passing it.",
        )


def _tokenizer(files: ModelFiles, config: PreTrainedConfig, tokenizer: Tokenizer) -> PreTrainedTokenizerBase:
    """The given tokenizer or the one beside the weights; raises `ModelError` if ids have no embeddings."""
    words = read_tokenizer(files) if tokenizer is None else _given(tokenizer)
    n = config.get_text_config().vocab_size
    if words.vocab_size > n:
        raise ModelError(
            asked=f"the tokenizer of {files.origin}",
            found=f"it has {words.vocab_size:,} tokens, and the model embeds {n:,}",
            fix="Pass the tokenizer that the model was trained with.",
        )
    return words


def _given(tokenizer: Tokenizer) -> Any:
    if isinstance(tokenizer, str | Path):
        return read_tokenizer(locate(str(tokenizer)).files)
    if isinstance(tokenizer, RawTokenizer):
        return PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    inside = getattr(tokenizer, "tokenizer", tokenizer)  # of the processor of a multimodal model
    if not isinstance(inside, PreTrainedTokenizerBase | None):
        asked, fix = f"the tokenizer given ({type(tokenizer).__name__})", "Give one, its folder or its hub id."
        raise UsageError(asked=asked, found="it is no tokenizer of transformers", fix=fix)
    return inside


def _describe(module: PreTrainedModel) -> ModelInfo:
    return replace(info_from_config(module.config), **weights_of(*parts_read(module)))


def info_from_config(whole: PreTrainedConfig) -> ModelInfo:
    """The description of a model, or of its text part, by its configuration: without name, parameters and device."""
    config = whole.get_text_config()
    family = family_of(config)
    shape = family.head_shape(config)
    return ModelInfo(
        name="",
        source="",
        family=family.name,
        n_layers=family.n_layers(config),
        n_heads=shape.n_heads,
        n_kv_heads=shape.n_kv_heads,
        d_head=shape.d_head,
        d_model=config.hidden_size,
        vocab_size=config.vocab_size,
        n_parameters=0,
        dtype="",
        device="",
        # Inside the hooks; a model in memory may use another one outside.
        attention_kernel=family.kernel if family.has_attention else "none",
        n_rotary=rotary_size(config, shape) if family.has_attention else None,
        window=active_window(config) if family.has_attention else None,
        parallel_blocks=family.is_parallel(config),
        max_positions=longest_input(config),
        quantisation=quantisation(getattr(whole, "quantization_config", None)),
        n_experts=family.n_experts(config),
        attention_layers=family.attention_layers(config),
        text_part_of=whole_class(whole).__name__ if is_multimodal(whole) else None,
    )


def active_window(config: PreTrainedConfig) -> int | None:
    """How many tokens attention reaches back, including the query's; None if no layer is ever limited."""
    if "local" in getattr(config, "attention_layers", ()):
        return config.window_size  # GPT-Neo
    if not hasattr(type(config), "sliding_window"):
        return None  # a file may name one that its family ignores
    window = getattr(config, "sliding_window", None)
    if window is None or getattr(config, "use_sliding_window", True) is False:
        return None
    kinds = getattr(config, "layer_types", None)
    if kinds is not None and "sliding_attention" not in kinds:
        return None
    longest = longest_input(config)
    return None if longest is not None and window >= longest else window
