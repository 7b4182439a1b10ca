"""Simulations of readouts under edits for `heads`, `depth_use` and `dynamics`."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from interp.certificates.simulations import Simulation, Trials, Truth, nothing
from interp.edit import Edit
from interp.edits import AblateHeads
from interp.findings import Findings
from interp.probe import Condition, Probe
from interp.statistics.units import Units
from interp.table import LABEL, Table
from interp.testing import Shape, synthetic_capture

from ..dynamics.exchange import Exchange, exchange_numbers
from .prompts import KINDS, Prompts

_N = 60
"""Sequences, or clusters of them."""

Harms = Callable[[Edit, float], float]
"""Bits that an edit adds to the error at an effect size."""


def heads() -> Trials:
    """Without an effect all edits, or two heads, do equal harm."""
    small = {"n_random": 3, "n_sets": 2, "n_donors": 2, "n_permutations": 199, "n_bootstrap": 199}
    alike = _edited("heads", ("bypass_ratio_min", "late_attention_off", "compounding"), small, nothing("compounding"))
    effects = tuple(f"one head harms by {0.02 * k:.2f} bits more than the next" for k in (1, 2, 3))
    lead = tuple(
        Simulation("heads", f"two heads harm, {name}", partial(_read_outs, kind, 0.0, _two_harm), ("top_head_ratio",),
              (), effects, "60 sequences or clusters", small, lambda seed, size: {"top_head_ratio": 1 + 0.2 * size})
        for name, kind in KINDS.items()
    )  # fmt: skip
    return Trials((*alike.simulations, *lead))


def _two_harm(edit: Edit, size: float) -> float:
    if not isinstance(edit, AblateHeads):
        return 0.0
    planted = {(0, 1): 0.1, (1, 2): 0.1 + 0.02 * size}
    removed = {(edit.layer, head) for head in np.atleast_1d(edit.heads).tolist()}
    return sum(harm for place, harm in planted.items() if place in removed)


def depth_use() -> Trials:
    small = {"n_permutations": 199, "n_bootstrap": 199}
    return _edited("depth_use", ("last_layer",), small, lambda seed, size: {"last_layer": 0.01 * size})


def _edited(probe: str, numbers: tuple[str, ...], small: Mapping[str, Any], truth: Truth) -> Trials:
    """Trials with equal harm of all edits as the effect."""
    effects = tuple(f"each edit harms by {0.01 * k:.2f} bits" for k in (1, 2, 3))
    kinds = [*((name, kind, 0.0) for name, kind in KINDS.items()), ("edits of a prompt alike, .8", Prompts(), 0.8)]
    simulations = (
        Simulation(probe, name, partial(_read_outs, kind, alike, lambda edit, size: 0.01 * size), numbers, (), effects,
              "60 sequences or clusters", small, truth)
        for name, kind, alike in kinds
    )  # fmt: skip
    return Trials(tuple(simulations))


def _read_outs(
    like: Prompts, alike: float, harms: Harms, made: Probe, rng: np.random.Generator, seed: int, size: float
) -> Findings:
    """Findings on readouts to which every edit adds noise, with the share `alike` in common, and its harm."""
    cluster, drawn = like.drawn(_N, rng)
    shape, n = Shape(len(cluster), n_scored=4), len(cluster)
    base = synthetic_capture(made.needs, shape, columns={"cluster": np.repeat(cluster, 4)}, seed=seed)
    common, plain = drawn(), 1 + 0.2 * rng.random(n)[cluster]

    def read(condition: Condition) -> dict[str, np.ndarray]:
        chosen = condition.prompts if condition.prompts is not None else np.arange(n)
        more = 0.05 * (alike**0.5 * common + (1 - alike) ** 0.5 * drawn())[chosen]
        more = more * bool(condition.edits) + max((harms(edit, size) for edit in condition.edits), default=0.0)
        error = plain[chosen] + more
        read_out = dict.fromkeys(("posterior_kl", "entropy_error", "next_loss", "loss"), error)
        return read_out | {"next_kl": np.abs(more), "size": np.full(len(chosen), 0.5)}

    under = {c.name: read(c) for c in made.conditions(base)}
    under |= {c.name: read(c) for c in made.further_conditions(base, under)}
    return made.analyse(base, under)


def dynamics() -> Trials:
    effects = tuple(f"patterns lack {0.1 * k:.1f} less" for k in (1, 2, 3))
    simulations = tuple(
        Simulation("dynamics", name, partial(_exchanges, kind), ("exchange_lead",), (), effects,
              "40 sequences or clusters", {"n_bootstrap": 299, "n_permutations": 199}, nothing("exchange_lead"))
        for name, kind in KINDS.items()
    )  # fmt: skip
    return Trials(simulations)


def _exchanges(like: Prompts, made: Any, rng: np.random.Generator, seed: int, size: float) -> Findings:
    """Findings on errors of exchanged networks; patterns and the rest of a checkpoint have equal errors on average."""
    cluster, noise = like.drawn(40, rng)
    n = len(cluster)

    def drawn(*width: int) -> np.ndarray:
        """Positive, heavy tails cut off."""
        return np.exp(np.minimum(noise(*width).T, 4))

    rows = Table({"prompt": np.arange(n), "stratum": np.zeros(n, dtype=int), "cluster": cluster},
                 {"prompt": "index", "stratum": LABEL, "cluster": "index"})  # fmt: skip
    common = drawn() ** 0.5
    lacks = 0.05 * common * drawn(3, 2) ** 0.7
    end = 0.01 * common
    patterns, network = end + lacks[0] * (1 - 0.1 * size), end + lacks[1]
    own = patterns + network - end
    units = Units.of(rows, "sequence", made.n_bootstrap, rng)
    exchange = Exchange(np.array([0, 64, 512]), own, patterns, network, end, units)
    scalars = made.quantities.scalars(exchange_numbers(exchange, made.n_permutations, rng))
    return made.quantities.findings("dynamics", scalars, {})
