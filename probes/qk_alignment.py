"""Query-key alignment: do queries find the keys they look for, and does attention match the posterior?

Per layer and head, at the scored rows (Paper I, arXiv 2512.22471, shows heat maps of cos(q, k) and defines no
number; these are ours):

    entropy, max_weight   how concentrated the row is
    cosine, logit         attended minus unattended keys, of cos(q, k) and of the log2 weight (`interp.contrast`)
    mass_*                attention on the position itself, the one before, the first, and in wind tunnels on earlier
                          tokens that are outcomes (values) or not (keys); a uniform row's share beside each
    posterior_kl          KL(posterior || attention over the items in context), and the feasible mass, where the
                          hypotheses are items in the context (`probes.items`)
    binding               share of key variance at value positions that the bound token explains (`probes.binding`)

Attended keys are chosen by their weight, so contrasts are positive for any weights. Their null is the same choice
among the keys of another prompt at the same positions (`interp.other_keys`); p flips the sign of whole prompts' gains.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from interp.capture import Capture
from interp.findings import Findings, Scalar
from interp.need import Need
from interp.probe import Figure, Probe
from interp.table import Table
from probes import alignment_scalars as scalars_of
from probes import alignment_tables as tables_of
from probes.alignment_figures import alignment_figures
from probes.binding import KEYS, MASS_BEFORE, Binding, BoundKeys, bound_keys, measure_binding
from probes.depth import deal_heads, depth_statistics
from probes.head_means import Units, mean_of_units
from probes.item_test import ItemTest, compare_with_relabelled
from probes.items import attention_over_items, outcome_positions

Profile = Float[np.ndarray, "unit layer head"]

CONTRASTS = {"logit": "qk_logit", "cosine": "qk_cosine", "max_weight": "pattern_max", "entropy": "pattern_entropy"}
"""What is compared with the keys of another prompt, and the site it is read at."""

MASSES = {"mass_self": "mass_self", "mass_previous": "mass_previous", "mass_first": "sink_mass"}
_UNIFORM = Need("pattern_entropy_uniform")
_WHOLE = Need("pattern_log_weight")
_HEADLINE = ("logit", "max_weight_correlation", "posterior_kl", "binding")


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
        contrasts = [Need(name) for site in CONTRASTS.values() for name in (site, f"{site}_null")]
        return (*contrasts, *(Need(site) for site in MASSES.values()), _UNIFORM, _WHOLE, KEYS, MASS_BEFORE)

    def analyse(self, base: Capture, under: Mapping[str, Capture]) -> Findings:
        rng = np.random.default_rng(self.seed)
        whole, base = base, base.drawn
        units = Units.of(base.rows, base.prompts.unit, self.n_bootstrap, rng)
        own, null = _contrasts(base, units, ""), _contrasts(base, units, "_null")
        signs = rng.choice([-1.0, 1.0], size=(self.n_permutations, units.n))
        masses = _masses(base, units)
        scalars: dict[str, Scalar] = {}
        for name in CONTRASTS:
            scalars[name] = scalars_of.contrast(units, name, (own[name], null[name]), signs)
        scalars["matching_heads"] = scalars_of.matching_heads(units, own["logit"] - null["logit"], signs)
        for name in CONTRASTS:
            dealt = deal_heads(mean_of_units(own[name]), self.n_permutations, rng)
            replicates = depth_statistics(units.resampled(own[name].mean(axis=2)))
            scalars[f"{name}_correlation"] = scalars_of.depth_correlation(units, name, dealt, replicates)
        items = self._items(base, rng)
        notes = [scalars_of.CONTRAST_NOTE]
        if isinstance(items, str):
            notes.append(f"posterior_kl and feasible_mass are undefined ({items}).")
        else:
            scalars |= scalars_of.over_items(*items)
        tables = tables_of.by_layer_and_head(units, own, null, masses, signs)
        if not isinstance(items, str):
            tables["items"] = tables_of.items(*items)
        bound = bound_keys(whole)
        if isinstance(bound, str):
            notes.append(f"binding is undefined ({bound}).")
        else:
            binding = measure_binding(bound, self.n_permutations, rng)
            scalars |= scalars_of.bound(bound, binding)
            tables["binding"] = tables_of.binding(bound, binding)
        headline = tuple(name for name in _HEADLINE if name in scalars)
        return Findings(self.name, scalars, tables, notes=tuple(notes), headline=headline)

    def figures(self, findings: Findings) -> tuple[Figure, ...]:
        return alignment_figures(findings)
