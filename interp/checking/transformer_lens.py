"""An independent witness: what we capture against TransformerLens's cache, on the same weights.

TransformerLens wraps a deep copy of the module (wrapping changes a model's attention in place), booted from a folder
without any processing of the weights: folded norms would change the values.
"""

import copy
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from interp.checking.two_sequences import Observations
from interp.errors import ModelError, optional_part
from interp.model import Check, Model
from interp.seam.pattern import pattern_rows
from interp.system.rounding import relative_error


def check_against_transformer_lens(model: Model) -> tuple[Check, ...]:
    """Compare q and k before rotary embedding (after it where the cache has them), v, z and patterns, every layer.

    Raises `ModelError` where TransformerLens is not installed or cannot read the model.
    """
    with torch.inference_mode():
        seen = Observations(model)
        cache = _cache(model, seen.ids)
        return tuple(_compare(seen, cache))


def _cache(model: Model, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    with optional_part("oracle", "the oracle transformer-lens"):
        from transformer_lens.model_bridge import TransformerBridge
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = copy.deepcopy(model.module.config)
        config.architectures = [type(model.module).__name__]
        config.save_pretrained(folder)
        any_tokenizer().save_pretrained(folder)
        try:
            bridge = TransformerBridge.boot_transformers(
                folder,
                hf_model=copy.deepcopy(model.module),
                device=str(ids.device),
            )
            return dict(bridge.run_with_cache(ids)[1].items())
        except Exception as error:  # of another library, on a model that has passed our own checks
            raise ModelError(
                asked=f"the oracle transformer-lens on {model.name}",
                found=f"TransformerLens cannot read this model ({type(error).__name__}: {error})",
                fix="The self-check stands without it: `interp check --model ...`.",
            ) from error


def any_tokenizer() -> Any:
    """A tokenizer of one word: TransformerLens insists on one, and is only ever given ids here."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(WordLevel({"<unk>": 0}, unk_token="<unk>"))
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", bos_token="<unk>", eos_token="<unk>", pad_token="<unk>"
    )


def _compare(seen: Observations, cache: Mapping[str, torch.Tensor]) -> Iterator[Check]:
    names = {
        "q_pre": "hook_q", "k_pre": "hook_k", "q": "hook_rot_q", "k": "hook_rot_k", "v": "hook_v", "z": "hook_z",
        "pattern": "hook_pattern",
    }  # fmt: skip
    for site, hook in names.items():
        errors = []
        for layer, mine in enumerate(_ours(seen, site)):
            key = f"blocks.{layer}.attn.{hook}"
            if key in cache:
                errors.append(relative_error(mine, cache[key].reshape(mine.shape)))
        if errors:
            worst = max(errors)
            meaning = f"{site} equals TransformerLens's {hook} in {len(errors)} layers"
            yield Check(f"transformer-lens {site}", meaning, worst <= seen.bound, worst, seen.bound)


def _ours(seen: Observations, site: str) -> Iterator[torch.Tensor]:
    """One site, layer by layer, with positions before heads as TransformerLens has them (patterns: heads first)."""
    recorder = seen.heard
    for layer, (call, z) in enumerate(zip(recorder.calls, recorder.z, strict=True)):
        if site == "pattern":
            yield pattern_rows(call, call.positions)
        elif site == "z":
            yield z
        elif site in ("q_pre", "k_pre"):
            yield seen.heard.sites[site, layer]
        else:
            yield getattr(call, site).transpose(1, 2)
