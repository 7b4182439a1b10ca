"""interp: the probes `heads` and `belief`, and swaps compared with random directions.

A head is used if removing it raises the error (p .05 after Holm's correction over heads). A variable appears at the
first depth where `belief` decodes it beyond its position (p .05 after Holm's correction over depths, and at least half
of the largest R2); its directions are those of the readout. A direction matters if swapping it moves predictions
further than each of 39 random ones does.
"""

import numpy as np
import torch
from interp.probes.belief.probe import Belief
from interp.probes.heads.probe import Heads
from jaxtyping import Float

import interp
from interp.findings import Findings
from interp.probe import Probe

from .case import Case, first_above_half

N_RANDOM = 39


class ByInterp:
    def used_heads(self, case: Case) -> set[tuple[int, int]]:
        tables = _found(case, Heads(n_bootstrap=50)).tables
        if "by_head" in tables:
            table = tables["by_head"].columns
            kept, heads = np.asarray(table["how"]) == "zero", np.asarray(table["head"])
        else:  # one head a layer: switching attention off removes it
            table = tables["by_layer"].columns
            kept, heads = np.asarray(table["part"]) == "attention off", np.zeros(len(table["layer"]), dtype=int)
        layers, p = np.asarray(table["layer"])[kept], _holm(np.asarray(table["posterior_kl_p"])[kept])
        return {(int(a), int(b)) for a, b, one in zip(layers, heads[kept], p, strict=True) if one <= 0.05}

    def depth_of(self, case: Case, variable: str) -> int:
        table = _read(case, variable, n_permutations=199).tables["by_layer"].columns
        r2, p = (np.asarray(table[name]) for name in ("r2_beyond_position", "r2_beyond_position_p"))
        return first_above_half(np.where(_holm(p) <= 0.05, r2, 0.0))

    def directions(self, case: Case, variable: str, depth: int) -> Float[np.ndarray, "axis d_model"]:
        return _read(case, variable, n_permutations=19).arrays["resid.readout_basis"][depth]

    def matters(self, case: Case, direction: Float[np.ndarray, " d_model"], depth: int) -> bool:
        base = case.log_probs()
        rng = np.random.default_rng(case.noise.seed)
        random = rng.standard_normal((N_RANDOM, len(direction)))
        frames = np.stack([direction, *random])[:, None] / np.linalg.norm([direction, *random], axis=1)[:, None, None]
        effects = [float(_kl(base, case.log_probs([(depth, case.swap(frame, depth))]))) for frame in frames]
        return effects[0] > max(effects[1:])


def _kl(base: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (base.exp() * (base - other)).sum(-1).mean()


def _read(case: Case, variable: str, n_permutations: int) -> Findings:
    return _found(case, Belief(sites=("resid",), target=variable, n_permutations=n_permutations, n_bootstrap=50))


def _found(case: Case, probe: Probe) -> Findings:
    return interp.run(case.model, probes=[probe], prompts=case.prompts, out=None, quiet=True).findings[probe.name]


def _holm(p: Float[np.ndarray, " test"]) -> Float[np.ndarray, " test"]:
    order = np.argsort(p)
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return np.minimum(1, steps[np.argsort(order)])
