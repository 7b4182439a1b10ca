"""The tables of the causal probe: effects, conditions, controls, later layers; and the notes beside them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Num

from interp.probe import Readout
from interp.statistics.estimates import Estimates
from interp.table import Table

from ..measures.target import Target
from .controls import HOW
from .edits import BASELINE, Name
from .effects import Effects, baseline_of, controls_of, logit_change, measured_ratio, readings
from .quantities import QUANTITIES, READOUTS

RUN = "the run's prompts"
"""The set of prompts of rows that no other set is named for."""

EFFECTS = (
    "Removing the axis: effect (edited − unedited) on each readout with its 95 % interval over prompts, beside its "
    "matched controls (mean, central 95 %), z and two-sided rank p (none where controls are random). Only the primary "
    "row was named beforehand; `p_family` of the others is over all of them. `random` is the mean of random directions "
    "of equal variance; `top_ten` and `resample` are positive controls."
)
CONDITIONS = (
    "Every edit but the matched controls: KL of the prediction from the unedited one with its 95 % interval over "
    "prompts, signed change of its entropy, size of the change in the edited tensor and in the logits, and the share "
    "of the variance that is gone."
)
CONTROLS = "Every matched control: its effect on each readout, and its z among the others."
MATCHING = (
    "How controls were matched at each edited layer: axes refitted to permuted {targets} at a dose of their own; of "
    "random ones single directions, subspaces of k dimensions, or the dose. Change over that of the axis: mean square "
    "as drawn (unedited activations at scored positions of the run's prompts, outside 0.9 to 1.1 rejected), variance "
    "as measured in the passes, over all edited positions (of several layers the later ones are changed already)."
)
LATER = (
    "Later layers of the edited site: held-out R² with which refitted ridge predicts {target} (unedited), without the "
    "edit, with it, and under matched controls; |cos| of the refitted axis with the unedited one; p over layers."
)


ALIKE = 0.2
"""Mean squared cosine between controls above which a note gives it."""

_MATCHED = {
    "refit": "axes fitted as it was, to {targets} permuted between prompts, at a dose of {dose:.2g} on average for a "
    "change of equal size at the scored positions",
    "direction": "single random directions tilted until they take out as much variance",
    "subspace": "random subspaces of {dimensions} dimensions (too few single ones beside the axis are loud enough)",
    "dose": "random directions distributed as the data at a dose of {dose:.2g} on average, for a change of equal norm "
    "(nothing beside the axis is loud enough)",
}


def tables_of(
    effects: Effects, under: Mapping[str, Readout], weights: Num[np.ndarray, "resample prompt"], target: Target
) -> dict[str, Table]:
    """All of them by name; `weights` resample the prompts of the run."""
    later = later_table(under, effects, target)
    return {
        "effects": target.named_in(effects_table(effects)), "conditions": conditions_table(under, weights),
        **({"later_layers": later} if later else {}),
        "matching": matching_table(under, effects, target), "controls": controls_table(effects),
    }  # fmt: skip


def effects_table(effects: Effects) -> Table:
    """One row for each readout of each intervention."""
    beyond, z = (replace(of, null=None, p=None) for of in (effects.beyond, effects.z))
    columns = {
        **_where(effects), "role": np.where(np.arange(len(effects.names)) == 0, "primary", "exploratory"),
        "unit": np.array([READOUTS[readout][0] for readout in effects.readouts]),
        "n_prompts": np.array([len(clusters) for clusters in effects.clusters]), "unedited": effects.unedited,
        "effect": effects.effect, "beyond": beyond, "z": z, "p": effects.p, "p_family": effects.p_family,
        **{column: effects.by(kind)[:, 0]
           for column, kind in {"random": "random", "top_ten": "top", "resample": "resample"}.items()},
    }  # fmt: skip
    return QUANTITIES.table(columns, EFFECTS)


def _where(effects: Effects) -> dict[str, np.ndarray]:
    names = effects.names
    of = {"layers": [words(name.layers) for name in names], "on": [name.on or RUN for name in names]}
    return {name: np.array(x) for name, x in {**of, "readout": effects.readouts}.items()}


def controls_table(effects: Effects) -> Table:
    """One row for each control, readout and intervention."""
    n, n_places = effects.controls.shape
    return QUANTITIES.table(
        {
            **{name: np.repeat(column, n) for name, column in _where(effects).items()},
            "control": np.tile(np.arange(n), n_places), "effect": effects.controls.T.ravel(),
            "z": effects.control_z.T.ravel(),
        },
        CONTROLS, effect="its readout's",
    )  # fmt: skip


def conditions_table(under: Mapping[str, Readout], weights: Num[np.ndarray, "resample prompt"]) -> Table:
    """One row for each condition on the run's own prompts that is no matched control."""
    names = [name for name in map(Name.parse, under) if not name.on and name.subject.split()[0] not in _NOT_SHOWN]
    read = [under[str(name)] for name in names]
    kl, entropy = (readings(under, [str(name) for name in names], of, weights) for of in ("kl", "entropy_change"))
    columns = {
        "layers": np.array([words(name.layers) for name in names]),
        "subject": np.array([_SUBJECTS.get(name.subject, name.subject) for name in names]),
        "edit": np.array([name.how for name in names]),
        "dose": np.ones(len(names)),  # the ledger reads rows of dose 1, also of records that have others
        "kl": Estimates.resampled(kl[:, 0], kl[:, 1:].T), "entropy_change": entropy[:, 0],
        "change_size": np.array([one["size"].mean() for one in read]),
        "variance_share": np.array([one["variance_share"].mean() for one in read]),
        "logit_change": np.array([logit_change(under, str(name)) for name in names]),
    }  # fmt: skip
    return QUANTITIES.table(columns, CONDITIONS)


