"""The study `fine_tuning`: what of a tunnel's geometry moves when it is trained further on something else.

For every seed one network is trained on a task and then further, from the same weights, for as many steps in three
ways: on the same task (which is the null), on the task with a shifted prior, and on a few sequences shown again and
again. Of each the distance from the network before is read on the same sequences of the first task:

    orthogonality   mean |change| of the cosines of the first layer's keys of different tokens, about their common mean
    axis            1 − |cos| of the entropy axes of the final stream (ridge, probe `value_axis`)
    frame           total variation of the attention rows, mean over layers, heads and scored positions

A ratio of 1 says that the new data move no more than as many further steps on the old.

Source: the closing remark of Paper III (arXiv 2512.23752) on instruction tuning, asked where the prior is known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Shaped

from interp.findings import Findings, Scalar
from interp.need import Need
from interp.study import Study
from interp.system.progress import Report, part_of
from interp.table import LABEL, Table

from ..validation import check_sizes

ARMS = ("same", "shifted", "memorised")
MEASURES = {
    "orthogonality": "mean |change| of the cosines of first-layer keys of different tokens, about their mean",
    "axis": "1 − |cosine| of the entropy axes of the final stream",
    "frame": "total variation of the attention rows",
}
ROWS, KEYS = Need("pattern_row"), Need("k_pre")
_AXIS = "resid.ridge.axis"
_DATA = {"shifted": "a shifted prior", "memorised": "a few sequences again and again"}


@dataclass(frozen=True)
class Network:
    """One network, read on the first task: what of it is compared, and its KL from that task's posterior."""

    name: str
    fingerprint: str
    cosines: Float[np.ndarray, " pair"]
    axis: Float[np.ndarray, " d_model"]
    rows: Float[np.ndarray, "layer row head key"]
    bayes_r2: float
    kl_bits: float

    def moved(self, before: "Network") -> dict[str, float]:
        """How far each measure is from the network before."""
        cosine = self.axis @ before.axis / np.linalg.norm(self.axis) / np.linalg.norm(before.axis)
        distance = np.nanmean(np.nansum(np.abs(self.rows - before.rows), axis=-1) / 2)
        return {
            "orthogonality": float(np.abs(self.cosines - before.cosines).mean()),
            "axis": float(1 - abs(cosine)),
            "frame": float(distance),
        }


