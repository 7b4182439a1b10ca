"""Another independent witness: what we capture against what nnsight traces at the modules of the same weights.

nnsight hears whole modules: inputs of blocks and of output projections, what attention and feed-forward return, logits.
Queries, keys, values and patterns stand between modules in most families: TransformerLens is the witness of those.
"""

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from interp.checking.two_sequences import Observations, relative_error
from interp.errors import ModelError
from interp.model import Check, Model
from interp.seam.block_hooks import first_of

_WORDS = {
    "resid": "the input of each block",
    "z": "the input of each output projection",
    "attn_out": "what attention adds",
    "mlp_out": "what the feed-forward adds",
    "logits": "the logits",
}


def check_against_nnsight(model: Model) -> tuple[Check, ...]:
    """Compare the residual stream, z, what blocks add, and the logits, every layer.

    Raises `ModelError` where nnsight is not installed or cannot trace the model.
    """
    with torch.inference_mode():
        seen = Observations(model)
        return tuple(_compare(seen, _traced(model, seen.ids)))


def _paths(model: Model) -> Iterator[tuple[str, int, str, bool]]:
    """Site, layer, path of the module that gives it, and whether it is the input, in the order of a pass."""
    family = model.family
    for layer in range(model.info.n_layers):
        block = f"{family.layers}.{layer}"
        yield "resid", layer, block, True
        if family.attention is not None:
            yield "z", layer, f"{block}.{family.attention}.{family.out}", True
            yield "attn_out", layer, f"{block}.{family.attention_sum or family.attention}", False
        if family.mlp_sum or family.mlp:
            yield "mlp_out", layer, f"{block}.{family.mlp_sum or family.mlp}", False


def _traced(model: Model, ids: torch.Tensor) -> dict[tuple[str, int], Any]:
    try:
        from nnsight import NNsight
    except ImportError as error:
        raise ModelError(
            asked="the oracle nnsight", found="the package is not installed", fix="pip install 'interp[oracle]'"
        ) from error
    found: dict[tuple[str, int], Any] = {}
    paths = list(_paths(model))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced: Any = NNsight(copy.deepcopy(model.module))  # its types do not know themselves
            with traced.trace(ids, use_cache=False):
                for site, layer, path, is_input in paths:
                    envoy = _part(traced, path)
                    found[site, layer] = envoy.input.save() if is_input else envoy.output.save()
                found["logits", 0] = traced.output.logits.save()
    except Exception as error:  # of another library, on a model that has passed our own checks
        raise ModelError(
            asked=f"the oracle nnsight on {model.name}",
            found=f"nnsight cannot trace this model ({type(error).__name__}: {error})",
            fix="The self-check stands without it: `interp check --model ...`.",
        ) from error
    return found


def _part(traced: Any, path: str) -> Any:
    """A module of what nnsight wraps, by its path."""
    for name in path.split("."):
        traced = traced[int(name)] if name.isdigit() else getattr(traced, name)
    return traced


def _compare(seen: Observations, traced: dict[tuple[str, int], Any]) -> Iterator[Check]:
    heard, family = seen.heard, seen.model.family
    scale = family.summed_scale(seen.model.module.config)
    for site, words in _WORDS.items():
        errors = []
        for (of, layer), theirs in traced.items():
            if of != site:
                continue
            mine = heard.logits if site == "logits" else heard.z[layer] if site == "z" else heard.sites[site, layer]
            other = first_of(theirs) * (scale if site in ("attn_out", "mlp_out") else 1.0)
            errors.append(relative_error(mine, other.reshape(mine.shape)))
        if errors:
            meaning = f"{site} equals {words} as nnsight traces it" + (
                "" if site == "logits" else f", in {len(errors)} layers"
            )
            yield Check(f"nnsight {site}", meaning, max(errors) <= seen.bound, max(errors), seen.bound)
