"""Attention entropy over depth: does attention focus, layer by layer, and on what this prompt holds?

For every head the entropy of its attention row, H = −Σ α log2 α, averaged over heads only after it was taken
(averaging weights first would blur the heads into one another). Read at the scored rows (the last token of a text),
and averaged over all positions of each prompt. Beside it: divided by log2 of the visible keys, and with the first
position removed and the rest renormalised, since a sink there lowers the entropy whatever the evidence.

Three references stand beside the curve. A uniform row has log2 of the visible keys. Heads dealt to layers at random
(`depth_curve`) say what end points and steps are worth. The keys of another prompt at the same positions
(borrowed keys) keep position, temperature and sink and drop the content: what the row gains over them, the
content sharpening, is focusing on what this prompt holds; p by flipping the sign of whole prompts' gains.
Source: Paper III (arXiv 2512.23752), sections 4.2 and 4.5; its reduction in per cent is `reduction` times 100.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float

from interp.capture import Capture
from interp.findings import Findings, Interval, Null, Scalar
from interp.folds import PromptMean
from interp.need import Need
from interp.probe import Figure, Probe, Readout
from interp.statistics.nulls import null_from_permutations
from interp.table import LABEL, Table

from ..measures.depth_curve import DEPTH, DealtHeads, deal_heads, depth_statistics
from ..measures.finite import finite_or_absent
from ..measures.profiles import head_columns
from ..measures.prompt_means import Units, band, interval, mean_of_units
from ..measures.sign_flips import flip_p, flipped_means, random_signs
from .figures import entropy_figures

Profile = Float[np.ndarray, "unit layer head"]

SITES = {
    "entropy": ("pattern_entropy", "bits"),
    "normalised": ("pattern_entropy_normalised", "1"),
    "no_first": ("pattern_entropy_no_first", "bits"),
    "uniform": ("pattern_entropy_uniform", "bits"),
    "other_keys": ("pattern_entropy_null", "bits"),
    "sink_mass": ("sink_mass", "fraction"),
}
"""What is averaged: the site it is read at, and its unit."""

_CURVES = {
    "entropy": "attention entropy",
    "normalised": "attention entropy over log2 of the visible keys",
    "no_first": "attention entropy without the first position",
}
_MEANINGS = {
    "reduction": "share of the first layer's {} that is gone in the last layer; negative where it grew",
    "correlation": "Spearman's ρ of {} with depth; −1 where every layer focuses more than the one before",
    "area": "area under the curve of {} over relative depth, relative to its first layer; 1 where it stays",
    "largest_drop": "largest fall of {} from one layer to the next",
}
_HEADLINE = ("reduction", "correlation", "content_sharpening", "sink_mass")
_BANDS = "with 95 % bootstrap bands over prompts"
_SUFFIX = {"scored": "", "all": "_all_positions"}
_UNITS = {"positions": LABEL, "layer": "layer", "head": "head", "layer_p": "probability", "sharpening": "bits"}
_UNITS |= {name: unit for name, (_, unit) in SITES.items()}


@dataclass(frozen=True)
class AttentionEntropy(Probe):
    """How many bits of choice the attention rows leave, over depth.

    `positions` says where rows are read: `scored`, `all` (averaged within each prompt) or `both`.
    """

    positions: Literal["scored", "all", "both"] = "both"
    n_permutations: int = 1000
    n_bootstrap: int = 1000
    seed: int = 0

    name: ClassVar[str] = "attention_entropy"
    question: ClassVar[str] = "Does attention focus from the first layer to the last, and on what the prompt holds?"

    @property
    def needs(self) -> tuple[Need, ...]:
        return tuple(_need(name, where) for where in self._places for name in SITES)

    @property
    def _places(self) -> tuple[str, ...]:
        return ("scored", "all") if self.positions == "both" else (self.positions,)

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        rng = np.random.default_rng(self.seed)
        drawn = base.rows["drawn"].astype(bool)
        units = Units.of(base.rows.where(drawn), base.prompts.unit, self.n_bootstrap, rng)
        scalars: dict[str, Scalar] = {}
        by_layer: list[Mapping[str, np.ndarray]] = []
        by_head: list[Mapping[str, np.ndarray]] = []
        for where in self._places:
            profiles = _profiles(base, units, where)
            dealt = {name: deal_heads(mean_of_units(profiles[name]), self.n_permutations, rng) for name in _CURVES}
            signs = random_signs(self.n_permutations, units.n, rng)
            found = _depth_scalars(units, profiles, dealt) | {
                "content_sharpening": _sharpening(units, profiles["sharpening"], signs),
                "sink_mass": _sink_mass(units, profiles["sink_mass"], profiles["uniform"]),
            }
            scalars |= {name + _SUFFIX[where]: scalar for name, scalar in found.items()}
            by_layer.append(_layer_columns(units, profiles, dealt["entropy"], signs, where))
            by_head.append(_head_columns(units, profiles, signs, where))
        return Findings(
            self.name,
            scalars,
            {
                "by_layer": Table.stacked(by_layer, _UNITS, f"Means over heads and prompts, {_BANDS}."),
                "by_head": Table.stacked(by_head, _UNITS, f"Means over prompts, {_BANDS}."),
            },
            notes=_notes(base, units),
            headline=tuple(name + _SUFFIX[self._places[0]] for name in _HEADLINE),
        )

    def figures(self, findings: Findings) -> tuple[Figure, ...]:
        return entropy_figures(findings)


def _need(name: str, where: str) -> Need:
    site = SITES[name][0]
    return Need(site) if where == "scored" else Need(site, PromptMean(), at="all")


def _profiles(base: Capture, units: Units, where: str) -> dict[str, Profile]:
    """Every statistic per prompt, layer and head, and the gain over another prompt's keys."""
    read = {name: finite_or_absent(base, _need(name, where)) for name in SITES}
    if where == "scored":
        drawn = base.rows["drawn"].astype(bool)
        found = {name: units.means(read[name][:, drawn]) for name in SITES}
    else:
        place = np.searchsorted(np.unique(base.rows["prompt"]), units.index)
        found = {name: np.moveaxis(read[name][:, place], 1, 0) for name in SITES}
    return found | {"sharpening": found["other_keys"] - found["entropy"]}