@dataclass(frozen=True)
class FineTuning(Study):
    """Trainings of `task` with `settings` (field=value) from each of `seeds`, and `n_further` steps more in three ways.

    `shifted` are settings of the task that the second way changes, `n_distinct` the sequences of the third.
    """

    task: str = "coin"
    settings: tuple[str, ...] = ("concentration=[1, 1, 1, 1, 1, 1, 1, 1]", "layout=plain", "n_steps=400")
    shifted: tuple[str, ...] = ("concentration=[8, 4, 2, 1, 1, 0.5, 0.5, 0.5]",)
    n_distinct: int = 64
    n_further: int = 200
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    n_pool: int = 200

    name: ClassVar[str] = "fine_tuning"
    question: ClassVar[str] = (
        "Does further training on other data move the geometry more than as many steps on the old?"
    )

    def measure(self, work: Path, progress: Report) -> Findings:
        from interp.registry import load_entry

        from ..networks.architectures import Network as Shape
        from ..plans.settings import read_settings
        from ..plans.train_tunnel import make_plan, train_tunnels
        from .over_seeds import fingerprint_table, plans_over_seeds

        check_sizes(self.name, vars(self), {"n_distinct": 1, "n_further": 1, "n_pool": 50})
        n, n_arms = len(self.seeds), len(ARMS) * len(self.seeds)
        total = 2 * (n + n_arms)
        plans = plans_over_seeds(self)
        bases = [training.folder for training in train_tunnels(plans, work, part_of(progress, total))]
        given = read_settings(self.settings)
        further = {name: value for name, value in given.items() if name not in vars(Shape())}
        further |= {"n_steps": self.n_further, "curriculum": "none"}
        more = {"same": {}, "shifted": read_settings(self.shifted), "memorised": {"n_distinct": self.n_distinct}}
        kind = load_entry("tunnel", self.task)
        plans = [
            make_plan(kind, further | more[arm] | {"seed": seed}, init=base, variant=f"{arm}-seed{seed}")
            for seed, base in zip(self.seeds, bases, strict=True)
            for arm in ARMS
        ]
        others = iter(training.folder for training in train_tunnels(plans, work, part_of(progress, total, n)))
        found: dict[int, dict[str, Network]] = {}
        for seed, base in zip(self.seeds, bases, strict=True):
            folders = {"before": base} | {arm: next(others) for arm in ARMS}
            found[seed] = {arm: self._read(folder, base) for arm, folder in folders.items()}
            progress(n + n_arms + len(found) * (1 + len(ARMS)), total)
        networks = [(seed, arm, each) for seed, of_seed in found.items() for arm, each in of_seed.items()]
        named = {"seed": LABEL, "data": LABEL}
        moved = Table.from_rows(
            [{"seed": seed, "data": arm, **each.moved(found[seed]["before"])} for seed, arm, each in networks
             if arm != "before"], named | dict.fromkeys(MEASURES, "1"),
            "Distances of each network from the one before, on the same sequences.",
        )  # fmt: skip
        table = Table.from_rows(
            [{"seed": seed, "data": arm, "keys": float(np.abs(each.cosines).mean()), "bayes_r2": each.bayes_r2,
              "kl_bits": each.kl_bits} for seed, arm, each in networks],
            named | {"keys": "1", "bayes_r2": "fraction", "kl_bits": "bits"},
            "Each network on the first task: keys' |cosine|, R² of the exact entropy, KL from the posterior.",
        )  # fmt: skip
        return Findings(
            self.name,
            moved_scalars(list(found.values())),
            {"moved": moved, "networks": table,
             "models": fingerprint_table((each.name, each.fingerprint) for *_, each in networks)},
            notes=(
                f"{self.n_further} further steps at the rates of a training of that length. All networks are read on "
                "the same sequences of the first task; intervals are over seeds, ratios paired by seed.",
            ),
            headline=tuple(f"{measure}_{arm}" for arm in _DATA for measure in MEASURES),
        )  # fmt: skip

    def _read(self, folder: Path, base: Path) -> Network:
        import interp

        from ..evaluation.checkpoint import evaluate_model

        task = interp.load(str(base)).task
        model = interp.load(str(folder))
        assert task is not None, "a training leaves a tunnel"
        prompts = interp.sampled_prompts(task, self.n_pool)
        axis = interp.run(
            model, probes=["value_axis"], settings={"value_axis": {"sites": ("resid",)}}, prompts=prompts, out=None,
            quiet=True,
        ).findings["value_axis"]  # fmt: skip
        read = interp.collect(model, prompts, [ROWS, KEYS])
        return Network(
            folder.name, model.fingerprint, token_cosines(read[KEYS][0], read.rows["token"]), axis.arrays[_AXIS][-1],
            np.exp2(read[ROWS].astype(np.float64)), axis["bayes_r2"].value,
            evaluate_model(model.module, task).figures["kl_bits"].value,
        )  # fmt: skip


def token_cosines(
    keys: Float[np.ndarray, "row head d_head"], tokens: Shaped[np.ndarray, " row"]
) -> Float[np.ndarray, " pair"]:
    """Cosines of the mean keys of different tokens, heads joined, about the mean of all tokens' keys."""
    means = np.array(
        [keys[tokens == token].reshape((tokens == token).sum(), -1).mean(axis=0) for token in np.unique(tokens)]
    )
    unit = means - means.mean(axis=0)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    return (unit @ unit.T)[np.triu_indices(len(unit), 1)]


def moved_scalars(found: Sequence[Mapping[str, Network]]) -> dict[str, Scalar]:
    """For each measure and new data the ratio to further steps on the old; and what it costs on the first task."""
    from .over_seeds import difference_scalar, mean_over_seeds, ratio_scalar

    moved = [{arm: each[arm].moved(each["before"]) for arm in ARMS} for each in found]
    scalars = {}
    for measure, words in MEASURES.items():
        same = [each["same"][measure] for each in moved]
        for arm, data in _DATA.items():
            meaning = f"{words}: after {data}, over that after as many further steps on the same task"
            scalars[f"{measure}_{arm}"] = ratio_scalar([each[arm][measure] for each in moved], same, meaning)
        scalars[f"{measure}_same"] = mean_over_seeds(
            same, "1", "a distance: it is read beside the other arms", f"{words}: after further steps on the same task"
        )
    for arm, data in _DATA.items():
        scalars[f"forgotten_{arm}_bits"] = difference_scalar(
            [each[arm].kl_bits for each in found], [each["same"].kl_bits for each in found], "bits",
            f"KL from the first task's posterior after {data}, less that after further steps on the same task",
        )  # fmt: skip
    return scalars
