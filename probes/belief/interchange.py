"""Interchange interventions: is the belief used where it can be decoded?

Each sequence that the bases were not fitted on gets the coordinates of another one, its source, in a subspace of the
residual stream at one depth, at all scored positions. The prediction q is then compared with both exact posteriors:

    redirected = ½ mean of [fall of KL(source's posterior ‖ q) + rise of KL(own posterior ‖ q)]          (bits)

A swap that only makes the prediction vaguer or better changes both KLs in the same direction and redirects nothing. The
subspaces: where the belief is read from (`readout`), along which activations move with it (`encoding`), the first
principal axes and random ones (the null), all of the same dimension; and the whole stream (`all`).

Source: Geiger et al. 2021 (arXiv 2106.02997) for interchange interventions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, takewhile
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from interp.capture import Capture
from interp.information import cross_entropy_bits, entropy_bits, restricted
from interp.probe import Condition, Readout
from interp.statistics.cosines import random_subspace

from ..measures.cloud import Cloud
from ..programs.swaps import OUTPUT, STREAM, Directions, mean_estimates

N_RANDOM = 199
"""Random subspaces at the primary depth: enough for a small p after any correction."""

N_ELSEWHERE = 19
BASELINE = "interchange: none"
SUBSPACES = ("readout", "encoding", "principal", "all")

INTERCHANGE = (
    "Interchange at each depth of the residual stream: mean KL of the prediction from the source's exact posterior and "
    "from the sequence's own, and by how much the swap turned the prediction from its own to the source's, half the "
    "fall of the first and half the rise of the second (redirected_bits), with its 95 % interval over sequences, "
    "beside random subspaces of the same dimension (null; p one-sided, by rank)."
)


@dataclass(frozen=True)
class Pairs:
    """Prompts and, for each, its source among them; `rows` and `source_rows` are theirs in the base capture."""

    prompts: Int[np.ndarray, " chosen"]
    rows: Int[np.ndarray, " row"]
    source_rows: Int[np.ndarray, " row"]


def make_pairs(
    units: Int[np.ndarray, " all"],
    outcomes: Int[np.ndarray, "all outcome"],
    held_out: Int[np.ndarray, " held"],
    rng: np.random.Generator,
) -> Pairs:
    """A source for each prompt, with as many rows and the same outcomes; prompts without one are left out."""
    by_kind: dict[tuple[int, bytes], list[int]] = {}
    for prompt in held_out.tolist():
        asked = outcomes[units == prompt]
        by_kind.setdefault((len(asked), asked.tobytes()), []).append(prompt)
    source: dict[int, int] = {}
    for alike in by_kind.values():
        if len(alike) > 1:
            order = rng.permutation(alike)
            source |= dict(zip(order.tolist(), np.roll(order, 1).tolist(), strict=True))
    chosen = np.array(sorted(source), dtype=np.int64)
    rows = [np.flatnonzero(units == prompt) for prompt in chosen]
    sources = [np.flatnonzero(units == source[int(prompt)]) for prompt in chosen]
    empty = np.empty(0, dtype=np.int64)
    return Pairs(chosen, np.concatenate([empty, *rows]), np.concatenate([empty, *sources]))


def swaps(
    base: Capture, pairs: Pairs, bases: Mapping[int, Mapping[str, Float[np.ndarray, "axis feature"]]], seed: int
) -> Iterator[Condition]:
    """The baseline, then every subspace at every depth; `bases` are orthonormal rows by depth and name."""
    assert base.posterior is not None, "a belief comes with a posterior"
    read = partial(_read, np.asarray(base.posterior, np.float64)[pairs.source_rows])
    yield Condition(BASELINE, (), (OUTPUT,), read, pairs.prompts)
    stream = base[STREAM]
    for depth, of_depth in bases.items():
        points, rank = stream[depth].astype(np.float64)[pairs.source_rows], len(of_depth["encoding"])
        rng = np.random.default_rng([seed, 4, depth])
        n_random = N_RANDOM if depth == named_depth(list(bases)) else N_ELSEWHERE
        random = {f"random {i}": random_subspace(points.shape[1], rank, rng).T for i in range(n_random)}
        for name, axes in {**of_depth, "all": np.eye(points.shape[1]), **random}.items():
            edit = Directions(axes).given(depth, points)
            yield Condition(_name(depth, name), (edit,), (OUTPUT,), read, pairs.prompts)


def named_depth(depths: Sequence[int]) -> int:
    """The primary depth: the middle one of those that are swapped."""
    return sorted(depths)[len(depths) // 2]


def _name(depth: int, subspace: str) -> str:
    return f"interchange at {depth}: {subspace}"


def _read(source: Float[np.ndarray, "row outcome"], under: Capture) -> Readout:
    assert under.posterior is not None
    log_q, own = restricted(under[OUTPUT]), np.asarray(under.posterior, np.float64)
    return {
        f"{name}_kl": cross_entropy_bits(p, log_q) - entropy_bits(p) for name, p in (("donor", source), ("own", own))
    }


def turned_bits(before: Readout, after: Readout, code: Int[np.ndarray, " row"]) -> Float[np.ndarray, " unit"]:
    """Bits by which a swap moved the prediction to the source's posterior, the mean over the rows of each unit."""
    nearer = before["donor_kl"] - after["donor_kl"]
    further = after["own_kl"] - before["own_kl"]
    return np.bincount(code, 0.5 * (nearer + further)) / np.bincount(code)


def outcomes(
    under: Mapping[str, Readout], pairs: Pairs, pool: Cloud, n_bootstrap: int
) -> dict[tuple[int, str], dict[str, Any]]:
    """Columns of every swap that was run, by depth and subspace: bits redirected, p one-sided, by rank."""
    _, first, code = np.unique(pool.prompts[pairs.rows], return_index=True, return_inverse=True)
    clusters, before = pool.units[pairs.rows][first], under[BASELINE]
    found = {}
    for depth in sorted(int(name.split(":")[0].split()[-1]) for name in under if name.endswith(": all")):
        drawn = takewhile(under.__contains__, (_name(depth, f"random {i}") for i in count()))
        random = np.array([turned_bits(before, under[name], code).mean() for name in drawn])
        for subspace in SUBSPACES:
            after = under[_name(depth, subspace)]
            turned = mean_estimates(turned_bits(before, after, code)[None], clusters, n_bootstrap, pool.unit)
            found[depth, subspace] = {
                "depth": np.array([depth]), "subspace": np.array([subspace]),
                "redirected_bits": turned.drawn(random[:, None], asks="above"),
                **{name: after[name].mean(keepdims=True) for name in ("donor_kl", "own_kl")},
            }  # fmt: skip
    return found