def _depth_scalars(units: Units, profiles: Mapping[str, Profile], dealt: Mapping[str, DealtHeads]) -> dict[str, Scalar]:
    scalars: dict[str, Scalar] = {}
    for curve, what in _CURVES.items():
        replicates = units.resampled(profiles[curve].mean(axis=2))
        statistics = depth_statistics(replicates)
        measured = mean_of_units(profiles[curve]).mean(axis=1)
        statistics[:, DEPTH.index("largest_drop")] = _fixed_drop(measured, replicates)
        for i, name in enumerate(DEPTH):
            unit = SITES[curve][1] if name == "largest_drop" else "1"
            full = name if curve == "entropy" else f"{name}_{curve}"
            meaning = _MEANINGS[name].format(what)
            scalars[full] = _depth_scalar(units, statistics[:, i], dealt[curve], i, unit, meaning)
    return scalars


def _depth_scalar(
    units: Units, replicates: np.ndarray, dealt: DealtHeads, index: int, unit: str, meaning: str
) -> Scalar:
    value, chance = float(dealt.values[index]), dealt.dealt[:, index]
    is_defined = not np.isnan([value, *chance]).any()
    none = "undefined over a single layer, or where a first layer has no entropy"
    return Scalar.of(
        value, unit, Interval.of(interval(value, replicates) if is_defined else None, _method(units), none),
        null_from_permutations("heads dealt to layers at random", chance) if is_defined else none,
        p=dealt.p[index] if is_defined else None, p_over="layers" if DEPTH[index] == "largest_drop" else "",
        meaning=meaning, **units.counted,
    )  # fmt: skip


