"""The tables of the causal probe: effects, conditions, doses, controls, later layers."""

from collections.abc import Mapping, Sequence

import numpy as np

from interp.probe import Readout
from interp.statistics.estimate import null_from_permutations, percentile_interval
from interp.table import LABEL, Table, number_columns

from .edits import BASELINE, HOW, REMOVED, Name
from .effects import READOUTS, Effect, Values, baseline_of, controls_of, two_sided_p
from .scalars import logit_change, measured_ratio

EFFECTS = (
    "Removing the axis: effect (edited − unedited) on each readout with its 95 % interval over prompts, beside its "
    "matched controls (mean, central 95 %), z and two-sided rank p (none where controls are random). Only the primary "
    "row was named beforehand; `p_family` of the others is over all of them. `random` is the mean of random directions "
    "of equal variance; `top_ten` and `resample` are positive controls."
)
CONDITIONS = (
    "Every edit but the matched controls: KL of the prediction from the unedited one with its 95 % interval over "
    "prompts, signed change of its entropy, size of the change in the edited tensor and in the logits, share of the "
    "variance that is gone, and |cos| with the axis."
)
DOSES = (
    "Dose curve: KL at every dose of the removal (0: nothing, 1: all of it), with its 95 % interval over prompts, "
    "beside matched controls at the same dose."
)
CONTROLS = "Every matched control: its effect on each readout, and its z among the others."
MATCHING = (
    "How controls were matched at each edited layer: axes refitted to permuted entropies at a dose of their own; of "
    "random ones single directions, subspaces of k dimensions, or the dose. Change over that of the axis: mean square "
    "as drawn (unedited activations at scored positions of the run's prompts, outside 0.9 to 1.1 rejected), variance "
    "as measured in the passes, over all edited positions (of several layers the later ones are changed already)."
)
LATER = (
    "Later layers of the edited site: held-out R² with which refitted ridge predicts the unedited entropy, without the "
    "edit, with it, and under matched controls; |cos| of the refitted axis with the unedited one; p over layers."
)


def effects_table(found: Sequence[Effect]) -> Table:
    """One row for each readout of each intervention."""
    rows = []
    for i, e in enumerate(found):
        null, nothing = null_from_permutations("", e.controls), (np.nan, np.nan)
        rows.append({
            "layers": words(e.layers), "on": e.on or "the run's prompts", "readout": e.readout,
            "role": "primary" if i == 0 else "exploratory", "unit": READOUTS[e.readout].unit,
            "n_prompts": len(e.clusters), "unedited": e.unedited,
            **number_columns("effect", e.value, e.bounds or nothing, (null.value, *null.band)),
            **number_columns("beyond", e.beyond, e.beyond_bounds or nothing),
            **number_columns("z", e.z, e.z_bounds or nothing), "p": e.p, "p_family": e.p_family,
            "random": float(e.random.mean()) if len(e.random) else np.nan,
            "top_ten": e.positive.get("top", np.nan), "resample": e.positive.get("resample", np.nan),
        })  # fmt: skip
    units = dict.fromkeys(rows[0], "as in unit") | {
        "layers": LABEL, "on": LABEL, "readout": LABEL, "role": LABEL, "unit": LABEL, "n_prompts": "prompts",
        "z": "1", "z_low": "1", "z_high": "1", "p": "probability", "p_family": "probability",
    }  # fmt: skip
    return Table.from_rows(rows, units, EFFECTS)


def conditions_table(under: Mapping[str, Readout], weights: np.ndarray) -> Table:
    """One row for each condition on the run's own prompts that is no matched control."""
    rows = []
    for key in under:
        name = Name.parse(key)
        if name.subject == BASELINE or name.on or name.subject.startswith(("control ", "random ")):
            continue
        read = under[key]
        rows.append({
            "layers": words(name.layers), "subject": "top ten" if name.subject == "top" else name.subject,
            "edit": name.how, "dose": name.dose, **_kl(under, key, weights),
            "entropy_change": float(read["entropy_change"].sum() / read["entropy_change.of"].sum()),
            "change_size": float(read["size"].mean()), "variance_share": float(read["variance_share"].mean()),
            "logit_change": logit_change(under, key), "overlap": float(np.mean(read.get("overlap", np.nan))),
        })  # fmt: skip
    units = dict.fromkeys(rows[0], "bits") | {
        "layers": LABEL, "subject": LABEL, "edit": LABEL, "dose": "1", "change_size": "fraction",
        "variance_share": "fraction", "overlap": "1",
    }  # fmt: skip
    return Table.from_rows(rows, units, CONDITIONS)


