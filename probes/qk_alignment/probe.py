"""Query-key alignment: do queries find the keys they look for, and does attention match the posterior?

Per layer and head, at the scored rows (Paper I, arXiv 2512.22471, shows heat maps of cos(q, k) and defines no
number; these are ours):

    entropy, max_weight   how concentrated the row is
    cosine, logit         attended minus unattended keys, of cos(q, k) and of the log2 weight (`attended_contrast`)
    mass_*                attention on the position itself, the one before, the first, and in wind tunnels on earlier
                          tokens that are outcomes (values) or not (keys); a uniform row's share beside each
    posterior_kl          KL(posterior || attention over the items in context), and the feasible mass, where the
                          hypotheses are items in the context (`measures.items`)
    binding               share of key variance at value positions that the bound token explains (`measures.binding`)

Attended keys are chosen by their weight, so contrasts are positive for any weights. Their null is the same choice
among the keys of another prompt at the same positions (borrowed keys); p flips the sign of whole prompts' gains.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from interp.capture import Capture
from interp.findings import Findings, Interval, Null, Scalar
from interp.need import Need
from interp.probe import Figure, Probe, Readout
from interp.statistics.nulls import null_from_permutations
from interp.table import Table

from ..measures.depth_curve import DEPTH, deal_heads, depth_statistics
from ..measures.finite import finite_or_absent
from ..measures.profiles import head_columns
from ..measures.prompt_means import Units, interval, mean_of_units
from ..measures.sign_flips import flip_p, random_signs
from .binding import KEYS, MASS_BEFORE
from .binding_findings import binding_findings
from .figures import alignment_figures
from .item_findings import WHOLE_ROWS, class_masses, item_findings

Profile = Float[np.ndarray, "unit layer head"]

CONTRASTS = {
    "logit": ("qk_logit", "bits", "log2 weight of attended minus unattended keys"),
    "cosine": ("qk_cosine", "1", "cosine of query and key, attended minus unattended keys"),
    "max_weight": ("pattern_max", "fraction", "largest attention weight"),
    "entropy": ("pattern_entropy", "bits", "attention entropy"),
}
"""What is compared with the keys of another prompt: the site, the unit, and what it is."""

MASSES = {"mass_self": "mass_self", "mass_previous": "mass_previous", "mass_first": "sink_mass"}
UNIFORM = Need("pattern_entropy_uniform")

_NULL = "the same choice among the keys of another prompt at the same positions"
_HEADLINE = ("logit", "max_weight_correlation", "posterior_kl", "binding")
_ALPHA = 0.05


@dataclass(frozen=True)
class QKAlignment(Probe):
    """How sharply queries single out keys, whether the content decides it, and whether it is the right content."""

    n_permutations: int = 500
    n_bootstrap: int = 1000
    seed: int = 0

    name: ClassVar[str] = "qk_alignment"
    question: ClassVar[str] = "Do queries find the keys they look for, and does attention match the posterior?"

    @property
    def needs(self) -> tuple[Need, ...]:
        contrasts = [Need(name) for site, *_ in CONTRASTS.values() for name in (site, f"{site}_null")]
        return (*contrasts, *(Need(site) for site in MASSES.values()), UNIFORM, WHOLE_ROWS, KEYS, MASS_BEFORE)

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        rng = np.random.default_rng(self.seed)
        drawn = base.drawn
        units = Units.of(drawn.rows, base.prompts.unit, self.n_bootstrap, rng)
        rows = _HeadRows.of(drawn, units, random_signs(self.n_permutations, units.n, rng))
        scalars = {name: _contrast(rows, name) for name in CONTRASTS} | {"matching_heads": _matching_heads(rows)}
        for name in CONTRASTS:
            scalars[f"{name}_correlation"] = _depth_correlation(rows, name, self.n_permutations, rng)
        items = item_findings(drawn, (self.n_permutations, self.n_bootstrap), rng)
        binding = binding_findings(base, self.n_permutations, rng)
        scalars |= {**items.scalars, **binding.scalars}
        note = (
            "Attended keys are the fewest that hold half of a row's weight; rows over a single key have none that are "
            "unattended and are left out, and so is the first prompt in order of length, which borrows no keys."
        )
        return Findings(
            self.name,
            scalars,
            {"by_layer": rows.by_layer(), "by_head": rows.by_head(), **items.tables, **binding.tables},
            notes=(note, *items.notes, *binding.notes),
            headline=tuple(name for name in _HEADLINE if name in scalars),
        )

    def figures(self, findings: Findings) -> tuple[Figure, ...]:
        return alignment_figures(findings)


@dataclass(frozen=True)
class _HeadRows:
    """Everything that is averaged by layer and head: contrasts with their nulls, masses with a uniform row's share."""

    units: Units
    signs: np.ndarray
    own: Mapping[str, Profile]
    null: Mapping[str, Profile]
    masses: Mapping[str, Profile]
    uniform: Mapping[str, Profile] = field(default_factory=dict)

    @classmethod
    def of(cls, capture: Capture, units: Units, signs: np.ndarray) -> "_HeadRows":

        def means(site: str) -> Profile:
            return units.means(finite_or_absent(capture, Need(site)))

        own, null = ({name: means(site + suffix) for name, (site, *_) in CONTRASTS.items()} for suffix in ("", "_null"))
        masses = {name: means(site) for name, site in MASSES.items()}
        uniform = dict.fromkeys(masses, units.means(np.exp2(-finite_or_absent(capture, UNIFORM).astype(np.float64))))
        for name, mass, chance in class_masses(capture):
            masses[name], uniform[name] = units.means(mass), units.means(chance)
        return cls(units, signs, own, null, masses, uniform)

    def by_layer(self) -> Table:
        n_layers = self.own["logit"].shape[1]
        columns = {"layer": np.arange(n_layers)} | self._columns(lambda profile: profile.mean(axis=2))
        return self._table(columns, "Means over heads and prompts, with 95 % bootstrap bands over prompts.")

    def by_head(self) -> Table:
        _, n_layers, n_heads = self.own["logit"].shape
        columns = head_columns(n_layers, n_heads) | self._columns(lambda profile: profile.reshape(self.units.n, -1))
        return self._table(columns, "Means over prompts, with 95 % bootstrap bands over prompts.")

    def _columns(self, shape: Callable[[Profile], np.ndarray]) -> dict[str, np.ndarray]:
        columns: dict[str, np.ndarray] = {}
        for name in self.own:
            own, null = shape(self.own[name]), shape(self.null[name])
            columns |= self.units.mean_columns({name: own, f"{name}_null": null})
            columns[f"{name}_p"] = flip_p(own - null, self.signs)
        for name, mass in self.masses.items():
            columns |= self.units.mean_columns({name: shape(mass)})
            columns[f"{name}_uniform"] = mean_of_units(shape(self.uniform[name]))
        return columns

    def _table(self, columns: Mapping[str, np.ndarray], caption: str) -> Table:
        units = {name: name for name in ("layer", "head") if name in columns}
        units |= {name: unit for name, (_, unit, _) in CONTRASTS.items()}
        units |= {name + end: "fraction" for name in self.masses for end in ("", "_uniform")}
        return Table(columns, units, caption)


