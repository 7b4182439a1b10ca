"""The text part of a multimodal model: its language model and head.

The module stays whole, so that positions and masks are those of the model, but weights for images and sound are not
loaded from files.
"""

from dataclasses import replace
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_MULTIMODAL_LM_MAPPING

from interp.families import family_of
from interp.family import Family


def is_multimodal(config: PreTrainedConfig) -> bool:
    """Whether a configuration describes a multimodal model with a language model inside."""
    return config.get_text_config() is not config and type(config) in MODEL_FOR_MULTIMODAL_LM_MAPPING


def _language_model(module: PreTrainedModel) -> torch.nn.Module:
    inner = family_of(module.config.get_text_config()).layers.split(".")[1]
    decoder = {id(part) for part in module.get_decoder().modules()}
    return next(part for part in module.modules() if id(getattr(part, inner, None)) in decoder)


def whole_class(config: PreTrainedConfig) -> Any:
    """The class of a multimodal model with this configuration."""
    return MODEL_FOR_MULTIMODAL_LM_MAPPING[type(config)]


def parts_read(module: PreTrainedModel) -> list[torch.nn.Module]:
    """The modules that process text: language model and head, or the whole of a text model."""
    head: Any = module.get_output_embeddings()
    return [_language_model(module), head] if is_multimodal(module.config) else [module]


def family_in(module: PreTrainedModel) -> Family:
    """The family of a model, or of a multimodal model's text part, with paths from the whole module."""
    family = family_of(module.config.get_text_config())
    if not is_multimodal(module.config):
        return family
    language = _language_model(module)
    inner = next(name for name, part in module.named_modules() if part is language)
    own = {name: getattr(family, name) or "" for name in ("layers", "final_norm", "behind_norm")}
    paths: dict[str, Any] = {name: f"{inner}.{path.partition('.')[2]}" for name, path in own.items() if path}
    family = replace(family, **paths)
    head: Any = module.get_output_embeddings()
    if any(part is not module and getattr(part, "lm_head", None) is head for part in module.modules()):
        return family
    # The head of the whole model scales and caps no logits, whatever the text part alone would do.
    return replace(family, logits_times=None, logits_over=None, logits_cap=None)


def model_class(config: PreTrainedConfig) -> Any:
    """The class that builds and loads models of a configuration, multimodal ones with the text part alone."""
    if not is_multimodal(config):
        return AutoModelForCausalLM
    whole = whole_class(config)

    class TextPart(whole):
        def __init__(self, config: PreTrainedConfig) -> None:
            super().__init__(config)
            _leave_out_all_but(parts_read(self), self)

    # transformers uses these to find the names of weights in older files.
    TextPart.__name__, TextPart.__module__ = whole.__name__, whole.__module__
    return TextPart


def build_model(config: PreTrainedConfig, *, dtype: torch.dtype | None, trust_remote_code: bool) -> PreTrainedModel:
    """A model of this configuration with fresh weights."""
    if is_multimodal(config):
        return model_class(config)._from_config(config, dtype=dtype)
    return AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=trust_remote_code)


def _leave_out_all_but(kept: list[torch.nn.Module], module: torch.nn.Module) -> None:
    """Remove the modules that are not kept and contain none that is kept."""
    for name, part in module.named_children():
        inside = list(part.modules())
        if not any(each is one for each in kept for one in inside):
            setattr(module, name, None)
        elif not any(each is part for each in kept):
            _leave_out_all_but(kept, part)
