"""A third witness: what we capture against the same points of interp-engine, read from a copy of the same weights."""

import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from interp.checking.transformer_lens import any_tokenizer
from interp.checking.two_sequences import Observations, against_witness
from interp.errors import ModelError, optional_part
from interp.model import Check, Model

_POINTS = {"resid": "resid_pre", "v": "value", "z": "z", "attn_out": "attn_out", "mlp_out": "mlp_out"}
"""Our sites, and what they are called there. Queries and keys are captured around their norms alone."""


def check_against_interp_engine(model: Model) -> tuple[Check, ...]:
    """Compare residual stream, values, head outputs and what blocks add, at every layer that interp-engine can read.

    Raises `UsageError` where the package is not installed, `ModelError` where it cannot read the model.
    """
    with torch.inference_mode():
        seen = Observations(model)
        return tuple(against_witness(seen, dict(_captured(model, seen.ids)), "interp-engine"))


def _captured(model: Model, ids: torch.Tensor) -> Iterator[tuple[tuple[str, int], Any]]:
    with optional_part("oracle", "the oracle interp-engine"):
        from interp_engine import Address, capture, load_model
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.module.save_pretrained(folder)
        any_tokenizer().save_pretrained(folder)
        try:
            engine = load_model(folder, backend="eager", device=str(ids.device), dtype=model.info.dtype)
            points = {
                (site, layer): Address(point, layer)
                for site, point in _POINTS.items()
                for layer in range(model.info.n_layers)
            }
            found = capture(engine, ids, list(points.values()))
        except Exception as error:  # of another library, on a model that has passed our own checks
            raise ModelError(
                asked=f"the oracle interp-engine on {model.name}",
                found=f"interp-engine cannot read this model ({type(error).__name__}: {error})",
                fix="The self-check stands without it: `interp check --model ...`.",
            ) from error
        for place, point in points.items():
            yield place, found[point]
