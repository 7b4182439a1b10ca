"""The runs of a comparison: opened, labelled, and grouped."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from interp.errors import UsageError
from interp.findings import Interval, Scalar
from interp.formatting import last_part
from interp.options import BESIDE
from interp.records.diff import flat_settings, is_of_other_target, scalars_of
from interp.records.record import RunRecord, open_run
from interp.system.progress import Report

TUNNEL = "tunnel"
"""The probe name for the figures on a wind tunnel's card: its errors against the exact posterior."""

_TUNNEL_HEADLINE = ("kl_bits", "mae_per_sequence_bits")
_NOT_THE_TRAINING = {"figures", "seed", "variant", "core_seconds", "environment", "baselines", "eval_seed", "n_eval"}
_IDENTITIES = (
    "model.name", "model.source", "model.fingerprint", "model.revision", "model.n_parameters", "model.card.figures",
    "model.card.baselines", "model.card.core_seconds", "model.card.variant", "model.card.n_parameters",
    "model.card.environment", "model.card.arch", "model.card.step", "model.card.network.n_layers",
    "model.card.network.n_kv_heads", "model.card.network.window", "model.card.network.d_model", "model.checkpoints",
    "spec.model", "spec.revision", "prompts.probes", "prompts.source", "prompts.name", "environment.code",
)  # fmt: skip
"""Names and consequences of a model, which differ between any two models."""
MIN_LAYERS = 8
"""The fewest layers for a rank correlation with depth: over fewer, chance often gives 0.8 and more."""


@dataclass(frozen=True)
class Run:
    """One record with its label, and its group of repetitions (by default the label)."""

    label: str
    group: str
    record: RunRecord

    @cached_property
    def scalars(self) -> dict[tuple[str, str], Scalar]:
        """Every number by probe and name, those of a wind tunnel's card first."""
        few = (n_layers := self.record.model.get("n_layers") or MIN_LAYERS) < MIN_LAYERS
        why = f"a rank correlation over {n_layers} layers"
        return card_scalars(self.record.model.get("card")) | {
            key: replace(s, interval=None, interval_reason=why) if few and "with depth" in s.meaning else s
            for key, s in scalars_of(self.record).items()
        }

    @property
    def headline(self) -> list[tuple[str, str]]:
        card = [(TUNNEL, name) for name in _TUNNEL_HEADLINE if (TUNNEL, name) in self.scalars]
        return card + [(probe, name) for probe, found in self.record.findings.items() for name in found.headline]


@dataclass(frozen=True)
class Compared:
    """The runs in order, and for each group the one that it is compared with (None for a reference)."""

    runs: tuple[Run, ...]
    against: Mapping[str, str | None]

    @property
    def groups(self) -> dict[str, list[Run]]:
        return {group: [run for run in self.runs if run.group == group] for group in self.against}

    @cached_property
    def shared(self) -> list[tuple[str, str]]:
        """The numbers that at least two runs have, headlines first."""
        headline = dict.fromkeys(key for run in self.runs for key in run.headline)
        keys = dict.fromkeys([*headline, *(key for run in self.runs for key in run.scalars)])
        return [key for key in keys if sum(key in run.scalars for run in self.runs) > 1]

    @cached_property
    def headline(self) -> list[tuple[str, str]]:
        named = {key for run in self.runs for key in run.headline}
        return [key for key in self.shared if key in named]

    def is_of_other_target(self, group: str, against: str, *key: str) -> bool:
        """Whether runs of the two groups measured a number for different targets."""
        mine, theirs = ([r.record for r in self.groups[of] if key in r.scalars] for of in (group, against))
        return key[0] != TUNNEL and any(is_of_other_target(one, two, *key) for one in theirs for two in mine)

    def controls(self, probe: str, name: str) -> dict[str, str]:
        """The controls of a number in any run, with their words."""
        found = [run.record.findings[probe].controls.get(name, ()) for run in self.runs if probe in run.record.findings]
        return {control.scalar: control.words for controls in found for control in controls}

    def what_varies(self) -> dict[str, list[Any]]:
        """All settings but names that differ between records, by path, with the value in each run."""
        each = [flat_settings(run.record) for run in self.runs]
        paths = dict.fromkeys(path for flat in each for path in flat if not path.startswith(_IDENTITIES))
        values = {path: [flat.get(path) for flat in each] for path in paths}
        return {path: found for path, found in values.items() if any(value != found[0] for value in found)}


