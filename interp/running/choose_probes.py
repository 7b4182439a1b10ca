"""Which probes a run asks: those that are named, and of a group (`all`) those whose sites the model has.

A probe that is named and reads what the model lacks is rejected with a message.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

from interp.errors import UnknownName, UsageError
from interp.model import Model
from interp.probe import Probe
from interp.reading.readable import EVERYWHERE, first_lacking
from interp.registry import entries, load_entry
from interp.running.attention_alone import placed, reads_attention_alone
from interp.running.spec import make_probe
from interp.settings import read_fields, refuse_values, split_commas

GROUPS = ("all", "everything")
"""`all`: every observational probe whose needs the model meets; `everything`: the causal ones too."""

_UNREGISTERED = "Of a class, `interp.run(probes=[...])` takes the object; register it (`interp.probes`) to give a name."


@dataclass(frozen=True)
class ChosenProbe:
    """A probe of a run, and whether the user named it or took it with a group."""

    probe: Probe
    is_named: bool


def probe_names(asked: Iterable[str]) -> dict[str, bool]:
    """The probes that these words stand for, in order, and whether each is named itself; groups are spelled out."""
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
) -> tuple[ChosenProbe, ...]:
    """The probes of a run, with their settings; names, groups and configured probes may be mixed."""
    settings = settings or {}
    chosen: dict[str, ChosenProbe] = {}
    listed = split_commas(asked) if isinstance(asked, str) else [asked] if isinstance(asked, Probe | type) else asked
    for each in listed or ():
        each = each() if isinstance(each, type) else each
        if isinstance(each, Probe):
            if own := settings.get(each.name):
                each = replace(each, **read_fields(type(each), each.name, own))
            before = chosen.get(each.name)
            if before is not None and before.is_named and before.probe != each:
                fix = "Make one run for each; `interp compare` sets them side by side."
                raise UsageError(asked=f"the probe {each.name} twice", found="a record holds one of a name", fix=fix)
            chosen[each.name] = ChosenProbe(each, True)
            continue
        for name, is_named in probe_names([each]).items():
            probe = chosen[name].probe if name in chosen else make_probe(name, settings.get(name, {}))
            chosen[name] = ChosenProbe(probe, is_named or (name in chosen and chosen[name].is_named))
    if not chosen:
        raise UsageError(asked="a run", found="no probe is named", fix="Name at least one; `interp list probes`.")
    for name in settings:
        if name not in chosen:
            raise UnknownName("probe of this run with settings", name, chosen)
    for each in chosen.values():
        refuse_values(each.probe.name, vars(each.probe))
        each.probe.refuse_fields(None)
    return tuple(chosen.values())


def readable_probes(model: Model, chosen: Sequence[ChosenProbe]) -> tuple[Probe, ...]:
    """The probes whose needs the model meets. A named one that it does not meet is refused, and so is an empty rest."""
    kept, unmet = [], []
    for each in chosen:
        found = first_lacking(model, each.probe.needs, everywhere=not reads_attention_alone(each.probe))
        if found is not None and each.is_named:
            raise UsageError(
                asked=f"the probe {each.probe.name} on {model.name}",
                found=f"`{each.probe.name}` reads {found[0]}; this model has no {found[1]}",
                fix=_remedy([each.probe]),
            )
        placed(each.probe, model.info)  # which refuses a layer without attention
        (kept if found is None else unmet).append(each.probe)
    if not kept:
        raise UsageError(
            asked=f"all probes on {model.name}",
            found=f"each of them ({', '.join(p.name for p in unmet)}) needs something that this model does not have",
            fix=_remedy(unmet),
        )
    return tuple(kept)


def _remedy(probes: Iterable[Probe]) -> str:
    working = [s for s in map(_setting_that_works, probes) if s is not None]
    if working:
        return f"Read the residual stream in place of it: {' or '.join(f'--set {s}' for s in working)}."
    return "Name a model that has it, or a probe that reads what this model has (`interp list probes`)."


def _setting_that_works(probe: Probe) -> str | None:
    for name in {"site", "sites"} & {f.name for f in fields(probe)}:
        with suppress(UsageError):  # of a site that this field does not take
            changed = replace(probe, **read_fields(type(probe), probe.name, {name: EVERYWHERE}))
            if {need.site for need in changed.needs if need.described.source != "output"} == {EVERYWHERE}:
                return f"{probe.name}.{name}={EVERYWHERE}"
    return None