def _contrast(rows: _HeadRows, name: str) -> Scalar:
    _, unit, what = CONTRASTS[name]
    units = rows.units
    own, null = (profile[name].mean(axis=(1, 2)) for profile in (rows.own, rows.null))
    chance = float(mean_of_units(null))
    chance_bounds = interval(chance, units.resampled(null))
    method = f"percentile bootstrap over {units.name}s within strata"
    return Scalar.of(
        float(mean_of_units(own)), unit, units.mean_interval(own, method, "no row sees more than one key"),
        Null(_NULL, chance, chance_bounds) if chance_bounds else "no prompt had another one to borrow keys from",
        p=flip_p((own - null)[:, None], rows.signs)[0],
        meaning=f"{what}, mean over layers and heads; only the distance from its null says that content decides",
        **units.counted | {"n": int((~np.isnan(own)).sum())},
    )  # fmt: skip


def _matching_heads(rows: _HeadRows) -> Scalar:
    gain = rows.own["logit"] - rows.null["logit"]
    p = flip_p(gain.reshape(rows.units.n, -1), rows.signs)
    n_heads = int((~np.isnan(p)).sum())
    meaning = (
        f"heads of {n_heads} whose logit contrast differs from that with another prompt's keys at p < {_ALPHA:.2f}, "
        "corrected over layers and heads"
    )
    null = Null("at most this many by chance, 95 % of the time", 0.0, (0.0, 0.0))
    return Scalar.of((p < _ALPHA).sum(), "heads", "a count of tests", null, meaning=meaning, **rows.units.counted)


def _depth_correlation(rows: _HeadRows, name: str, n_permutations: int, rng: np.random.Generator) -> Scalar:
    units, which = rows.units, DEPTH.index("correlation")
    profile = mean_of_units(rows.own[name])
    replicates = depth_statistics(units.resampled(rows.own[name].mean(axis=2)))[:, which]
    dealt = None if np.isnan(profile).any() else deal_heads(profile, n_permutations, rng)
    about: dict[str, Any] = {
        "meaning": f"Spearman's ρ with depth of the {CONTRASTS[name][2]}, mean over heads",
        **units.counted,
    }
    if dealt is None or np.isnan([dealt.values[which], *dealt.dealt[:, which]]).any():
        return Scalar.undefined("undefined over a single layer, or where a layer has no value", **about)
    value = float(dealt.values[which])
    method = f"percentile bootstrap over {units.name}s within strata"
    return Scalar.of(
        value, "1", Interval.of(interval(value, replicates), method, "undefined in every resample"),
        null_from_permutations("heads dealt to layers at random", dealt.dealt[:, which]), p=dealt.p[which], **about,
    )  # fmt: skip