def open_compared(
    paths: Sequence[str], labels: Sequence[str], groups: Sequence[str], against: Sequence[str], progress: Report
) -> Compared:
    """Open the records and group them; `UsageError` if labels or groups do not fit."""
    if len(paths) < 2:
        raise UsageError(
            asked=f"a comparison of {len(paths)} run{'' if len(paths) == 1 else 's'}",
            found="there is nothing to compare",
            fix="Name two or more folders of runs.",
        )
    for what, given in (("labels", labels), ("groups", groups), ("against", against)):
        if given and len(given) != len(paths):
            raise UsageError(
                asked=f"{len(given)} {what} for {len(paths)} runs",
                found="every run needs one, in the same order, or none is given",
                fix="Give as many as there are runs.",
            )
    records = []
    for path in paths:
        records.append(open_run(path))
        progress(len(records), len(paths))
        if not records[-1].model:
            raise UsageError(
                asked=f"comparing {path}",
                found="it is the record of a study, not of one model",
                fix="Name the runs that it was made of.",
            )
    names = labels or _labels(records, paths)
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(
            asked=f"a comparison of {len(paths)} runs",
            found=f"two of them are named {twice[0]!r}",
            fix="Name every run once, and give every label to one of them.",
        )
    pooled = groups or _repetitions(records, names)
    first = {group: (against or [pooled[0]] * len(pooled))[i] for i, group in reversed([*enumerate(pooled)])}
    order = dict.fromkeys(pooled)
    strange = sorted(set(first.values()) - set(order))
    if strange:
        raise UsageError(
            asked=f"a comparison against {strange[0]!r}", found="no run is of this group", fix="Name one of the groups."
        )
    runs = tuple(Run(name, group, record) for name, group, record in zip(names, pooled, records, strict=True))
    return Compared(runs, {group: None if first[group] == group else first[group] for group in order})


def card_scalars(card: Mapping[str, Any] | None) -> dict[tuple[str, str], Scalar]:
    """The figures on the card of a wind tunnel as numbers; checkpoints have none."""
    if not card:
        return {}
    position, n = card.get("baselines", {}).get("position", {}), card.get("n_eval", 0)
    return {
        (TUNNEL, name): Scalar.of(
            figure["value"], figure["unit"],
            Interval(figure["low"], figure["high"], f"bootstrap over {n} fresh sequences"),
            f"position alone gives {position[name]:.3g}" if name in position else "an error, least at 0",
            n=n, n_unit="sequence",
        )
        for name, figure in card.get("figures", {}).items()
        if math.isfinite(figure["value"])
    }  # fmt: skip


def _labels(records: Sequence[RunRecord], paths: Sequence[str]) -> list[str]:
    """The models' names if they differ, otherwise the folders'."""
    names = [last_part(str(record.model.get("name", ""))) for record in records]
    return names if len(set(names)) == len(names) else [last_part(path) for path in paths]


def _repetitions(records: Sequence[RunRecord], labels: Sequence[str]) -> list[str]:
    """The group of each run: wind tunnels that differ only in their seed have the label of the first."""
    found: dict[str, str] = {}
    return [
        found.setdefault(json.dumps(same, sort_keys=True), label) if (same := _training(record)) else label
        for record, label in zip(records, labels, strict=True)
    ]


def _training(record: RunRecord) -> dict[str, Any] | None:
    """The training and the specification of a wind tunnel, without the seed; None for other models."""
    card = record.model.get("card")
    if not card:
        return None
    asked = {name: value for name, value in record.spec.items() if name not in ("model", *BESIDE)}
    return {"spec": asked, **{name: value for name, value in card.items() if name not in _NOT_THE_TRAINING}}
