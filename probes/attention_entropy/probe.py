"""Attention entropy over depth: does attention focus, layer by layer, and on what this prompt holds?

For every head the entropy of its attention row, H = −Σ α log2 α, averaged over heads only after it was taken
(averaging weights first would blur the heads into one another). Read at the scored rows (the last token of a text),
and averaged over all positions of each prompt. Beside it: divided by log2 of the visible keys. Every number has a twin
with the first position removed and the rest renormalised, since a sink there lowers the entropy whatever the evidence;
where the sink is large the twin is the headline (`measures.sinks`).

Two references stand beside the curve. A uniform row has log2 of the visible keys. The keys of another prompt at the
same positions (borrowed keys) keep position, temperature and sink and drop the content: what the row gains over them,
the content sharpening, is focusing on what this prompt holds; p by flipping the sign of whole prompts' gains. What the
curve does over depth has an interval over prompts and no p (`measures.depth_curve`).
Source: Paper III (arXiv 2512.23752), sections 4.2 and 4.5; its reduction in per cent is `reduction` times 100.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float

from interp.capture import Capture
from interp.findings import Findings, Null, Scalar
from interp.folds import PromptMean
from interp.need import Need
from interp.probe import Figure, Probe, Readout, Sentences
from interp.statistics.estimate import band
from interp.statistics.units import Units, mean_of_units
from interp.table import LABEL, Table

from ..measures.depth_curve import DEPTH, depth_scalar, depth_statistics
from ..measures.finite import finite_or_absent
from ..measures.profiles import head_columns
from ..measures.sign_flips import flip_p, gain_scalar
from ..measures.sinks import read_first, sink_controls, sink_note, turned, turned_heads_note
from .figures import entropy_figures

Profile = Float[np.ndarray, "unit layer head"]

SITES = {
    "entropy": ("pattern_entropy", "bits"),
    "normalised": ("pattern_entropy_normalised", "1"),
    "normalised_no_first": ("pattern_entropy_normalised_no_first", "1"),
    "no_first": ("pattern_entropy_no_first", "bits"),
    "uniform": ("pattern_entropy_uniform", "bits"),
    "uniform_no_first": ("pattern_entropy_uniform_no_first", "bits"),
    "other_keys": ("pattern_entropy_null", "bits"),
    "other_keys_no_first": ("pattern_entropy_no_first_null", "bits"),
    "sink_mass": ("sink_mass", "fraction"),
}
"""What is averaged: the site it is read at, and its unit."""

_CURVES = {
    "entropy": "attention entropy",
    "normalised": "attention entropy over log2 of the visible keys",
    "no_first": "attention entropy without the first position",
    "normalised_no_first": "attention entropy over log2 of the visible keys, without the first position",
}
_SHARPENING = {"sharpening": ("other_keys", "entropy"), "sharpening_no_first": ("other_keys_no_first", "no_first")}
"""What a row gains over another prompt's keys: the difference of these two."""

