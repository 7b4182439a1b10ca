"""What a model answered where the exact posterior is known, outcomes in the order of their token ids."""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy.sparse import block_array, csr_array
from scipy.sparse.csgraph import connected_components

from interp.capture import Capture
from interp.errors import ModelError, PromptError
from interp.information import cross_entropy_bits, entropy_bits, kl_bits, restricted
from interp.need import Need
from interp.statistics.units import clusters_of, counted, resampled_unit
from interp.table import Table

from .target import steady

EVIDENCE = ("k", "evidence")
"""Columns that say how much a row's reader was shown, in the order in which they are looked for."""

MAIN = "main"
"""The condition that the headline is about, where there is one of this name; else the first one."""

N_CONDITIONS = 7
"""In how many conditions the set `sula` writes every problem; the first is the one that counts."""


@dataclass(frozen=True)
class Answers:
    """Rows with the exact `posterior` and the model's `log_q` (bits, over the whole vocabulary).

    `evidence` is the amount shown; rows of one `stratum` share amount, format and outcomes. `unit` is what is counted:
    a sequence, or a problem in several conditions. `cluster` is what is permuted, halved and resampled whole: all
    conditions of units that belong together. `noise` is the posterior if labels are known to be noise.
    """

    posterior: Float[np.ndarray, "row outcome"]
    log_q: Float[np.ndarray, "row outcome"]
    outcomes: Int[np.ndarray, "row outcome"]
    condition: Shaped[np.ndarray, " row"]
    evidence: Float[np.ndarray, " row"]
    stratum: Int[np.ndarray, " row"]
    unit: Int[np.ndarray, " row"]
    cluster: Int[np.ndarray, " row"]
    noise: Float[np.ndarray, "row outcome"] | None
    evidence_name: str
    evidence_unit: str
    unit_name: str

    @classmethod
    def of(cls, capture: Capture, need: Need) -> "Answers":
        """The scored rows. Raise an error without a posterior, or where log-probabilities are not finite."""
        exact, outcomes = capture.posterior, capture.outcomes
        if exact is None or outcomes is None:
            raise PromptError(
                asked=f"the exact posterior of {capture.prompts.name}",
                found="these prompts have none",
                fix="Use --prompts sula, or a wind tunnel's own sequences.",
            )
        log_q = capture[need].astype(np.float64)
        if not np.isfinite(log_q).all():
            raise ModelError(
                asked=f"the probabilities that {capture.model.name} gives the outcomes",
                found="some are zero or no numbers",
                fix=f"Load the model in float32 (it was read in {capture.model.dtype}), or check its weights.",
            )
        rows = capture.rows
        order = np.argsort(outcomes, axis=1, kind="stable")
        exact, log_q, outcomes = (np.take_along_axis(x, order, axis=1) for x in (exact, log_q, outcomes))
        named = next((name for name in EVIDENCE if name in rows), None)
        noise = None
        if "p_label_1_noise" in rows and outcomes.shape[1] == 2:
            p = np.asarray(rows["p_label_1_noise"], dtype=np.float64)
            noise = np.take_along_axis(np.stack([p, 1 - p], axis=1), order, axis=1)
        unit = np.unique(rows["problem"] if "problem" in rows else rows["prompt"], return_inverse=True)[1]
        return cls(
            posterior=exact, log_q=log_q, outcomes=outcomes,
            condition=np.asarray(rows["condition"]).astype(str) if "condition" in rows else np.full(len(exact), "all"),
            evidence=np.zeros(len(exact)) if named is None else np.asarray(rows[named], dtype=np.float64),
            stratum=_strata(rows, outcomes),
            unit=unit, cluster=_joined(unit, clusters_of(rows)), noise=noise,
            evidence_name=named or "evidence",
            evidence_unit="observations" if named is None else rows.units[named],
            unit_name="problem" if "problem" in rows else capture.prompts.unit,
        )  # fmt: skip

    def where(self, keep: Bool[np.ndarray, " row"]) -> "Answers":
        """The rows that a mask picks."""
        by_name = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: x[keep] for name, x in by_name.items() if isinstance(x, np.ndarray)})

    def __len__(self) -> int:
        return len(self.posterior)

    @property
    def n_units(self) -> int:
        return len(np.unique(self.unit))

    @property
    def n_clusters(self) -> int:
        return len(np.unique(self.cluster))

    @property
    def counted(self) -> dict[str, Any]:
        """What is counted, as fields of a scalar."""
        return counted(self.unit, self.cluster, self.unit_name)

    @property
    def resampled(self) -> str:
        """The name of the unit that is permuted and resampled."""
        return resampled_unit(self.counted)

    @property
    def one_row_each(self) -> bool:
        return self.n_units == len(self)

    @property
    def conditions(self) -> tuple[str, ...]:
        """In order of appearance."""
        return tuple(dict.fromkeys(self.condition.tolist()))

    @property
    def main(self) -> str:
        """The condition that the headline is about."""
        return MAIN if MAIN in self.conditions else self.conditions[0]

    @cached_property
    def log_mass(self) -> Float[np.ndarray, " row"]:
        """log2 of the probability that the model gives all outcomes together."""
        return np.logaddexp2.reduce(self.log_q, axis=1)

    @cached_property
    def log_restricted(self) -> Float[np.ndarray, "row outcome"]:
        """log2 probabilities among the outcomes alone: the model's own posterior."""
        return restricted(self.log_q)

    @cached_property
    def entropy_model(self) -> Float[np.ndarray, " row"]:
        return entropy_bits(np.exp2(self.log_restricted))

    @cached_property
    def entropy_exact(self) -> Float[np.ndarray, " row"]:
        """Entropy of the exact posterior; rounded, so that equal posteriors tie."""
        return steady(entropy_bits(self.posterior).round(12))

    @cached_property
    def entropy_error(self) -> Float[np.ndarray, " row"]:
        return np.abs(self.entropy_model - self.entropy_exact)

    @cached_property
    def kl(self) -> Float[np.ndarray, " row"]:
        """KL(posterior ‖ model) among the outcomes, in bits."""
        return self.kl_from(self.posterior)

    def kl_from(self, reader: Float[np.ndarray, "row outcome"]) -> Float[np.ndarray, " row"]:
        """KL(reader ‖ model) among the outcomes, in bits."""
        return cross_entropy_bits(reader, self.log_restricted) - entropy_bits(reader)

    @cached_property
    def kl_reverse(self) -> Float[np.ndarray, " row"]:
        """KL(model ‖ posterior); infinite where something impossible is given any probability."""
        return kl_bits(np.exp2(self.log_restricted), self.posterior)

    @cached_property
    def excluded_mass(self) -> Float[np.ndarray, " row"]:
        """The probability that the model gives, among the outcomes, to impossible ones."""
        return np.sum(np.exp2(self.log_restricted), axis=1, where=self.posterior == 0)

    @cached_property
    def groups(self) -> Int[np.ndarray, " row"]:
        """Rows with the same outcomes have the same code."""
        return np.unique(self.outcomes, axis=0, return_inverse=True)[1].ravel()


def _joined(unit: Int[np.ndarray, " row"], cluster: Int[np.ndarray, " row"]) -> Int[np.ndarray, " row"]:
    """Clusters, joined where they share a unit: all conditions of a problem belong together."""
    _, codes = np.unique(cluster, return_inverse=True)
    shared = csr_array((np.ones(len(unit)), (unit, codes)))
    pairs = block_array([[None, shared], [shared.T, None]])
    return connected_components(pairs, directed=False)[1][unit]


def _strata(rows: Table, outcomes: Int[np.ndarray, "row outcome"]) -> Int[np.ndarray, " row"]:
    is_sequence = len(np.unique(rows["prompt"])) < rows.n_rows
    names = [name for name in (*EVIDENCE, "slice", *["position"] * is_sequence) if name in rows]
    keys = [np.unique(rows[name], return_inverse=True)[1] for name in names]
    keys.append(np.unique(outcomes, axis=0, return_inverse=True)[1].ravel())
    return np.unique(np.stack(keys, axis=1), axis=0, return_inverse=True)[1].ravel()
