"""Attention entropy over depth: does attention narrow, layer by layer, and because of the prompt's content?

For every head the entropy of its attention row, H = −Σ α log2 α; heads are averaged after that. Read at the scored rows
(the last token of a text), and averaged over all positions of each prompt; also divided by log2 of the visible keys.
Every number has a variant without the first position, the rest renormalised, since a sink there lowers the entropy
whatever the content; with a large sink the variant is the headline (`measures.sinks`).

Shuffled keys (another prompt's, at the same positions) keep position, temperature and sink but not the content: the
decrease of entropy relative to them is the content sharpening.
Source: Paper III (arXiv 2512.23752), sections 4.2 and 4.5; its reduction in per cent is `reduction` times 100.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from interp.capture import Capture
from interp.findings import Findings
from interp.need import Need
from interp.probe import Probe, Readout, Sentences
from interp.reductions import PromptMean
from interp.statistics.estimates import Estimates
from interp.statistics.quantities import Quantities
from interp.statistics.units import Units, mean_of_units

from ..measures.depth_curve import depth_estimates
from ..measures.field_checks import check_fields
from ..measures.finite import finite_or_absent
from ..measures.profiles import Profile, profile_columns
from ..measures.sign_flips import gain_estimates
from ..measures.sinks import read_first, sink_note, turned_heads_note
from .figures import entropy_figures
from .quantities import CURVES, SHARPENING, SITES, SUFFIX, quantities

_REFERENCES = ("uniform", "uniform_no_first", "other_keys", "other_keys_no_first")
_TURNS = "turns: the sharpening changes sign without the first position."
_BANDS = "with 95 % bootstrap bands over prompts"


@dataclass(frozen=True)
class AttentionEntropy(Probe):
    """The entropy of attention rows, over depth.

    `positions` says where rows are read: `scored`, `all` (averaged within each prompt) or `both`.
    """

    positions: Literal["scored", "all", "both"] = "both"
    n_permutations: int = 1000
    n_bootstrap: int = 1000
    seed: int = 0

    name: ClassVar[str] = "attention_entropy"
    quantities: ClassVar[Quantities] = quantities(*SUFFIX)
    question: ClassVar[str] = "Does attention narrow with depth, and does it depend on the prompt's content?"
    sentences: ClassVar[tuple[Sentences, ...]] = (
        Sentences(
            60, "Does content narrow attention?",
            tuple(f"content_sharpening{variant}{where}" for where in SUFFIX.values() for variant in ("", "_no_first")),
            "Attention entropy is {value} lower than with another {unit}'s keys in place of its own.",
            "Attention entropy is no lower than with another {unit}'s keys in place of its own.",
            "Attention entropy is {size} higher than with another {unit}'s keys in place of its own.",
            limit="This is a mean over all layers and heads; single heads can differ.",
        ),
    )  # fmt: skip
    on_drawn: ClassVar[bool] = True

    @property
    def needs(self) -> tuple[Need, ...]:
        return tuple(_need(name, where) for where in self._places for name in SITES)

    @property
    def _places(self) -> tuple[str, ...]:
        return ("scored", "all") if self.positions == "both" else (self.positions,)

    def refuse_fields(self, n_layers: int | None) -> None:
        check_fields(self, {})

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        rng = np.random.default_rng(self.seed)
        drawn = base.rows["drawn"].astype(bool)
        units = Units.of(base.rows.where(drawn), base.prompts.unit, self.n_bootstrap, rng)
        found: dict[str, Estimates] = {}
        by_layer, by_head, sinks = [], [], []
        for where in self._places:
            profiles = _profiles(base, units, where)
            sinks.append(float(mean_of_units(profiles["sink_mass"] - np.exp2(-profiles["uniform"])).mean()))
            signs = units.signs(self.n_permutations, rng)
            found |= {name + SUFFIX[where]: of for name, of in _numbers(units, profiles, signs).items()}
            layers, heads = profile_columns(units, signs, profiles, SHARPENING, gains=SHARPENING, bare=_REFERENCES)
            by_layer.append({"positions": np.array(where), **layers})
            by_head.append({"positions": np.array(where), **heads})
        declared = read_first(quantities(*self._places), sinks[0], SUFFIX[self._places[0]])
        heads = declared.stacked(by_head, f"Means over prompts, {_BANDS}. {_TURNS}")
        first = heads.where(heads["positions"] == self._places[0])
        turning = turned_heads_note("content sharpening", first, SHARPENING)
        return declared.findings(
            self.name,
            declared.scalars(found),
            {"by_layer": declared.stacked(by_layer, f"Means over heads and prompts, {_BANDS}."), "by_head": heads},
            notes=(*_notes(base, units), sink_note(sinks[0]), *turning),
        )

    figures = staticmethod(entropy_figures)


def _need(name: str, where: str) -> Need:
    site = SITES[name][0]
    return Need(site) if where == "scored" else Need(site, PromptMean(), at="all")


def _profiles(base: Capture, units: Units, where: str) -> dict[str, Profile]:
    read = {name: finite_or_absent(base, _need(name, where)) for name in SITES}
    if where == "scored":
        drawn = base.rows["drawn"].astype(bool)
        found = {name: units.means(read[name][:, drawn]) for name in SITES}
    else:
        place = np.searchsorted(np.unique(base.rows["prompt"]), units.index)
        found = {name: np.moveaxis(read[name][:, place], 1, 0) for name in SITES}
    return found | {name: found[other] - found[own] for name, (other, own) in SHARPENING.items()}


def _numbers(units: Units, profiles: Mapping[str, Profile], signs: np.ndarray) -> dict[str, Estimates]:
    found = {
        name + ending: of
        for curve, ending in CURVES.items()
        for name, of in depth_estimates(profiles[curve].mean(axis=2), units).items()
    }
    for name in SHARPENING:
        found[f"content_{name}"] = gain_estimates(profiles[name].mean(axis=(1, 2)), units, signs)
    chance = units.estimates(np.exp2(-profiles["uniform"]).mean(axis=(1, 2)))
    assert chance.interval is not None
    mass = units.estimates(profiles["sink_mass"].mean(axis=(1, 2)))
    return found | {"sink_mass": mass.against(np.vstack([chance.value, chance.interval]))}


def _notes(base: Capture, units: Units) -> tuple[str, ...]:
    lengths = base.rows["length"]
    shortest, longest = int(lengths.min()), int(lengths.max())
    span = f"{longest}" if shortest == longest else f"{shortest} to {longest}"
    window = base.model.window
    notes = [
        f"{units.n} {units.name}s of {span} tokens; rows have at most {longest} visible keys. Entropy grows with the "
        "number of visible keys: compare runs at equal lengths.",
        "content_sharpening leaves out prompts without another one of equal length from another cluster. Trends over "
        "depth have no p: one model is a single depth profile.",
    ]
    if window is not None:
        reach = "limits attention here" if window < longest else "is longer than these prompts"
        notes.append(f"The model's attention window of {window} tokens {reach}.")
    return tuple(notes)
