"""The study `update_courses`: what descent does to attention over whole trainings, several of them.

    routing   at every kept checkpoint, one descent step on all weights: of the attention that moves, the share that
              moves to values of positive advantage (study `gradient_laws`), beside that of advantages permuted within
              rows; mean over checkpoints before the end
    plateau   of all relative updates of W_Q, W_K and W_V between kept checkpoints, ‖ΔW‖ / ‖W‖, the share that comes
              after the first quarter of the training; that of W_Q and W_K less that of W_V: below 0 where the frame
              settles first

Source: Paper II (arXiv 2512.22473).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Float

from interp.errors import UsageError
from interp.findings import Findings
from interp.loading.sources import kept_steps
from interp.need import Need
from interp.study import Study
from interp.system.progress import Report, reporting
from interp.table import LABEL, Table

from ..validation import check_sizes

if TYPE_CHECKING:
    from interp.model import Model

MATRICES = ("W_Q", "W_K", "W_V")
_LEAST_KEPT = 4
_LAW = "moved_model"


@dataclass(frozen=True)
class Course:
    """One training of `n_steps`: by kept step before the end the attention that moved well and what is expected; by
    the interval after it, and by layer, the relative updates of every projection."""

    name: str
    fingerprint: str
    n_steps: int
    steps: tuple[int, ...]
    moved: Float[np.ndarray, " step"]
    expected: Float[np.ndarray, " step"]
    updates: Mapping[str, Float[np.ndarray, "interval layer"]]

    @property
    def late_share(self) -> dict[str, Float[np.ndarray, " layer"]]:
        """Of each projection's updates the share of the intervals that begin after the first quarter, by layer."""
        late = np.array(self.steps) > self.n_steps / 4
        return {name: each[late].sum(axis=0) / each.sum(axis=0) for name, each in self.updates.items()}


@dataclass(frozen=True)
class UpdateCourses(Study):
    """Trainings that kept their weights: `tunnels` is a folder, or several by a pattern with `*`.

    `n_prompts` sequences for each gradient; `n_permutations` of the advantages.
    """

    tunnels: str = "tunnel:bijection-gpt-neox"
    n_prompts: int = 16
    n_permutations: int = 50
    seed: int = 0

    name: ClassVar[str] = "update_courses"
    question: ClassVar[str] = "Over a training, does attention move to better values, and does the frame settle first?"

    def measure(self, work: Path, progress: Report) -> Findings:
        from .over_seeds import beside_null, difference_scalar, fingerprint_table, mean_over_seeds, tunnels_named

        check_sizes(self.name, vars(self), {"n_prompts": 2, "n_permutations": 19})
        names = tunnels_named(self.tunnels)
        found = []
        for i, name in enumerate(names):
            found.append(self._of(name, work))
            progress(i + 1, len(names))
        shares = {name: [float(each.late_share[name].mean()) for each in found] for name in MATRICES}
        frame = np.mean([shares["W_Q"], shares["W_K"]], axis=0)
        description = "a description: a share of each training's own movement"
        scalars = {
            "moved_over_training": beside_null(
                [float(each.moved.mean()) for each in found], [float(each.expected.mean()) for each in found],
                "fraction", "advantages permuted within rows",
                "share of the attention that moved to values of positive advantage, mean over checkpoints",
            ),
            "frame_late_less_values": difference_scalar(
                list(frame), shares["W_V"], "fraction",
                "late share of the updates of W_Q and W_K less that of W_V, mean over layers",
            ),
            **{f"late_share_{name.lower()}": mean_over_seeds(shares[name], "fraction", description,
               f"share of the relative updates of {name} that comes after the first quarter, mean over layers")
               for name in MATRICES},
        }  # fmt: skip
        by_step = Table.from_rows(
            [{"network": each.name, "step": step, "moved": float(moved), "expected": float(expected)} for each in found
             for step, moved, expected in zip(each.steps, each.moved, each.expected, strict=True)],
            {"network": LABEL, "step": "steps", "moved": "fraction", "expected": "fraction"},
            "Share of the attention that moved to values of positive advantage; expected: advantages permuted.",
        )  # fmt: skip
        return Findings(
            self.name, scalars,
            {"by_step": by_step, "by_layer": _by_layer(found),
             "models": fingerprint_table((each.name, each.fingerprint) for each in found)},
            notes=(
                "Advantages and changes of attention are of the last layer, updates of all. A rate that falls to 0, "
                "and an optimiser that makes all updates alike in length, are in the shares of every projection.",
            ),
            headline=("moved_over_training", "frame_late_less_values"),
        )  # fmt: skip

    def _of(self, tunnel: str, work: Path) -> Course:
        import interp
        from interp.running.spec import make_study

        from ..networks.weights import open_tunnel

        end, origin = interp.load(tunnel), open_tunnel(tunnel)
        steps = kept_steps(origin.folder)
        if len(steps) < _LEAST_KEPT:
            raise UsageError(
                asked=f"the course of {tunnel}",
                found=f"it kept its weights at {len(steps)} steps",
                fix="Train it again with --set checkpoints_per_doubling=1.",
            )
        own = {name: getattr(self, name) for name in ("n_prompts", "n_permutations", "seed")}
        moved, weights = [], []
        with reporting("", quiet=True) as silent:
            for where in map(str, steps.values()):
                law = make_study("gradient_laws", {"model": where, "n_bootstrap": 20, **own}).measure(work, silent)[
                    _LAW
                ]
                assert law.null is not None, "the study gives a null with this number"
                moved.append((law.value, law.null.value))
                weights.append(_weights(interp.load(where)))
        weights.append(_weights(end))
        updates = {name: np.array([_relative(a[name], b[name]) for a, b in pairwise(weights)]) for name in MATRICES}
        value, expected = np.array(moved).T
        return Course(
            origin.folder.name, end.fingerprint, int(origin.card["step"]), tuple(steps), value, expected, updates
        )


def _weights(model: "Model") -> dict[str, Float[np.ndarray, "layer _head d_model d_head"]]:
    import interp

    assert model.task is not None, "a training that kept steps is a tunnel's"
    read = interp.collect(model, interp.sampled_prompts(model.task, 2), list(MATRICES))
    return {name: read[Need(name)].astype(np.float64) for name in MATRICES}


def _relative(before: np.ndarray, after: np.ndarray) -> Float[np.ndarray, " layer"]:
    """‖ΔW‖ / ‖W‖, Frobenius norms over the heads of a layer."""
    axes = (1, 2, 3)
    return np.sqrt(np.square(after - before).sum(axis=axes) / np.square(before).sum(axis=axes))


def _by_layer(found: Sequence[Course]) -> Table:
    rows = [
        {"network": each.name, "step_from": step, "layer": layer,
         **{name.lower(): float(each.updates[name][i, layer]) for name in MATRICES}}
        for each in found
        for i, step in enumerate(each.steps)
        for layer in range(each.updates[MATRICES[0]].shape[1])
    ]  # fmt: skip
    units = {"network": LABEL, "step_from": "steps", "layer": "layer"} | {name.lower(): "1" for name in MATRICES}
    return Table.from_rows(rows, units, "Relative updates of the projections from one kept checkpoint to the next.")
