"""Simulations of `workspace`: a residual stream that encodes hypotheses and their entropy, and a J-space."""

from functools import partial

import numpy as np
from scipy import stats

from interp.certificates.simulations import Simulation, Trials, noise, nothing
from interp.findings import Findings
from interp.probe import Probe
from interp.testing import Shape, synthetic_capture

from ..measures.sample_sizes import FEW_HALVES
from .prompts import KINDS, Prompts

_N, _WIDTH, _RANK, _OUTCOMES, _LEAN = FEW_HALVES + 20, 24, 6, 6, 0.2


def workspace() -> Trials:
    kinds = [*((name, kind, False) for name, kind in KINDS.items()),
             ("J-space and loud directions along coordinates", Prompts(), True)]  # fmt: skip
    numbers = ("overlap", "survivors_accuracy", "uncertainty_r2", "axis_share")
    of_random = {"overlap": _RANK / _WIDTH}
    effects = tuple(f"the J-space leans by {_LEAN * k:.1f} towards the hypotheses" for k in (1, 2, 3))
    return Trials(tuple(
        Simulation("workspace", name, partial(_read, kind, by_coordinate), numbers, (), effects,
              f"{_N} prompts or clusters", {"n_null": 39},
              nothing() if kind.heavy or by_coordinate else lambda seed, size: {} if size else of_random)
        for name, kind, by_coordinate in kinds
    ))  # fmt: skip


def _read(
    like: Prompts, by_coordinate: bool, made: Probe, rng: np.random.Generator, seed: int, size: float
) -> Findings:
    """Findings on the sum of the embeddings of surviving hypotheses, whose mean direction encodes the entropy."""
    cluster, drawn = like.drawn(_N, rng)
    n = len(cluster)
    possible = (rng.random((n, _OUTCOMES)) < 0.5)[cluster]
    possible[~possible.any(axis=1), 0] = True
    loud = np.exp(rng.standard_normal(_WIDTH)) if by_coordinate else np.ones(_WIDTH)
    embedding = noise(rng, (_OUTCOMES, _WIDTH), like.heavy) * loud
    stream = np.stack([drawn(_WIDTH) * loud for _ in range(2)])
    stream[0] += 0.5 * possible @ embedding
    entropy, along = np.log2(possible.sum(axis=1)) + 0.3 * drawn(), embedding.mean(axis=0)
    along /= np.linalg.norm(along)
    standardised = stats.zscore(entropy + 0.3 * drawn())  # replaces that coordinate, at equal variance
    stream[0] += np.outer(standardised * (stream[0] @ along).std() - stream[0] @ along, along)
    spaces = [_j_space(by_coordinate, rng, lean * size * embedding) for lean in (_LEAN, 0.0)]
    shape = Shape(n, n_layers=1, d_model=_WIDTH, n_outcomes=_OUTCOMES)
    planted = {"resid": stream, "readout_gram": np.stack([axes @ axes.T for axes in spaces])}
    columns = {"cluster": cluster, "next_entropy_bits": entropy}
    capture = synthetic_capture(
        made.needs, shape, planted=planted | {"outcome_embedding": embedding}, columns=columns,
        posterior=possible / possible.sum(axis=1, keepdims=True), seed=seed,
    )  # fmt: skip
    return made.analyse(capture, {})


def _j_space(by_coordinate: bool, rng: np.random.Generator, lean: np.ndarray) -> np.ndarray:
    """Orthonormal axes `[feature, axis]` of random directions or coordinates, each shifted towards one vector."""
    axes = np.eye(_WIDTH)[rng.permutation(_WIDTH)[:_RANK]] if by_coordinate else rng.standard_normal((_RANK, _WIDTH))
    axes = axes / np.linalg.norm(axes, axis=1, keepdims=True)
    return np.linalg.qr((axes + lean[:_RANK]).T)[0]
