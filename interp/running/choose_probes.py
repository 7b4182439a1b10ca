"""The probes of a run: those that are named, and those of a group (`all`) whose sites the model has.

A named probe that reads what the model lacks is rejected with a message. If only some layers have attention, a probe of
attention sees these, under their own numbers.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import numpy as np

from interp.capture import Capture, ModelInfo
from interp.errors import UnknownName, UsageError
from interp.findings import Findings
from interp.model import Model
from interp.probe import Chosen, Probe, Readout
from interp.reading.readable import EVERYWHERE, first_lacking
from interp.registry import entries, load_entry
from interp.running.checkpoints import has_checkpoints
from interp.running.spec import make_probe
from interp.settings import read_fields, refuse_values, split_commas
from interp.system.threads import one_thread
from interp.table import Table

GROUPS = ("all", "everything")
"""`all`: every observational probe whose needs the model meets; `everything`: the causal ones too."""

_UNREGISTERED = "Of a class, `interp.run(probes=[...])` takes the object; register it (`interp.probes`) to give a name."

LAYER = "layer"
"""The unit of layer numbers in tables and scalars, and the field of a probe that names a layer."""


def probe_names(asked: Iterable[str]) -> dict[str, bool]:
    """The names of probes in these words, with groups expanded, and whether each is named itself."""
    known = entries("probe")
    found: dict[str, bool] = {}
    for word in asked:
        if word not in known and word not in GROUPS:
            raise UnknownName("probe", str(word), [*known, *GROUPS], _UNREGISTERED if ":" in str(word) else "")
        for name in [word] if word in known else known:
            if word in (name, "everything") or load_entry("probe", name).observational:
                found[name] = found.get(name, False) or word in known
    return found


def choose_probes(
    asked: str | Probe | Sequence[str | Probe], settings: Mapping[str, Mapping[str, Any]] | None = None
) -> Chosen:
    """The probes of a run, with their settings; names, groups and configured probes may be mixed."""
    settings = settings or {}
    chosen: dict[str, Probe] = {}
    named: set[str] = set()
    listed = split_commas(asked) if isinstance(asked, str) else [asked] if isinstance(asked, Probe | type) else asked
    for each in listed or ():
        each = each() if isinstance(each, type) else each
        if isinstance(each, Probe):
            if own := settings.get(each.name):
                each = replace(each, **read_fields(type(each), each.name, own))
            if each.name in named and chosen[each.name] != each:
                fix = "Make one run for each; `interp compare` sets them side by side."
                raise UsageError(asked=f"the probe {each.name} twice", found="a record holds one of a name", fix=fix)
            chosen[each.name] = each
            named.add(each.name)
            continue
        for name, is_named in probe_names([each]).items():
            chosen[name] = chosen[name] if name in chosen else make_probe(name, settings.get(name, {}))
            named |= {name} if is_named else set()
    if not chosen:
        raise UsageError(asked="a run", found="no probe is named", fix="Name at least one; `interp list probes`.")
    for name in settings:
        if name not in chosen:
            raise UnknownName("probe of this run with settings", name, chosen)
    for probe in chosen.values():
        refuse_values(probe.name, vars(probe))
        probe.refuse_fields(None)
    return Chosen(tuple(chosen.values()), chosen.keys() - named)


def readable_probes(model: Model, chosen: Chosen, checkpoints: Sequence[str] = ()) -> tuple[Probe, ...]:
    """The probes whose needs the model meets; raises `UsageError` if it does not meet a named one, or none.

    Without checkpoints a group has no probes that follow them.
    """
    is_training = bool(checkpoints) or has_checkpoints(model)
    probes = [p for p in chosen.probes if is_training or not (p.follows_checkpoints and p.name in chosen.optional)]

    def refuse(probe: Probe) -> None:
        found = first_lacking(model, probe.needs, everywhere=not reads_attention_alone(probe))
        if found is not None:
            working = _setting_that_works(probe)
            raise UsageError(
                asked=f"the probe {probe.name} on {model.name}",
                found=f"`{probe.name}` reads {found[0]}; this model has no {found[1]}",
                fix=f"Read the residual stream in place of it: --set {working}." if working
                else "Name a model that has it, or a probe that reads what this model has (`interp list probes`).",
            )  # fmt: skip
        placed(probe, model.info)  # which refuses a layer without attention

    kept = chosen.served(probes, refuse)
    if not kept:
        raise chosen.refused[probes[0].name]
    return kept


def _setting_that_works(probe: Probe) -> str | None:
    for name in {"site", "sites"} & {f.name for f in fields(probe)}:
        with suppress(UsageError):  # of a site that this field does not take
            changed = replace(probe, **read_fields(type(probe), probe.name, {name: EVERYWHERE}))
            if {need.site for need in changed.needs if need.described.source != "output"} == {EVERYWHERE}:
                return f"{probe.name}.{name}={EVERYWHERE}"
    return None


def reads_attention_alone(probe: Probe) -> bool:
    """Whether a probe reads only attention, layer by layer, so that layers without it can be left out."""
    layered = [need.described for need in probe.needs if need.described.layers != "once"]
    acts = probe.edits_model or probe.follows_checkpoints
    return bool(layered) and not acts and all(site.is_of_attention for site in layered)


def analysed(probe: Probe, base: Capture, under: Mapping[str, Readout]) -> Findings:
    """The findings of a probe, with its parameters.

    If only some layers have attention, a probe of attention sees a model of these layers. Its tables and numbers then
    have the layers' own numbers, and a note names them.
    """
    having = base.model.attention_layers
    with one_thread():
        if having is None or not reads_attention_alone(probe):
            return replace(probe.analyse(base, under), parameters=probe.parameters())
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
        parameters=probe.parameters(),
    )


def placed(probe: Probe, model: ModelInfo) -> Probe:
    """The probe with its field `layer` as an index into the layers that have attention; negative ones stay.

    Raises `UsageError` for a layer without attention.
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
