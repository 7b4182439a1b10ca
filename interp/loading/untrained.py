"""The same model without its training: the plainest null, on request.

Pythia publishes its weights before the first step; where they are in the cache they are used. Otherwise the weights
are drawn anew as transformers initialises this architecture. The label says which.
"""

from dataclasses import replace

import torch
from transformers import AutoModelForCausalLM

from interp.checking.selfcheck import check_model
from interp.errors import ModelError
from interp.findings import Findings, Scalar
from interp.loading.load import load
from interp.loading.quiet_libraries import quiet_libraries
from interp.model import Model
from interp.table import LABEL, Table, number_columns

STEP_ZERO = "step0"


def untrained_twin(model: Model, seed: int = 0) -> tuple[Model, str]:
    """An untrained model of the same architecture, checked like any other, and what its weights are."""
    if "pythia" in model.info.source.lower():
        hub_id = model.info.source
        try:
            twin = load(hub_id, revision=STEP_ZERO, dtype=model.info.dtype)
            return replace(twin, task=model.task), f"{hub_id} at {STEP_ZERO}, before its first training step"
        except ModelError:
            pass  # not cached and no network: the label below says what is used instead
    if "," in model.info.device or "offloaded" in model.info.device:
        raise ModelError(
            asked=f"{model.name} without its training",
            found=f"it is spread over several places ({model.info.device}), and its twin would have to lie on one",
            fix="Leave out --null untrained, or run where the model fits on one device.",
        )
    with torch.random.fork_rng(), quiet_libraries():
        torch.manual_seed(seed)
        # Code of the repository's own is trusted here only where the model itself was loaded with it.
        is_own = type(model.module).__module__.startswith("transformers_modules")
        module = AutoModelForCausalLM.from_config(
            model.module.config, dtype=model.module.dtype, trust_remote_code=is_own
        )
    module = module.to(model.input_device).eval().requires_grad_(False)
    info = replace(model.info, name=f"{model.name} untrained", revision=None)
    twin = replace(model, module=module, info=info, checks=())
    return replace(twin, checks=check_model(twin)), f"transformers' initialisation of {model.info.family}, seed {seed}"


def beside_untrained(findings: Findings, untrained: Findings, label: str) -> Findings:
    """The findings with a table that sets every number beside what the untrained weights give."""
    names = [name for name in findings.scalars if name in untrained.scalars]
    pairs = [(findings.scalars[name], untrained.scalars[name]) for name in names]
    rows = [
        {"name": name, "unit": ours.unit, **_columns("trained", ours), **_columns("untrained", theirs)}
        for name, (ours, theirs) in zip(names, pairs, strict=True)
    ]
    units = {"name": LABEL, "unit": LABEL, "trained": "as named", "untrained": "as named"}
    table = Table.from_rows(rows, units, f"Beside untrained weights: {label}.")
    return replace(
        findings,
        tables={**findings.tables, "against_untrained": table},
        notes=(*findings.notes, f"Untrained weights: {label}."),
    )


def _columns(side: str, scalar: Scalar) -> dict[str, float]:
    return number_columns(side, scalar.value, scalar.interval or (float("nan"),) * 2)
