"""The study `decoded_parameters`: does the prediction use the parameters of a program where they can be decoded?

Before the last block of recurrence networks a linear readout of the residual stream decodes a and b of
x[t + 1] = a x[t] + b. Removing its subspace is compared with removing random subspaces of equal dimension and variance.

Source: the authors' construction-boundary experiments (July 2026): decodable is not used.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq

import interp
from interp.model import Model
from interp.need import Need
from interp.statistics.linear_readout import read_out
from interp.tunnel import Task

from .moving_programs import modulus, moving_programs, onward, prompts_of, run
from .over_seeds import TunnelStudy

STREAM, PREDICTED = Need("resid"), Need("next_log_prob")
N_RANDOM = 20
_PERMUTED, _SUBSPACE = "programs permuted", "random subspaces of equal variance"


@dataclass(frozen=True)
class DecodedParameters(TunnelStudy):
    """Recurrence networks (a name or a folder pattern with `*`), `n` programs each, read after `seen` values."""

    tunnels: str = "tunnel:recurrence-gpt-neox"
    seen: int = 7
    n: int = 400
    seed: int = 0

    name: ClassVar[str] = "decoded_parameters"
    question: ClassVar[str] = "Are the parameters of a program, where they can be decoded, what the prediction uses?"

    headline = ("a_accuracy", "removed_bits")
    rules: ClassVar = {"seen": 4, "n": 100}
    more: ClassVar = {"dimension": "directions", "variance": "fraction"}
    numbers: ClassVar = {
        "a_accuracy": ("share", _PERMUTED, "how often a readout before the last block says a, on other sequences"),
        "b_accuracy": ("share", _PERMUTED, "how often it says b"),
        "a_of_new_programs": ("share", _PERMUTED, "how often it says a of programs that it was not fitted on"),
        "b_of_new_programs": ("share", _PERMUTED, "how often it says b of them"),
        "removed_bits": ("bits", _SUBSPACE, "surprise at the right value that removing the readout's subspace adds"),
    }

    def read(self, model: Model, task: Task) -> dict[str, Any]:
        rng, p = np.random.default_rng(self.seed), modulus(task, self)
        program = moving_programs(rng, self.n, p)[0]
        values = run(program, rng, self.seen, p)
        answer, prompts = onward(program, values[:, -1], p), prompts_of(values, p)
        read = interp.collect(model, prompts, [STREAM, PREDICTED])
        rows, depth = read[STREAM][-2].astype(np.float64), model.info.n_layers - 1
        splits = {"accuracy": rng.random(self.n) < 0.5,  # half of the sequences, or of the programs
                  "of_new_programs": rng.permutation(p * p)[program[0] * p + program[1]] % 2 == 0}  # fmt: skip
        labels = program.T[:, :, None] == np.arange(p)  # [row, a and b, value]
        permuted, found = labels[rng.permutation(self.n)], dict[str, Any]()

        def right(labels: np.ndarray, is_fitted: np.ndarray) -> list[float]:
            decoded = read_out(rows, labels.reshape(self.n, -1), is_fitted).reshape(labels.shape)
            return (decoded.argmax(axis=2) == labels.argmax(axis=2))[~is_fitted].mean(axis=0).tolist()

        for of, is_fitted in splits.items():
            beside = zip(right(labels, is_fitted), right(permuted, is_fitted), strict=True)
            found |= zip((f"a_{of}", f"b_{of}"), beside, strict=True)
        mean = rows.mean(axis=0)
        centred = rows - mean
        decoded = read_out(rows, labels.reshape(self.n, -1), np.full(self.n, True))
        weights = np.linalg.lstsq(centred, decoded - decoded.mean(axis=0), rcond=None)[0]
        found_axes = np.linalg.svd(weights, full_matrices=False)
        space = found_axes[0][:, found_axes[1] > 1e-6 * found_axes[1][0]]

        def surprise(axes: np.ndarray | None = None) -> float:
            edits = [] if axes is None else [
                interp.ReplaceCoordinates(layer=depth, site="resid", axis=axes.T, values=mean @ axes)
            ]  # fmt: skip
            log_prob = interp.collect(model, prompts, [PREDICTED], edits=edits)[PREDICTED]
            return float(-log_prob[np.arange(self.n), answer].astype(np.float64).mean())

        before, held = surprise(), share_held(centred, space)
        random = [surprise(axes) - before for axes in of_equal_variance(centred, space.shape[1], held, rng)]
        return found | {
            "removed_bits": (surprise(space) - before, float(np.mean(random))),
            "dimension": float(space.shape[1]), "variance": held,
        }  # fmt: skip


def share_held(centred: Float[np.ndarray, "row feature"], axes: Float[np.ndarray, "feature axis"]) -> float:
    """The share of the variance that lies in a subspace."""
    return float(np.square(centred @ axes).sum() / np.square(centred).sum())


def of_equal_variance(
    centred: Float[np.ndarray, "row feature"], n_axes: int, share: float, rng: np.random.Generator
) -> list[Float[np.ndarray, "feature axis"]]:
    """Random subspaces with this share of the variance: Gaussian ones, scaled along the principal axes."""
    values, vectors = np.linalg.eigh(centred.T @ centred)
    deviation = np.sqrt(values.clip(1e-12 * values.max()))
    found = []
    for _ in range(N_RANDOM):
        drawn = rng.standard_normal((len(values), n_axes))

        def tilted(power: float, drawn: np.ndarray = drawn) -> np.ndarray:
            return vectors @ np.linalg.qr((deviation / deviation.max())[:, None] ** power * drawn)[0]

        power = brentq(lambda power: share_held(centred, tilted(power)) - share, -4.0, 8.0, xtol=1e-3)
        found.append(tilted(float(power)))  # pyrefly: ignore[bad-argument-type]
    return found
