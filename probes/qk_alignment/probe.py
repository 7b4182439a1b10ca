"""Query-key alignment: do queries select keys by content, and does attention match the posterior?

Per layer and head, at the scored rows (Paper I, arXiv 2512.22471, shows heat maps of cos(q, k) and defines no
number; these are ours): how concentrated a row is; contrasts of attended and other keys; and attention on the position
itself, the one before, the first, and in wind tunnels on earlier outcome tokens (values) or others (keys), beside a
uniform row's share. `items` compares attention with the posterior, `binding` tests what keys encode.

Attended keys are chosen by their weight, so contrasts are positive for any weights. The scalars are therefore the
differences, within each prompt, to the same choice with shuffled keys (another prompt's, at the same positions), with
null 0 and a p by flipping the sign of whole prompts' differences; tables have both sides. Everything has a variant
without the first position: heads that match take weight from a sink, which lowers contrasts of whole rows
(`measures.sinks`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from interp.capture import Capture
from interp.findings import ALPHA, Findings
from interp.need import Need
from interp.probe import AnalysisCost, Probe, Readout, Sentences
from interp.statistics.estimates import Estimates
from interp.statistics.quantities import Quantities
from interp.statistics.units import Units, mean_of_units

from ..measures.depth_curve import depth_estimates
from ..measures.finite import finite_or_absent
from ..measures.profiles import Profile, profile_columns
from ..measures.sign_flips import flip_p, gain_estimates
from ..measures.sinks import read_first, sink_note, turned_heads_note, without_first
from .binding import KEYS, MASS_BEFORE, binding_findings
from .figures import alignment_figures
from .items import WHOLE_ROWS, class_masses, item_findings
from .quantities import CONTRASTS, MASSES, QUANTITIES, SIDES

UNIFORM = {"": Need("pattern_entropy_uniform"), "_no_first": Need("pattern_entropy_uniform_no_first")}
_BANDS = "with 95 % bootstrap bands over prompts; gain: own keys minus shuffled keys"


@dataclass(frozen=True)
class QKAlignment(Probe):
    """How strongly queries select keys, whether by content, and whether by the right content."""

    n_permutations: int = 500
    n_bootstrap: int = 1000
    seed: int = 0

    name: ClassVar[str] = "qk_alignment"
    quantities: ClassVar[Quantities] = QUANTITIES
    cost: ClassVar[AnalysisCost] = AnalysisCost(row_seconds=2e-4)
    question: ClassVar[str] = "Do queries select keys by content, and does attention match the posterior?"
    sentences: ClassVar[tuple[Sentences, ...]] = (
        Sentences(
            70, "Do queries select keys by their content?", ("logit", without_first("logit")),
            "The lead of attended keys over other keys is {value} larger than with another {unit}'s keys.",
            "The lead of attended keys over other keys is no larger than with another {unit}'s keys.",
            "The lead of attended keys over other keys is {size} smaller than with another {unit}'s keys.",
            limit="This is a mean over all layers and heads; single heads can differ.",
        ),
    )  # fmt: skip
    on_drawn: ClassVar[bool] = True

    @property
    def needs(self) -> tuple[Need, ...]:
        contrasts = [Need(name) for site in CONTRASTS.values() for name in (site, f"{site}_null")]
        return (*contrasts, *(Need(site) for site in MASSES.values()), *UNIFORM.values(), WHOLE_ROWS, KEYS, MASS_BEFORE)

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        rng = np.random.default_rng(self.seed)
        drawn = base.drawn
        units = Units.of(drawn.rows, base.prompts.unit, self.n_bootstrap, rng)
        profiles, signs = _profiles(drawn, units), units.signs(self.n_permutations, rng)
        items = item_findings(drawn, (self.n_permutations, self.n_bootstrap), rng)
        binding = binding_findings(base, self.n_permutations, rng)
        gains, bare = ([name for name in profiles if name.endswith(end)] for end in ("_gain", ("_null", "_uniform")))
        both = [f"{name}_gain" for name in ("logit", without_first("logit"))]
        columns, of_heads = profile_columns(units, signs, profiles, both, gains=gains, bare=bare)
        fractions = {name: "fraction" for name in profiles if name.startswith("mass_")}
        by_layer = QUANTITIES.table(columns, f"Means over heads and prompts, {_BANDS}.", **fractions)
        caption = (
            f"Means over prompts, {_BANDS}; turns: the gain of logit has the other sign without the first position."
        )
        by_head = QUANTITIES.table(of_heads, caption, **fractions)
        turning = turned_heads_note("logit", by_head, both)
        sink = float(mean_of_units(profiles["mass_first"] - profiles["mass_first_uniform"]).mean())
        note = (
            "Attended keys are the fewest that hold half of a row's weight; rows over a single key have none that are "
            "unattended and are left out, and so are prompts without another one of their length (and of another "
            "cluster) to take keys from."
        )
        return read_first(QUANTITIES, sink).findings(
            self.name,
            QUANTITIES.scalars(_numbers(profiles, units, signs)) | {**items.scalars, **binding.scalars},
            {"by_layer": by_layer, "by_head": by_head, **items.tables, **binding.tables},
            notes=(note, sink_note(sink), *turning, *items.notes, *binding.notes),
        )

    figures = staticmethod(alignment_figures)


def _profiles(capture: Capture, units: Units) -> dict[str, Profile]:
    """Contrasts with their nulls and gains, masses with a uniform row's share."""

    def means(site: str) -> Profile:
        return units.means(finite_or_absent(capture, Need(site)))

    found: dict[str, Profile] = {}
    for name, site in CONTRASTS.items():
        own, null = means(site), means(f"{site}_null")
        found |= {name: own, f"{name}_gain": own - null, f"{name}_null": null}
    shares = {end: units.means(np.exp2(-finite_or_absent(capture, need).astype(np.float64)))
              for end, need in UNIFORM.items()}  # fmt: skip
    for name, site in MASSES.items():
        found |= {name: means(site), f"{name}_uniform": shares["_no_first" if name.endswith("_no_first") else ""]}
    for name, mass, chance in class_masses(capture):
        found |= {name: units.means(mass), f"{name}_uniform": units.means(chance)}
    return found


def _numbers(profiles: Mapping[str, Profile], units: Units, signs: np.ndarray) -> dict[str, Estimates]:
    """The contrasts, the number of significant heads, and trends of the contrasts over depth."""
    found: dict[str, Estimates] = {}
    for named in (str, without_first):
        for name in ("logit", "cosine", "max_weight", "entropy"):
            gain, own = profiles[f"{named(name)}_gain"], profiles[named(name)]
            found[named(name)] = gain_estimates(gain.mean(axis=(1, 2)), units, signs)
            found[named(f"{name}_correlation")] = depth_estimates(own.mean(axis=2), units)["correlation"]
        of_heads = profiles[f"{named('logit')}_gain"].reshape(units.n, -1)
        p, mean = flip_p(of_heads, signs), mean_of_units(of_heads)
        words = {"n_heads": str((~np.isnan(p)).sum())}
        for side, (_, sign) in SIDES.items():
            n_found = np.array([((p < ALPHA) & (sign * mean > 0)).sum()], np.float64)
            of_side = Estimates(n_found, about=found[named("logit")].about, words=words)
            found[named(side)] = of_side.against(np.zeros((3, 1)))
    return found
