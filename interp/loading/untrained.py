"""Untrained copies of a model as a null: weights as transformers initialises the architecture, from several seeds."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from interp.errors import ModelError
from interp.findings import Findings, Null, Scalar
from interp.loading.aliases import MEMORY
from interp.loading.quiet_libraries import quiet_libraries
from interp.loading.text_part import build_model
from interp.model import Model
from interp.self_check.selfcheck import check_model
from interp.statistics.intervals import prediction_band
from interp.table import LABEL, Table, number_columns


def untrained_copy(model: Model, seed: int = 0) -> tuple[Model, str]:
    """An untrained copy of a model, checked like any other, and a description of its weights."""
    if "," in model.info.device or "offloaded" in model.info.device:
        raise ModelError(
            asked=f"{model.name} without its training",
            found=f"it is spread over several devices ({model.info.device}), and an untrained copy needs one",
            fix="Leave out --null untrained, or run where the model fits on one device.",
        )
    with torch.random.fork_rng(), quiet_libraries():
        torch.manual_seed(seed)
        # Code of the repository is trusted only if the model was loaded with it.
        is_own = type(model.module).__module__.startswith("transformers_modules")
        module: Any = build_model(model.module.config, dtype=model.module.dtype, trust_remote_code=is_own)
    module = module.to(model.input_device).eval().requires_grad_(False)
    name = f"{MEMORY}{model.name.removeprefix(MEMORY)} untrained"
    info = replace(model.info, name=name, revision=None, stored_as=None, tensor_kinds=None)
    copy = replace(model, module=module, info=info, card=None, checks=())
    lens = ", decoded through the lens of the trained model" if model.lens else ""
    return replace(copy, checks=check_model(copy)), f"transformers' initialisation of {info.family}, seed {seed}{lens}"


def beside_untrained(findings: Findings, untrained: Sequence[Findings], labels: Sequence[str]) -> Findings:
    """The findings with untrained weights as null: the mean over the copies with a t prediction band.

    Such numbers have no p, because a few copies give none; a table keeps the earlier null and p. One copy gives no
    band, and nulls stay as they are.
    """
    names = [name for name in findings.scalars if all(name in copy.scalars for copy in untrained)]
    of_copies: dict[str, Null | Scalar] = {name: untrained[0][name] for name in names}
    if (n := len(untrained)) > 1:
        values = np.array([[copy[name].value for name in names] for copy in untrained])
        of_copies = {
            name: Null(f"untrained weights, {n} seeds", mean, (low, high))
            for name, (mean, low, high) in zip(names, prediction_band(values).T.tolist(), strict=True)
        }
    rows = [{"name": name, "unit": findings[name].unit, **_row(findings[name], of_copies[name])} for name in names]
    units = {"name": LABEL, "unit": LABEL, "own_p": "probability"}
    units |= dict.fromkeys(("trained", "untrained", "own_null"), "as named")
    label = "; ".join(dict.fromkeys(labels))
    held = {
        name: replace(findings[name], null=null, null_reason="", p=None, p_over="")
        for name, null in of_copies.items()
        if isinstance(null, Null) and np.isfinite([findings[name].value, *null.band]).all()
    }
    return replace(
        findings,
        scalars={**findings.scalars, **held},
        tables={
            **findings.tables,
            "against_untrained": Table.from_rows(rows, units, f"Beside untrained weights: {label}."),
        },
        notes=(*findings.notes, f"Untrained weights: {label}. {_SEVERAL if n > 1 else _ALONE}"),
    )


_SEVERAL = (
    "Nulls are means over them with t prediction bands; those that they replace are in the table against_untrained."
)
_ALONE = "One set has no band: the nulls are those of the probe."


def _row(ours: Scalar, theirs: Null | Scalar) -> dict[str, float]:
    nothing = (float("nan"),) * 2
    bounds = theirs.band if isinstance(theirs, Null) else theirs.interval
    null = (ours.null.value, ours.null.band) if ours.null else (float("nan"), nothing)
    return {
        **number_columns("trained", ours.value, ours.interval or nothing),
        **number_columns("untrained", theirs.value, bounds or nothing),
        **number_columns("own_null", *null),
        "own_p": float("nan") if ours.p is None else ours.p,
    }