def _method(units: Units) -> str:
    return f"percentile bootstrap over {units.name}s within strata"


def _fixed_drop(curve: np.ndarray, replicates: np.ndarray) -> np.ndarray:
    """The step that is largest in the data, in every resample: choosing it again each time would inflate it."""
    if len(curve) < 2:
        return np.full(len(replicates), np.nan)
    step = int(np.diff(curve).argmin())
    return replicates[:, step] - replicates[:, step + 1]


def _sharpening(units: Units, gain: Profile, signs: np.ndarray) -> Scalar:
    by_unit = gain.mean(axis=(1, 2))
    value, flipped = float(mean_of_units(by_unit)), flipped_means(by_unit[:, None], signs)[:, 0]
    meaning = (
        "bits by which a row is sharper than with the keys of another prompt at the same positions, mean over layers "
        "and heads; 0 where attention depends on position and token alone"
    )
    about = units.counted | {"n": int((~np.isnan(by_unit)).sum()), "meaning": meaning}
    interval = units.mean_interval(by_unit, _method(units), "no prompt had another one to borrow keys from")
    if isinstance(interval, str):
        return Scalar.undefined(interval, "bits", **about | {"underpowered": True})
    null = null_from_permutations(f"gains of whole {units.name}s with random signs", flipped)
    return Scalar.of(value, "bits", interval, null, p=flip_p(by_unit[:, None], signs)[0], **about)


def _sink_mass(units: Units, mass: Profile, uniform: Profile) -> Scalar:
    by_unit, chance = mass.mean(axis=(1, 2)), np.exp2(-uniform).mean(axis=(1, 2))
    low, high = (float(x) for x in band(units.resampled(chance)))
    return Scalar.of(
        by_unit.mean(), "fraction", units.mean_interval(by_unit, _method(units), "no row has a weight"),
        Null("a uniform row over as many keys", float(chance.mean()), (low, high)),
        meaning="attention weight on the first position, mean over layers and heads", **units.counted,
    )  # fmt: skip


def _layer_columns(
    units: Units, profiles: Mapping[str, Profile], dealt: DealtHeads, signs: np.ndarray, where: str
) -> dict[str, np.ndarray]:
    n_layers = profiles["entropy"].shape[1]
    by_layer = {name: values.mean(axis=2) for name, values in profiles.items()}
    columns = {"positions": np.full(n_layers, where), "layer": np.arange(n_layers)} | units.mean_columns(by_layer)
    return columns | {"layer_p": dealt.layer_p, "sharpening_p": flip_p(by_layer["sharpening"], signs)}


def _head_columns(
    units: Units, profiles: Mapping[str, Profile], signs: np.ndarray, where: str
) -> dict[str, np.ndarray]:
    n_units, n_layers, n_heads = profiles["entropy"].shape
    by_head = {name: values.reshape(n_units, -1) for name, values in profiles.items()}
    columns = {"positions": np.full(n_layers * n_heads, where), **head_columns(n_layers, n_heads)}
    return columns | units.mean_columns(by_head) | {"sharpening_p": flip_p(by_head["sharpening"], signs)}


def _notes(base: Capture, units: Units) -> tuple[str, ...]:
    lengths = base.rows["length"]
    longest = int(lengths.max())
    window = base.model.window
    notes = [
        f"{units.n} {units.name}s of {int(lengths.min())} to {longest} tokens; the longest row sees {longest} keys "
        "at most, and entropy grows with the keys that are seen: compare runs at equal lengths.",
        "content_sharpening leaves out the first prompt in order of length, which has none to borrow keys from.",
    ]
    if window is not None:
        held = "binds" if window < longest else "never binds on these prompts"
        notes.append(f"The model's attention window of {window} tokens {held}.")
    return tuple(notes)
