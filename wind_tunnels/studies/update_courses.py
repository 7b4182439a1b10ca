"""The study `update_courses`: how descent moves attention and updates W_Q, W_K and W_V over whole trainings.

Source: Paper II (arXiv 2512.22473).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

import interp
from interp.loading.sources import kept_steps
from interp.model import Model
from interp.need import Need
from interp.system.progress import no_report
from interp.table import Table
from interp.tunnel import Task

from .over_seeds import NO_DIFFERENCE, TunnelStudy, value_and_null

MATRICES = ("W_Q", "W_K", "W_V")
_LEAST_KEPT = 4


@dataclass(frozen=True)
class UpdateCourses(TunnelStudy):
    """Trainings that kept their weights: `tunnels` is a folder, or a pattern of folders with `*`.

    `n_prompts` sequences for each gradient; `n_permutations` of the advantages.
    """

    n_prompts: int = 16
    n_permutations: int = 50
    seed: int = 0

    name: ClassVar[str] = "update_courses"
    question: ClassVar[str] = "Over a training, does attention move to better values, and does the frame settle first?"

    headline = ("moved_over_training", "frame_late_less_values")
    rules: ClassVar = {"n_prompts": 2, "n_permutations": 19}
    notes = (
        "Advantages and changes of attention are of the last layer, updates of all. A rate that falls to 0, and an "
        "optimiser that makes all updates alike in length, are in the shares of every projection.",
    )
    numbers: ClassVar = {
        "moved_over_training": (
            "share", "advantages permuted within rows",
            "share of the attention that moved to values of positive advantage, mean over checkpoints",
        ),
        "frame_late_less_values": (
            "difference", NO_DIFFERENCE,
            "late share of the updates of W_Q and W_K less that of W_V, mean over layers",
        ),
        **{f"late_share_{name.lower()}": (
            "share", "a description: a share of each training's own movement",
            f"share of the relative updates of {name} that comes after the first quarter, mean over layers",
        ) for name in MATRICES},
    }  # fmt: skip

    def read(self, model: Model, task: Task) -> dict[str, Any]:
        from ..networks.weights import open_tunnel

        origin = open_tunnel(model.name)
        kept = kept_steps(origin.folder)
        if len(kept) < _LEAST_KEPT:
            found = f"{model.name} kept its weights at {len(kept)} steps"
            raise self.refusal(found, "Train it again with --keep log.")
        places = [*map(str, kept.values())]
        moved, expected = np.array([self._moved(where) for where in places]).T
        prompts = interp.sampled_prompts(task, 2)
        weights = [interp.collect(each, prompts, list(MATRICES)) for each in (*map(interp.load, places), model)]
        updates = {name: _relative([each[Need(name)] for each in weights]) for name in MATRICES}
        steps, n_layers = np.array([*kept]), model.info.n_layers
        late = {name: late_share(each, steps, int(origin.card["step"])).mean() for name, each in updates.items()}
        return {
            "moved_over_training": (float(moved.mean()), float(expected.mean())),
            "frame_late_less_values": float((late["W_Q"] + late["W_K"]) / 2 - late["W_V"]),
            **{f"late_share_{name.lower()}": float(share) for name, share in late.items()},
            "by_step": Table(
                {"step": steps, "moved": moved, "expected": expected},
                {"step": "steps", "moved": "fraction", "expected": "fraction"},
                "Share of the attention that moved to values of positive advantage; expected: advantages permuted.",
            ),
            "by_layer": Table(
                {"step_from": np.repeat(steps, n_layers), "layer": np.tile(np.arange(n_layers), len(steps))}
                | {name.lower(): each.ravel() for name, each in updates.items()},
                {"step_from": "steps", "layer": "layer"} | {name.lower(): "1" for name in MATRICES},
                "Relative updates of the projections from one kept checkpoint to the next.",
            ),
        }

    def _moved(self, where: str) -> tuple[float, float]:
        """The share of the attention moved by one descent step that goes to better values, and its null."""
        from interp.running.spec import make_study

        own = {name: getattr(self, name) for name in ("n_prompts", "n_permutations", "seed")}
        study = make_study("gradient_laws", {"model": where, "n_bootstrap": 20, **own})
        return value_and_null(study.measure(Path(), no_report)["moved_model"])  # keeps no unfinished work


def late_share(
    updates: Float[np.ndarray, "interval layer"], steps: np.ndarray, n_steps: int
) -> Float[np.ndarray, " layer"]:
    """The share of the updates between kept steps that begins after the first quarter, by layer."""
    return updates[steps > n_steps / 4].sum(axis=0) / updates.sum(axis=0)


def _relative(weights: Sequence[np.ndarray]) -> Float[np.ndarray, "interval layer"]:
    """‖ΔW‖ / ‖W‖ from each `[layer, head, d_model, d_head]` to the next, Frobenius norms over a layer."""
    every, axes = np.array(weights, dtype=np.float64), (2, 3, 4)
    return np.sqrt(np.square(np.diff(every, axis=0)).sum(axis=axes) / np.square(every[:-1]).sum(axis=axes))
