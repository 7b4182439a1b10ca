"""Compare captured activations with those that other libraries read from the same weights.

Both wrap a copy of the module, as wrapping changes attention in place. Nothing is reduced or centred. nnsight sees
whole modules: queries, keys, values and patterns are not among them.
"""

import copy
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Any

import torch

from interp.errors import ModelError, optional_part
from interp.hooks.block_hooks import first_of
from interp.hooks.pattern import pattern_rows
from interp.model import Check, Model
from interp.self_check.two_sequences import Observations
from interp.system.rounding import error_of_logits, relative_error

_Sites = dict[tuple[str, int], Any]
"""Activations of another library, by site and layer."""


def check_against(witness: str, model: Model) -> tuple[Check, ...]:
    """Compare every site that this library reads, in every layer, without changing the model.

    Raises `UsageError` if the library is not installed, `ModelError` if it cannot read the model.
    """
    with torch.inference_mode():
        seen = Observations(model)
        with warnings.catch_warnings(), optional_part("oracle", witness):
            warnings.simplefilter("ignore")
            try:
                theirs = WITNESSES[witness](model, seen.ids)
            except ModuleNotFoundError:
                raise
            except Exception as error:  # of the other library
                raise ModelError(
                    asked=f"the oracle {witness} on {model.name}",
                    found=f"{witness} cannot read this model ({type(error).__name__}: {error})",
                    fix="The self-check does not need it: `interp check --model ...`.",
                ) from error
        return tuple(_compared(seen, theirs, witness))


def _transformer_lens(model: Model, ids: torch.Tensor) -> _Sites:
    from transformer_lens.model_bridge import TransformerBridge

    config = copy.deepcopy(model.module.config)
    config.architectures = [type(model.module).__name__]
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        any_tokenizer().save_pretrained(folder)
        bridge = TransformerBridge.boot_transformers(
            folder, hf_model=copy.deepcopy(model.module), device=str(ids.device)
        )
    hooks = {"q": "rot_q", "k": "rot_k", "q_pre": "q", "k_pre": "k", "v": "v", "z": "z", "pattern": "pattern"}
    cache = dict(bridge.run_with_cache(ids)[1].items())
    keys = {
        (site, i): f"blocks.{i}.attn.hook_{hook}" for site, hook in hooks.items() for i in range(model.info.n_layers)
    }
    return {place: cache[key] for place, key in keys.items() if key in cache}


def _nnsight(model: Model, ids: torch.Tensor) -> _Sites:
    from nnsight import NNsight

    found: _Sites = {}
    paths = list(_paths(model))
    traced: Any = NNsight(copy.deepcopy(model.module))  # its types do not know themselves
    with traced.trace(ids, use_cache=False):
        for site, layer, path, is_input in paths:
            part = reduce(_inside, path.split("."), traced)
            found[site, layer] = part.input.save() if is_input else part.output.save()
        found["logits", 0] = traced.output.logits.save()
    return found


def _inside(part: Any, name: str) -> Any:
    return part[int(name)] if name.isdigit() else getattr(part, name)


def _paths(model: Model) -> Iterator[tuple[str, int, str, bool]]:
    """Site, layer, path of its module, and whether it is the module's input, in the order of a pass."""
    family = model.family
    for layer in range(model.info.n_layers):
        block = f"{family.layers}.{layer}"
        yield "resid", layer, block, True
        if family.attention is not None:
            yield "z", layer, f"{block}.{family.attention}.{family.out}", True
            yield "attn_out", layer, f"{block}.{family.attention_sum or family.attention}", False
        if isinstance(family.mlp_sum or family.mlp, str):
            yield "mlp_out", layer, f"{block}.{family.mlp_sum or family.mlp}", False


WITNESSES: Mapping[str, Callable[[Model, torch.Tensor], _Sites]] = {
    "transformer-lens": _transformer_lens, "nnsight": _nnsight,
}  # fmt: skip


def any_tokenizer() -> Any:
    """A tokenizer of one word: the libraries require one, but get only ids here."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(WordLevel({"<unk>": 0}, unk_token="<unk>"))
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", bos_token="<unk>", eos_token="<unk>", pad_token="<unk>"
    )


def _compared(seen: Observations, theirs: _Sites, witness: str) -> Iterator[Check]:
    """The largest error of every site over the layers of the library."""
    family, config = seen.model.family, seen.model.config
    for site in dict.fromkeys(site for site, _ in theirs):
        layers = [layer for of, layer in theirs if of == site]
        error = error_of_logits if site == "logits" else relative_error
        errors = []
        for layer in layers:
            mine = _ours(seen, site, layer)
            added = site in ("attn_out", "mlp_out")
            other = first_of(theirs[site, layer]) * (family.summed_scale(config, site) if added else 1.0)
            errors.append(error(mine, other.reshape(mine.shape)))
        meaning = f"{site} equals that of {witness}" + ("" if site == "logits" else f", in {len(layers)} layers")
        yield Check(f"{witness} {site}", meaning, max(errors) <= seen.bound, max(errors), seen.bound)


def _ours(seen: Observations, site: str, layer: int) -> torch.Tensor:
    """One site of one layer, positions before heads (patterns: heads first)."""
    captured = seen.captured
    if site == "logits":
        return captured.logits
    if site == "z":
        return captured.z[layer]
    if site == "pattern":
        return pattern_rows(captured.calls[layer], captured.calls[layer].positions)
    if site in ("q", "k", "v"):
        return getattr(captured.calls[layer], site).transpose(1, 2)
    return captured.sites[site, layer]
