"""Another independent witness: what we capture against what nnsight traces at the modules of the same weights.

nnsight hears whole modules: inputs of blocks and of output projections, what attention and feed-forward return, logits.
Queries, keys, values and patterns stand between modules in most families: TransformerLens is the witness of those.
"""

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from interp.checking.two_sequences import Observations, against_witness
from interp.errors import ModelError, optional_part
from interp.model import Check, Model


def check_against_nnsight(model: Model) -> tuple[Check, ...]:
    """Compare the residual stream, z, what blocks add, and the logits, every layer.

    Raises `UsageError` where nnsight is not installed, `ModelError` where it cannot trace the model.
    """
    with torch.inference_mode():
        seen = Observations(model)
        return tuple(against_witness(seen, _traced(model, seen.ids), "nnsight"))


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
    with optional_part("oracle", "the oracle nnsight"):
        from nnsight import NNsight
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