_MEANINGS = {
    "reduction": "share of the first layer's {} that is gone in the last layer; negative where it grew",
    "correlation": "Spearman's ρ of {} with depth; −1 where every layer focuses more than the one before",
    "area": "area under the curve of {} over relative depth, relative to its first layer; 1 where it stays",
    "largest_drop": "largest fall of {} from one layer to the next",
}
_TWINNED = ("reduction", "correlation", "content_sharpening")
_FACTS = {
    "reduction": "attention sharpens with depth",
    "content_sharpening": "attention depends on this prompt's content",
}
_REFERENCES = ("uniform", "uniform_no_first", "other_keys", "other_keys_no_first")
_WITHOUT = ", without the first position in either"
_TURNS = "turns: the sharpening has the other sign without the first position."
_BANDS = "with 95 % bootstrap bands over prompts"
_SUFFIX = {"scored": "", "all": "_all_positions"}
_UNITS = {"positions": LABEL, "layer": "layer", "head": "head", "turns": "boolean"} | dict.fromkeys(_SHARPENING, "bits")
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
    sentences: ClassVar[tuple[Sentences, ...]] = (
        Sentences(
            60, "Does attention focus on what the prompt says?",
            tuple(f"content_sharpening{twin}{where}" for where in _SUFFIX.values() for twin in ("", "_no_first")),
            "Attention rows are {value} sharper on the prompt's own keys than on those of another prompt.",
            "Attention rows are no sharper on the prompt's own keys than on those of another prompt.",
            "Attention rows are {size} broader on the prompt's own keys than on those of another prompt.",
            limit="A mean over all layers and heads: single heads may do otherwise.",
        ),
    )  # fmt: skip
    on_drawn: ClassVar[bool] = True

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
        sinks: list[float] = []
        for where in self._places:
            profiles = _profiles(base, units, where)
            sinks.append(_sink(profiles))
            signs = units.signs(self.n_permutations, rng)
            found = _depth_scalars(units, profiles) | {
                "content_sharpening": _sharpening(units, profiles["sharpening"], signs, ""),
                "content_sharpening_no_first": _sharpening(units, profiles["sharpening_no_first"], signs, _WITHOUT),
                "sink_mass": _sink_mass(units, profiles["sink_mass"], profiles["uniform"]),
            }
            scalars |= {name + _SUFFIX[where]: scalar for name, scalar in found.items()}
            by_layer.append(_layer_columns(units, profiles, signs, where))
            by_head.append(_head_columns(units, profiles, signs, where))
        suffix = _SUFFIX[self._places[0]]
        names, sink = [name + suffix for name in _TWINNED], sinks[0]
        facts = zip(read_first([name + suffix for name in _FACTS], sink, suffix), _FACTS.values(), strict=True)
        return Findings(
            self.name,
            scalars,
            {
                "by_layer": Table.stacked(by_layer, _UNITS, f"Means over heads and prompts, {_BANDS}."),
                "by_head": Table.stacked(by_head, _UNITS, f"Means over prompts, {_BANDS}. {_TURNS}"),
            },
            notes=(*_notes(base, units), sink_note(sink), *_turned(by_head[0])),
            headline=(*read_first(names, sink, suffix), f"sink_mass{suffix}"),
            controls=sink_controls(names, sink, suffix),
            facts=dict(facts),
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
    return found | {name: found[other] - found[own] for name, (other, own) in _SHARPENING.items()}


def _depth_scalars(units: Units, profiles: Mapping[str, Profile]) -> dict[str, Scalar]:
    scalars: dict[str, Scalar] = {}
    for curve, what in _CURVES.items():
        replicates = units.resampled(profiles[curve].mean(axis=2))
        statistics = depth_statistics(replicates)
        measured = mean_of_units(profiles[curve]).mean(axis=1)
        statistics[:, DEPTH.index("largest_drop")] = _fixed_drop(measured, replicates)
        for i, (name, value) in enumerate(zip(DEPTH, depth_statistics(measured), strict=True)):
            unit = SITES[curve][1] if name == "largest_drop" else "1"
            full = name if curve == "entropy" else f"{name}_{curve}"
            meaning = _MEANINGS[name].format(what)
            scalars[full] = depth_scalar(name, float(value), statistics[:, i], units, unit, meaning)
    return scalars


def _method(units: Units) -> str:
    return f"percentile bootstrap over {units.drawn}s within strata"


def _fixed_drop(curve: np.ndarray, replicates: np.ndarray) -> np.ndarray:
    """The step that is largest in the data, in every resample: choosing it again each time would inflate it."""
    if len(curve) < 2:
        return np.full(len(replicates), np.nan)
    step = int(np.diff(curve).argmin())
    return replicates[:, step] - replicates[:, step + 1]


def _sharpening(units: Units, gain: Profile, signs: np.ndarray, without: str) -> Scalar:
    meaning = (
        "bits by which a row is sharper than with the keys of another prompt of the same length, mean over layers "
        f"and heads{without}; 0 where attention depends on position and token alone"
    )
    return gain_scalar(gain.mean(axis=(1, 2)), units, signs, "bits", meaning)


def _sink_mass(units: Units, mass: Profile, uniform: Profile) -> Scalar:
    by_unit, chance = mass.mean(axis=(1, 2)), np.exp2(-uniform).mean(axis=(1, 2))
    low, high = (float(x) for x in band(units.resampled(chance)))
    return Scalar.of(
        by_unit.mean(), "fraction", units.mean_interval(by_unit, _method(units), "no row has a weight"),
        Null("a uniform row over as many keys", float(chance.mean()), (low, high)),
        meaning="attention weight on the first position, mean over layers and heads", **units.counted,
    )  # fmt: skip


def _layer_columns(
    units: Units, profiles: Mapping[str, Profile], signs: np.ndarray, where: str
) -> dict[str, np.ndarray]:
    n_layers = profiles["entropy"].shape[1]
    by_layer = {name: values.mean(axis=2) for name, values in profiles.items()}
    columns = {"positions": np.full(n_layers, where), "layer": np.arange(n_layers)} | _means(units, by_layer)
    return columns | {f"{name}_p": flip_p(by_layer[name], signs) for name in _SHARPENING}


def _head_columns(
    units: Units, profiles: Mapping[str, Profile], signs: np.ndarray, where: str
) -> dict[str, np.ndarray]:
    n_units, n_layers, n_heads = profiles["entropy"].shape
    by_head = {name: values.reshape(n_units, -1) for name, values in profiles.items()}
    columns = {"positions": np.full(n_layers * n_heads, where), **head_columns(n_layers, n_heads)}
    columns |= _means(units, by_head) | {f"{name}_p": flip_p(by_head[name], signs) for name in _SHARPENING}
    return columns | {"turns": turned(by_head["sharpening"], by_head["sharpening_no_first"])}


def _sink(profiles: Mapping[str, Profile]) -> float:
    """Weight on the first position beyond a uniform row's."""
    return float(mean_of_units(profiles["sink_mass"] - np.exp2(-profiles["uniform"])).mean())


def _means(units: Units, profiles: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Means over prompts, with bands but for the references: the gain over another prompt's keys has its own."""
    references = {name: mean_of_units(profiles[name]) for name in _REFERENCES}
    return units.mean_columns({name: x for name, x in profiles.items() if name not in references}) | references


def _turned(by_head: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    p, twin_p = (by_head[f"{name}_p"] for name in _SHARPENING)
    return turned_heads_note("content sharpening", by_head["turns"], p, twin_p, int(by_head["head"].max()) + 1)


def _notes(base: Capture, units: Units) -> tuple[str, ...]:
    lengths = base.rows["length"]
    shortest, longest = int(lengths.min()), int(lengths.max())
    span = f"{longest}" if shortest == longest else f"{shortest} to {longest}"
    window = base.model.window
    notes = [
        f"{units.n} {units.name}s of {span} tokens; the longest row sees {longest} keys "
        "at most, and entropy grows with the keys that are seen: compare runs at equal lengths.",
        "content_sharpening leaves out prompts without another one of their length (and of another cluster) to "
        "take keys from. What "
        "the entropy does over depth has no p: one model is one draw of a depth profile.",
    ]
    if window is not None:
        held = "binds" if window < longest else "never binds on these prompts"
        notes.append(f"The model's attention window of {window} tokens {held}.")
    return tuple(notes)
