"""The study `update_courses`: what descent does to attention over whole trainings, several of them.

At every kept checkpoint one descent step on all weights moves attention (study `gradient_laws`). Between kept
checkpoints W_Q, W_K and W_V are updated, ‖ΔW‖ / ‖W‖: a late share of W_Q and W_K below that of W_V says that the frame
settles first.

Source: Paper II (arXiv 2512.22473).
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

import interp
from interp.findings import Null
from interp.loading.sources import kept_steps
from interp.model import Model
from interp.need import Need
from interp.system.progress import unheard

from .over_seeds import NetworkStudy

MATRICES = ("W_Q", "W_K", "W_V")
_LEAST_KEPT = 4
_LAW = "moved_model"
_SHARE = "a description: a share of each training's own movement"


@dataclass(frozen=True)
class UpdateCourses(NetworkStudy):
    """Trainings that kept their weights: `tunnels` is a folder, or several by a pattern with `*`.

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
    meanings: ClassVar = {
        "moved_over_training": (
            "fraction", "advantages permuted within rows",
            "share of the attention that moved to values of positive advantage, mean over checkpoints",
        ),
        "frame_late_less_values": (
            "fraction", Null("no difference", 0.0, (0.0, 0.0)),
            "late share of the updates of W_Q and W_K less that of W_V, mean over layers",
        ),
        **{f"late_share_{name.lower()}": (
            "fraction", _SHARE,
            f"share of the relative updates of {name} that comes after the first quarter, mean over layers",
        ) for name in MATRICES},
    }  # fmt: skip
    layouts: ClassVar = {
        "by_step": (
            {"step": "steps", "moved": "fraction", "expected": "fraction"},
            "Share of the attention that moved to values of positive advantage; expected: advantages permuted.",
        ),
        "by_layer": (
            {"step_from": "steps", "layer": "layer"} | {name.lower(): "1" for name in MATRICES},
            "Relative updates of the projections from one kept checkpoint to the next.",
        ),
    }

    def read(self, model: Model) -> dict[str, Any]:
        from ..networks.weights import open_tunnel

        origin = open_tunnel(model.name)
        kept = kept_steps(origin.folder)
        if len(kept) < _LEAST_KEPT:
            found = f"{model.name} is asked for its course, and it kept its weights at {len(kept)} steps"
            raise self.refusal(found, "Train it again with --keep log.")
        places = [*map(str, kept.values())]
        moved, expected = np.array([self._moved(where) for where in places]).T
        weights = [*(_weights(interp.load(where)) for where in places), _weights(model)]
        updates = {name: np.array([_relative(a[name], b[name]) for a, b in pairwise(weights)]) for name in MATRICES}
        steps, n_layers = np.array([*kept]), model.info.n_layers
        late = {name: late_share(each, steps, int(origin.card["step"])).mean() for name, each in updates.items()}
        return {
            "moved_over_training": (float(moved.mean()), float(expected.mean())),
            "frame_late_less_values": float((late["W_Q"] + late["W_K"]) / 2 - late["W_V"]),
            **{f"late_share_{name.lower()}": float(share) for name, share in late.items()},
            "by_step": {"step": steps, "moved": moved, "expected": expected},
            "by_layer": {"step_from": np.repeat(steps, n_layers), "layer": np.tile(np.arange(n_layers), len(steps))}
            | {name.lower(): each.ravel() for name, each in updates.items()},
        }

    def _moved(self, where: str) -> tuple[float, float]:
        """Of the attention that one step from these weights moves, the share that moves well, and what is expected."""
        from interp.running.spec import make_study

        own = {name: getattr(self, name) for name in ("n_prompts", "n_permutations", "seed")}
        study = make_study("gradient_laws", {"model": where, "n_bootstrap": 20, **own})
        law = study.measure(Path(), unheard)[_LAW]  # keeps no unfinished work
        assert law.null is not None, "the study gives a null with this number"
        return law.value, law.null.value


def late_share(
    updates: Float[np.ndarray, "interval layer"], steps: np.ndarray, n_steps: int
) -> Float[np.ndarray, " layer"]:
    """Of the updates from each kept step to the next, the share that begins after the first quarter, by layer."""
    return updates[steps > n_steps / 4].sum(axis=0) / updates.sum(axis=0)


def _weights(model: Model) -> dict[str, Float[np.ndarray, "layer _head d_model d_head"]]:
    assert model.task is not None, "a training that kept steps is a tunnel's"
    read = interp.collect(model, interp.sampled_prompts(model.task, 2), list(MATRICES))
    return {name: read[Need(name)].astype(np.float64) for name in MATRICES}


def _relative(before: np.ndarray, after: np.ndarray) -> Float[np.ndarray, " layer"]:
    """‖ΔW‖ / ‖W‖, Frobenius norms over the heads of a layer."""
    axes = (1, 2, 3)
    return np.sqrt(np.square(after - before).sum(axis=axes) / np.square(before).sum(axis=axes))
