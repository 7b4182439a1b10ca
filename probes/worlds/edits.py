"""Worlds of readouts under edits: `heads`, `depth_use`, and the exchanges of `dynamics`."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from interp.certifying.worlds import Trials, World, noise
from interp.edits import AblateHeads, Edit
from interp.findings import Findings
from interp.probe import Condition, Probe
from interp.statistics.units import Units
from interp.table import LABEL, Table
from interp.testing import Shape, synthetic_capture

from ..dynamics.exchange import Exchange, exchange_scalars

_KINDS = {
    "as assumed": (False, 0.0, 1), "heavy tails": (True, 0.0, 1), "edits of a prompt alike, .8": (False, 0.8, 1),
    "five near-copies of each prompt": (False, 0.0, 5),
}  # fmt: skip
"""Heavy tails, the share that the edits of a prompt have in common, and how many near-copies there are of each."""


LEADING = (1, 2)
"""Layer and index of the head whose removal harms most, where one is planted."""


def heads() -> Trials:
    """Harm that all edits do alike says nothing of one head; a head in the lead is a world of its own."""
    small = {"n_random": 3, "n_sets": 2, "n_donors": 2, "n_permutations": 199, "n_bootstrap": 199}
    named = ("top_head_ratio", "bypass_ratio_min", "late_attention_off", "compounding")
    alike = _edited("heads", named, small, ("top_head_ratio",))
    effects = tuple(f"one head harms by {0.02 * k:.2f} bits, the others by none" for k in (1, 2, 3))
    lead = World("heads", "one head in the lead", _head_in_the_lead, named[:1], (), effects, "60 sequences", small)
    return Trials((*alike.worlds, lead))


def _head_in_the_lead(made: Probe, rng: np.random.Generator, seed: int, size: float) -> Findings:
    """Only what removes the leading head does any harm."""
    return _read_outs(False, 0.0, 1, made, rng, seed, 2 * size, lambda edit: _removes(edit, *LEADING))


def _removes(edit: Edit, layer: int, head: int) -> bool:
    return isinstance(edit, AblateHeads) and edit.layer == layer and head in np.atleast_1d(edit.heads)


def depth_use() -> Trials:
    return _edited("depth_use", ("last_layer",), {"n_permutations": 199, "n_bootstrap": 199})


def _edited(probe: str, numbers: tuple[str, ...], small: Mapping[str, Any], unplanted: tuple[str, ...] = ()) -> Trials:
    """Planted is harm that all edits do alike, so that no head leads: `unplanted` are numbers that ask for one."""
    effects = tuple(f"each edit harms by {0.01 * k:.2f} bits" for k in (1, 2, 3))
    return Trials(
        tuple(
            World(
                probe,
                name,
                partial(_read_outs, *kind),
                numbers,
                unplanted,
                effects,
                f"{60 * kind[-1]} sequences",
                small,
            )
            for name, kind in _KINDS.items()
        )
    )


def _read_outs(
    heavy: bool, alike: float, copies: int, made: Probe, rng: np.random.Generator, seed: int, size: float,
    harms: Callable[[Edit], bool] = lambda edit: True,
) -> Findings:  # fmt: skip
    """Simulated readouts: every edit adds an error that is 0 on average, alike in all edits of a prompt.

    Edits that harm add 0.01 bits for every step of `size`.
    """
    shape, cluster = Shape(60 * copies, n_scored=4), np.repeat(np.arange(60), copies)
    base = synthetic_capture(made.needs, shape, columns={"cluster": np.repeat(cluster, 4)}, seed=seed)
    common = noise(rng, (60,), heavy)[cluster]
    plain = 1 + 0.2 * rng.random(60)[cluster]

    def read(condition: Condition) -> dict[str, np.ndarray]:
        chosen = condition.prompts if condition.prompts is not None else np.arange(len(base.prompts))
        own = noise(rng, (len(chosen),), heavy)
        if copies > 1:
            own = 0.05**0.5 * own + 0.95**0.5 * noise(rng, (60,), heavy)[cluster[chosen]]
        more = 0.05 * (alike**0.5 * common[chosen] + (1 - alike) ** 0.5 * own) if condition.edits else 0 * own
        more = more + 0.01 * size * any(map(harms, condition.edits))
        error = plain[chosen] + more
        read_out = dict.fromkeys(("posterior_kl", "entropy_error", "next_loss", "loss"), error)
        return read_out | {"next_kl": np.abs(more), "size": np.full(len(chosen), 0.5)}

    under = {c.name: read(c) for c in made.conditions(base)}
    under |= {c.name: read(c) for c in made.further_conditions(base, under)}
    return made.analyse(base, under)


def dynamics() -> Trials:
    kinds = {"as assumed": (0.0, False), "heavy tails": (0.0, True), "errors of a sequence alike, .8": (0.8, False)}
    effects = tuple(f"patterns lack {0.1 * k:.1f} less" for k in (1, 2, 3))
    worlds = tuple(
        World("dynamics", name, partial(_course, alike, heavy), ("exchange_lead",), (), effects, "40 sequences",
              {"n_bootstrap": 299, "n_permutations": 199})
        for name, (alike, heavy) in kinds.items()
    )  # fmt: skip
    return Trials(worlds)


def _course(alike: float, heavy: bool, made: Any, rng: np.random.Generator, seed: int, size: float) -> Findings:
    """Errors of exchanged networks; patterns and the rest of a checkpoint lack as much, each on prompts of its own."""
    n = 40
    rows = Table({"prompt": np.arange(n), "stratum": np.zeros(n, dtype=int)}, {"prompt": "index", "stratum": LABEL})
    common = rng.lognormal(0, 0.5, n) if not heavy else np.exp(np.minimum(0.5 * rng.standard_t(3, n), 4))
    lacks = 0.05 * common * (alike + (1 - alike) * rng.lognormal(0, 0.7, (2, 3, n)))
    end = 0.01 * common
    patterns, network = end + lacks[0] * (1 - 0.1 * size), end + lacks[1]
    own = patterns + network - end
    units = Units.of(rows, "sequence", made.n_bootstrap, rng)
    exchange = Exchange(np.array([0, 64, 512]), own, patterns, network, end, units)
    return Findings("dynamics", exchange_scalars(exchange, made.n_permutations, rng), headline=("exchange_lead",))
