"""Simulations draw what they drew for the shipped certificates, whose rates are theirs.

Where one is changed on purpose its probe is certified again (`interp certify`), and
`python tests/probes/simulations/test_drawn.py` writes `drawn.json` anew.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interp.certificates.simulations import Simulation, trials_of
from interp.findings import Findings
from interp.probe import Probe
from interp.registry import entries, load_entry

DRAWN = Path(__file__).with_name("drawn.json")
NAMES = sorted(entries("simulations"))


def drawn(kind: Simulation, probe: Probe) -> float:
    """One number of all that the probe is given in a simulation; of one that gives it nothing, of what is found."""
    given: list[np.ndarray] = []

    def keep(self: Probe, base: Any, under: Any) -> Findings:
        given.extend(_arrays(base.arrays))
        given.extend(_arrays([base.rows.columns, base.posterior, base.belief, base.prompts.outcome_ids, under]))
        return Findings(probe.name)

    spy = type("Spy", (type(probe),), {"analyse": keep})(**probe.parameters())
    found = kind.findings(spy, 3, 2.0)
    every = given or [np.array([s.value, s.p or 0.0, *(s.interval or ())]) for s in found.scalars.values()]
    numbers = np.concatenate([array.astype(np.float64).ravel() for array in every])
    return float(np.mean(np.nan_to_num(numbers, posinf=1e3, neginf=-1e3) * (1 + np.arange(len(numbers)) % 97)))


def _arrays(held: Any) -> Iterator[np.ndarray]:
    """All numbers in what may be nested, in its order."""
    if isinstance(held, np.ndarray) and held.dtype.kind in "biuf":
        yield held
    for part in held.values() if hasattr(held, "values") else held if isinstance(held, list | tuple) else ():
        yield from _arrays(part)


def all_drawn(name: str) -> dict[str, float]:
    trials, probe = trials_of(name), load_entry("probe", name)()
    assert trials is not None
    return {kind.name: drawn(kind, probe) for kind in trials.simulations}


@pytest.mark.parametrize("name", NAMES)
def test_a_simulation_draws_what_it_drew_for_its_certificate(name):
    assert all_drawn(name) == pytest.approx(json.loads(DRAWN.read_text(encoding="utf-8"))[name], rel=1e-6)


if __name__ == "__main__":
    DRAWN.write_text(json.dumps({name: all_drawn(name) for name in NAMES}, indent=1) + "\n", encoding="utf-8")