def doses_table(under: Mapping[str, Readout], weights: np.ndarray) -> Table:
    """One row for each dose: the axis, and each control that was run at it (rows of `subject` other than axis)."""
    rows = []
    for key in under:
        name = Name.parse(key)
        is_matched = name.subject == "axis" or name.subject.startswith("control ")
        if name.on or name.how != REMOVED or not is_matched or not _has_doses(under, name):
            continue
        change = under[key]["entropy_change"].sum() / under[key]["entropy_change.of"].sum()
        rows.append({
            "layers": words(name.layers), "subject": name.subject, "dose": name.dose, **_kl(under, key, weights),
            "entropy_change": float(change),
        })  # fmt: skip
    units = dict.fromkeys(rows[0], "bits") | {"layers": LABEL, "subject": LABEL, "dose": "1"}
    rows.sort(key=lambda row: (row["layers"], row["subject"] != "axis", row["subject"], row["dose"]))
    return Table.from_rows(rows, units, DOSES)


def controls_table(found: Sequence[Effect]) -> Table:
    """One row for each control, readout and intervention."""
    n = [len(e.controls) for e in found]
    columns = {
        "layers": np.repeat([words(e.layers) for e in found], n),
        "on": np.repeat([e.on or "the run's prompts" for e in found], n),
        "readout": np.repeat([e.readout for e in found], n), "control": np.concatenate([np.arange(k) for k in n]),
        "effect": np.concatenate([e.controls for e in found]), "z": np.concatenate([e.control_z for e in found]),
    }  # fmt: skip
    units = {"layers": LABEL, "on": LABEL, "readout": LABEL, "control": "index", "effect": "its readout's", "z": "1"}
    return Table(columns, units, CONTROLS)


def matching_table(under: Mapping[str, Readout]) -> Table:
    """One row for each edited layer of each intervention."""
    rows = []
    for name in (Name.parse(key) for key in under):
        if name.on or (name.subject, name.how, name.dose) != ("axis", REMOVED, 1.0):
            continue
        keys = controls_of(under, name)
        drawn = np.array([under[key]["ratio"] for key in keys])
        measured = np.array([measured_ratio(under[key], under[str(name)]) for key in keys])
        facts = under[keys[0]]["matching"]
        for i, layer in enumerate(name.layers):
            how, k, alike, n_rejected = facts[i]
            rows.append({
                "layers": words(name.layers), "layer": layer, "matched_by": HOW[int(how)], "dimensions": int(k),
                "dose": float(np.mean([under[key]["dose"][i] for key in keys])), "alike": float(alike),
                "rejected": int(n_rejected), "drawn": float(drawn[:, i].mean()),
                "drawn_lowest": float(drawn[:, i].min()),
                "drawn_highest": float(drawn[:, i].max()), "measured": float(measured[:, i].mean()),
                "measured_lowest": float(measured[:, i].min()), "measured_highest": float(measured[:, i].max()),
            })  # fmt: skip
    units = dict.fromkeys(rows[0], "1") | {
        "layers": LABEL, "layer": "layer", "matched_by": LABEL, "dimensions": "dimensions", "rejected": "draws",
    }  # fmt: skip
    return Table.from_rows(rows, units, MATCHING)


def later_table(under: Mapping[str, Readout], found: Sequence[Effect]) -> Table:
    """One row for each later layer of each intervention."""
    rows = []
    for e in found:
        if e.readout != "later_r2":
            continue
        name = Name(e.layers, "axis")
        keys = controls_of(under, name)
        baseline, axis = under[baseline_of(name)], under[str(name)]
        controls = np.array([_later_r2(under[key]) for key in keys])
        cosines = np.array([under[key]["later_axis"].mean(axis=1) for key in keys]).mean(axis=0)
        p = two_sided_p(_later_r2(axis), controls)
        for i, layer in enumerate(baseline["later_layers"].tolist()):
            null = null_from_permutations("", controls[:, i])
            rows.append({
                "layers": words(e.layers), "later_layer": layer, "unedited": float(_later_r2(baseline)[i]),
                **number_columns("r2", _later_r2(axis)[i], null=(null.value, *null.band)), "p": float(p[i]),
                "axis_cosine": float(axis["later_axis"][i].mean()), "axis_cosine_null": float(cosines[i]),
            })  # fmt: skip
    units = {
        "layers": LABEL, "later_layer": "layer", "unedited": "fraction", "r2": "fraction", "p": "probability",
        "axis_cosine": "1",
    }  # fmt: skip
    return Table.from_rows(rows, units, LATER)


def _later_r2(read: Readout) -> np.ndarray:
    """R² by later layer."""
    return 1 - read["later_r2"].sum(axis=1) / read["later_r2.of"].sum(axis=1)


def words(layers: tuple[int, ...]) -> str:
    return ", ".join(map(str, layers))


def _has_doses(under: Mapping[str, Readout], name: Name) -> bool:
    """Whether this one was run at more than dose 1."""
    return name.subject == "axis" or str(Name(name.layers, name.subject, dose=0.0)) in under


def _kl(under: Mapping[str, Readout], key: str, weights: np.ndarray) -> dict[str, float]:
    values = Values.of_conditions(under, [key], "kl")
    kl = float(values.whole[0])
    return number_columns("kl", kl, percentile_interval(kl, values.resampled(weights)[0]) or (np.nan, np.nan))