_SUBJECTS = {"top": "top ten", "matched_top": "top ten, matched"}
_NOT_SHOWN = {BASELINE, "control", "random"}


def matching_table(under: Mapping[str, Readout], effects: Effects, target: Target) -> Table:
    """One row for each edited layer of each intervention."""
    parts = []
    for name in _interventions(effects, "kl"):
        keys = controls_of(under, name)
        how, k, alike, n_rejected = under[keys[0]]["matching"].T
        part = {
            "layers": np.full(len(how), words(name.layers)), "layer": np.array(name.layers),
            "matched_by": np.array(HOW)[how.astype(int)], "dimensions": k.astype(int),
            "dose": np.mean([under[key]["dose"] for key in keys], axis=0), "alike": alike,
            "rejected": n_rejected.astype(int),
        }  # fmt: skip
        drawn = np.array([under[key]["ratio"] for key in keys])
        measured = np.array([measured_ratio(under[key], under[str(name)]) for key in keys])
        for of, ratio in {"drawn": drawn, "measured": measured}.items():
            part |= {of: ratio.mean(axis=0), f"{of}_lowest": ratio.min(axis=0), f"{of}_highest": ratio.max(axis=0)}
        parts.append(part)
    return QUANTITIES.stacked(parts, target.say(MATCHING))


def _interventions(effects: Effects, readout: str) -> list[Name]:
    """The removals under which this was read on the run's prompts."""
    return [name for name, of in zip(effects.names, effects.readouts, strict=True) if of == readout and not name.on]


def later_table(under: Mapping[str, Readout], effects: Effects, target: Target) -> Table | None:
    """One row for each later layer of each intervention; None where none has any."""
    parts = []
    for name in _interventions(effects, "later_r2"):
        keys = controls_of(under, name)
        baseline, axis = under[baseline_of(name)], under[str(name)]
        controls = np.array([_later_r2(under[key]) for key in keys])
        r2 = Estimates(_later_r2(axis)).permuted(controls, asks="either")
        parts.append({
            "layers": np.full(len(r2.value), words(name.layers)), "later_layer": baseline["later_layers"],
            "unedited": _later_r2(baseline), "r2": Estimates(r2.value, null=r2.null), "p": np.asarray(r2.p),
            "axis_cosine": axis["later_axis"].mean(axis=1),
            "axis_cosine_null": np.mean([under[key]["later_axis"].mean(axis=1) for key in keys], axis=0),
        })  # fmt: skip
    return QUANTITIES.stacked(parts, target.say(LATER), unedited="fraction") if parts else None


def _later_r2(read: Readout) -> np.ndarray:
    """R² by later layer."""
    return 1 - read["later_r2"].sum(axis=1) / read["later_r2.of"].sum(axis=1)


def words(layers: tuple[int, ...]) -> str:
    return ", ".join(map(str, layers))


def notes(effects: Effects | None, matching: Table | None, targets: str) -> tuple[str, ...]:
    """How controls were matched, and what could not be read."""
    if effects is None or matching is None:
        return ("The model was not run under edits: there is nothing to say about use.",)
    found = [_matching(row, targets) for row in matching.rows()]
    if "later_r2" not in effects.readouts:
        found.append("later_r2 is left out: no later layer of the site, or nothing varies there.")
    read_on = {name.on for name in effects.names}
    if "sula" in read_on:
        found.append("slope and sula_kl: on SULA prompts (condition main), edited with the same axes and controls.")
    if "mixed" in read_on:
        found.append("loss: on the prompts `mixed`, edited with the same axes and controls.")
    return tuple(found)


def _matching(row: Mapping[str, Any], targets: str) -> str:
    how = _MATCHED[row["matched_by"]].format(dimensions=row["dimensions"], dose=row["dose"], targets=targets)
    text = (
        f"Controls at layer {row['layer']} (of {row['layers']}): {how}; variance ratio over all edited positions "
        f"{row['measured_lowest']:.3f} to {row['measured_highest']:.3f}, {row['rejected']} draws rejected."
    )
    if row["alike"] > ALIKE:
        text += f" They resemble one another (mean squared cosine {row['alike']:.2f}): the null is narrow."
    return text
