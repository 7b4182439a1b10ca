"""Whether a model can be read, by its configuration, before any weights are read."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from pydantic import BaseModel, Field, StrictInt
from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
)
from transformers.utils.quantization_config import QuantizationConfigMixin

from interp.errors import ModelError
from interp.families import families, family_of
from interp.hooks.state import weights_of
from interp.loading.hub_files import ModelFiles
from interp.loading.quiet_libraries import quiet_libraries
from interp.loading.text_part import build_model, is_multimodal, parts_read
from interp.system.foreign_files import read_json, readable

_AGAIN = "Copy or download the file again."


class _Sizes(BaseModel):
    """Limits far above any model: transformers would make lists of the sizes in a damaged file until memory ends."""

    num_hidden_layers: int | None = Field(None, ge=1, le=10_000)
    max_position_embeddings: int | None = Field(None, ge=1, le=10**9)
    num_labels: int | None = Field(None, ge=1, le=10**6)


class _Config(_Sizes):
    """Fields that are read before transformers checks them, or that it does not check in every family."""

    model_type: str = ""
    architectures: list[str] | None = None
    quantization_config: dict[str, Any] | None = None
    sliding_window: StrictInt | bool | None = None
    text_config: _Sizes | None = None


def read_config(files: ModelFiles) -> PreTrainedConfig:
    """The configuration of a model, from config.json or the header of its GGUF file.

    Raises `ModelError` for a broken configuration, code in the repository (unless trusted), quantised weights (unless
    allowed), anything but a causal language model, and unsupported families.
    """
    if files.gguf is not None:
        return _read_gguf(files, files.gguf)
    files.fetch(["config.json"])
    with _reading(files):
        content = read_json(files.folder / "config.json")
        _Config.model_validate(content)
    families()  # first, because a registered family may bring its own configuration class
    _refuse_own_code(content, files)
    if not files.allow_quantised:
        refuse_quantised(files.origin, content.get("quantization_config"))
    if files.trust_remote_code:
        files.fetch(name for name in files.names if name.endswith(".py"))
    with _reading(files), quiet_libraries():
        config = AutoConfig.from_pretrained(
            files.folder, trust_remote_code=files.trust_remote_code, local_files_only=True
        )
    return _admitted(files, config)


def _read_gguf(files: ModelFiles, name: str) -> PreTrainedConfig:
    content = files.header
    if not files.allow_quantised:
        refuse_quantised(files.origin, content.rounded)
    # Before transformers makes lists of that length.
    sizes = {"num_hidden_layers": "block_count", "max_position_embeddings": "context_length"}
    with _reading(files, "its header cannot be read"):
        _Sizes.model_validate({ours: content.of_family(theirs) for ours, theirs in sizes.items()})
    if content.stretched is not None:
        raise ModelError(
            asked=f"reading {files.origin}",
            found=f"its rotary embedding is stretched ({content.stretched}), which transformers ignores in GGUF files: "
            "positions would differ from the model's",
            fix="Name the repository of the original weights.",
        )
    with _reading(files, "transformers has no model for its header"), quiet_libraries():
        config = AutoConfig.from_pretrained(files.folder, gguf_file=name, local_files_only=True)
    config = _admitted(files, config)
    placed = count_parameters(config)
    if placed != content.n_numbers:
        raise ModelError(
            asked=f"the weights of {files.origin}",
            found=f"the file has {content.n_numbers:,} numbers, and the model that transformers makes from its header "
            f"has {placed:,}: some would be left out, or are missing",
            fix="Copy or download the file again (all of it, where it comes in parts, merged into one), or name the "
            "repository of the original weights.",
        )
    return config


def _admitted(files: ModelFiles, config: PreTrainedConfig) -> PreTrainedConfig:
    refuse_unless_causal(files.origin, config, config.architectures or [])
    family_of(config.get_text_config())
    # A file could name a kernel of the hub, which is code.
    config._attn_implementation = None
    return config


def count_parameters(config: PreTrainedConfig, *, trust_remote_code: bool = False) -> int:
    """The number of parameters of a configuration's model (its text part), a tied embedding once; takes no memory.

    Raises `ModelError` if no model can be built from the configuration.
    """
    asked, fix = f"a {config.model_type} model of this configuration", "Check config.json, or copy it again."
    readably = readable(asked, fix, found="no model can be built from it", error=ModelError)
    with readably, torch.device("meta"), quiet_libraries():
        module = build_model(config, dtype=None, trust_remote_code=trust_remote_code)
    return weights_of(*parts_read(module))["n_parameters"]


def quantisation(stated: Any) -> str | None:
    """The quantisation that a configuration states (`gptq, 4 bits`); None for plain weights."""
    if not stated or isinstance(stated, str):
        return stated or None
    fields = stated.to_dict() if isinstance(stated, QuantizationConfigMixin) else dict(stated)
    method = fields.get("quant_method") or "of an unnamed kind"
    loaded = next((n for n in (4, 8) if fields.get(f"load_in_{n}bit")), None)
    bits = fields.get("bits") or loaded
    return str(getattr(method, "value", method)) + (f", {bits} bits" if bits else "")


def refuse_quantised(origin: str, stated: Any) -> None:
    """Raise `ModelError` for quantised weights."""
    found = quantisation(stated)
    if found is not None:
        raise ModelError(
            asked=f"reading {origin}",
            found=f"its weights are quantised ({found}): you would measure the rounding too"
            + ("" if isinstance(stated, str) else ", and the projections per head cannot be read from them"),
            fix="Name the repository of the original weights, or measure the quantised model with "
            "allow_quantised=True (--allow-quantised).",
        )


def refuse_unless_causal(origin: str, config: PreTrainedConfig, named: Sequence[str]) -> None:
    """Raise `ModelError` unless the model, with these `named` architectures, predicts each token from earlier ones."""
    known = {*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values(), *MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES.values()}
    is_causal = any(name in known or name.endswith(("ForCausalLM", "LMHeadModel")) for name in named)
    if getattr(config, "is_encoder_decoder", False):
        found = "it is an encoder-decoder"
    elif getattr(config.get_text_config(), "use_bidirectional_attention", None) in (True, "all"):
        found = "its tokens attend to later ones (use_bidirectional_attention)"
    elif named and not is_causal:
        found = f"it is a {named[0]}"
    elif not named and config.model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not is_multimodal(config):
        found = f"its family {config.model_type!r} has no language model head"
    else:
        return
    raise ModelError(
        asked=f"reading {origin} as a causal language model",
        found=f"{found}, which does not predict every token from those before it",
        fix="Name a decoder-only language model; `interp list models` shows some.",
    )


def _refuse_own_code(content: dict[str, Any], files: ModelFiles) -> None:
    kind = content.get("model_type")
    if kind in CONFIG_MAPPING or files.trust_remote_code:
        return
    if "auto_map" in content:
        raise ModelError(
            asked=f"reading {files.origin}",
            found="it needs its own Python code, which would run on this machine",
            fix="Read the code first. If you trust it, load with trust_remote_code=True (--trust-remote-code).",
        )
    raise ModelError(
        asked=f"reading {files.origin}",
        found=f"its model_type is {kind!r}, which this version of transformers does not have",
        fix="Check config.json, or update transformers.",
    )


def _reading(files: ModelFiles, found: str = "config.json cannot be read") -> AbstractContextManager[None]:
    return readable(f"the configuration of {files.origin}", _AGAIN, found=found, error=ModelError)
