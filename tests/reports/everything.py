"""A small run of every probe on the shipped tunnel: what the pages of real findings are tested on."""

from pathlib import Path

import interp
from interp.records.record import RunRecord

PROBES = (
    "attention_entropy", "components", "manifold", "orthogonality", "qk_alignment", "value_axis", "belief", "sula",
    "heads", "depth_use", "causal",
)  # fmt: skip

SETTINGS = {
    "attention_entropy": {"n_permutations": 99, "n_bootstrap": 50},
    "components": {"n_permutations": 99, "n_bootstrap": 50},
    "manifold": {"n_splits": 2, "n_permutations": 19, "n_null": 20, "n_bootstrap": 50},
    "orthogonality": {"n_null": 20, "n_bootstrap": 50},
    "qk_alignment": {"n_permutations": 99, "n_bootstrap": 50},
    "value_axis": {"n_permutations": 19},
    "belief": {"n_permutations": 19, "n_bootstrap": 50},
    "sula": {"n_permutations": 99, "n_bootstrap": 50},
    "heads": {"n_random": 9, "n_sets": 2, "n_donors": 1, "n_permutations": 99, "n_bootstrap": 50},
    "depth_use": {"n_permutations": 99, "n_bootstrap": 50},
    "causal": {"n_prompts": 20, "n_controls": 20, "n_bootstrap": 50},
}  # fmt: skip


def small_run(out: Path, *probes: str) -> RunRecord:
    """The probes named (all of them) on 60 sequences, with as few permutations as they accept."""
    chosen = list(probes or PROBES)
    settings = {name: SETTINGS[name] for name in chosen}
    return interp.run(probes=chosen, settings=settings, n_pool=60, out=out, quiet=True)
