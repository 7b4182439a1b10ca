"""Probes on models of which some layers have no attention: they see those that have it, under their own numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from interp.capture import Capture, ModelInfo
from interp.findings import Findings
from interp.probe import Probe, Readout
from interp.system.threads import one_thread
from interp.table import Table

LAYER = "layer"
"""The unit of what is the number of a layer, in tables and scalars; the field of a probe that names one."""


def reads_attention_alone(probe: Probe) -> bool:
    """Whether all that a probe reads layer by layer is of attention, so that it can do without the other layers."""
    layered = [need.described for need in probe.needs if need.described.layers != "once"]
    acts = probe.edits_model or probe.follows_checkpoints
    return bool(layered) and not acts and all(site.is_of_attention for site in layered)


def analysed(probe: Probe, base: Capture, under: Mapping[str, Readout]) -> Findings:
    """The findings of a probe; of attention alone, in a model that has it in some layers, they say in which.

    The probe sees a model of just these layers, in their order. In its tables, numbers and notes every layer then has
    its own number.
    """
    having = base.model.attention_layers
    with one_thread():
        if having is None or not reads_attention_alone(probe):
            return probe.analyse(base, under)
        seen = replace(base, model=replace(base.model, n_layers=len(having)))
        found = placed(probe, base.model).analyse(seen, under)
    note = (
        f"{len(having)} of {base.model.n_layers} layers have attention ({', '.join(map(str, having))}), and only these "
        "are seen: the first, the last and the next layer are meant among them."
    )
    return replace(
        found,
        tables={name: _numbered(table, having) for name, table in found.tables.items()},
        scalars={
            name: replace(scalar, value=float(having[int(scalar.value)])) if scalar.unit == LAYER else scalar
            for name, scalar in found.scalars.items()
        },
        notes=(*found.notes, note),
    )


def placed(probe: Probe, model: ModelInfo) -> Probe:
    """The probe with its field `layer`, a layer's own number, as a place among the layers that have attention.

    Negative ones count from the last of these. Raises `UsageError` for a layer without attention.
    """
    having, asked = model.attention_layers, probe.parameters().get(LAYER)
    if having is None or not isinstance(asked, int) or asked < 0 or not reads_attention_alone(probe):
        return probe
    model.refuse_without_attention(f"{probe.name}.{LAYER}={asked}", [asked])
    return replace(probe, **{LAYER: having.index(asked)})


def _numbered(table: Table, having: Sequence[int]) -> Table:
    for name, unit in table.units.items():
        if unit == LAYER:
            table = table.with_column(name, np.array(having)[table[name].astype(int)], unit)
    return table
