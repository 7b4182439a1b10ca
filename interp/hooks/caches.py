"""Caches of earlier tokens, under the names that modules have for them."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

import torch


def cache_name(module: torch.nn.Module) -> str:
    """What the module calls a cache of earlier tokens: `cache` in newer transformers, `past_key_values` before."""
    return "cache" if "cache" in signature(module.forward).parameters else "past_key_values"


def cache_given(given: Mapping[str, Any]) -> Any:
    """The cache of earlier tokens among what a module was given, by its newer name, its older ones or Mamba's."""
    caches = (given.get(name) for name in ("cache", "past_key_values", "layer_past", "cache_params"))
    return next((cache for cache in caches if cache is not None), None)


def after_earlier(
    module: Any, key: torch.Tensor, value: torch.Tensor, given: Mapping[str, Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values behind those of earlier tokens, where an attention module was given a cache of these."""
    cache = cache_given(given)
    return (key, value) if cache is None else cache.update(key, value, module.layer_idx)
