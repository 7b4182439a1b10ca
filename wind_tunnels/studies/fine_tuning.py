"""The study `fine_tuning`: does training on new data move a tunnel's geometry more than as many steps on the old?

Source: the closing remark of Paper III (arXiv 2512.23752) on instruction tuning, tested where the prior is known.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Shaped

import interp
from interp.errors import named
from interp.findings import Findings, Scalar
from interp.model import Model
from interp.need import Need
from interp.registry import load_entry
from interp.system.progress import Report, part_of
from interp.table import LABEL, Table
from interp.tunnel import Task

from ..plans.settings import read_settings
from ..validation import DISTINCT
from .over_seeds import (
    CheckedStudy,
    by_network,
    difference_scalar,
    fingerprint_table,
    mean_over_seeds,
    plans_over_seeds,
    ratio_scalar,
    read_by,
)

ARMS = ("same", "shifted", "memorised")
MEASURES = {
    "orthogonality": "mean |change| of the cosines of first-layer keys of different tokens, about their mean",
    "axis": "1 − |cosine| of the entropy axes of the final stream",
    "frame": "total variation of the attention rows",
}
ROWS, KEYS = Need("pattern_row"), Need("k_pre")
_DATA = {"shifted": "a shifted prior", "memorised": "a few sequences again and again"}


Arrays = Mapping[str, np.ndarray]
"""What is compared with the network before: `cosines` of keys, entropy `axis`, attention `rows`."""


@dataclass(frozen=True)
class FineTuning(CheckedStudy):
    """Trainings of `task` with `settings` (field=value) from each of `seeds`, then `n_further` steps in three ways.

    One way keeps the data, one changes the settings `shifted` of the task, one repeats `n_distinct` sequences.
    """

    task: str = "coin"
    settings: tuple[str, ...] = ("concentration=[1, 1, 1, 1, 1, 1, 1, 1]", "layout=plain", "n_steps=400")
    shifted: tuple[str, ...] = ("concentration=[8, 4, 2, 1, 1, 0.5, 0.5, 0.5]",)
    n_distinct: int = 64
    n_further: int = 200
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    n_pool: int = 200

    name: ClassVar[str] = "fine_tuning"
    rules: ClassVar = {"seeds": DISTINCT, "n_distinct": 1, "n_further": 1, "n_pool": 50}
    question: ClassVar[str] = (
        "Does further training on other data move the geometry more than as many steps on the old?"
    )

    def measure(self, work: Path, progress: Report) -> Findings:
        from ..networks.architectures import Network
        from ..plans.train_tunnel import make_plan, train_tunnels

        n, n_arms = len(self.seeds), len(ARMS) * len(self.seeds)
        total = 2 * (n + n_arms)
        given = read_settings(self.settings)
        further = {name: value for name, value in given.items() if name not in vars(Network())}
        further |= {"n_steps": self.n_further, "curriculum": "none"}
        more = {"same": {}, "shifted": read_settings(self.shifted), "memorised": {"n_distinct": self.n_distinct}}
        kind = load_entry("tunnel", self.task)
        for name in more["shifted"]:  # anything else would train this arm in another way
            named(f"field of the task {kind.name}", name, {field.name: field for field in fields(kind)})
        for arm in ARMS:
            make_plan(kind, further | more[arm])  # refused before anything is trained
        bases = [each.folder for each in train_tunnels(plans_over_seeds(self), work, part_of(progress, total))]
        plans = [
            make_plan(kind, further | more[arm] | {"seed": seed}, init=base, variant=f"{arm}-seed{seed}")
            for seed, base in zip(self.seeds, bases, strict=True)
            for arm in ARMS
        ]
        others = iter(training.folder for training in train_tunnels(plans, work, part_of(progress, total, n)))
        models, networks, moved = [], [], []
        for seed, base in zip(self.seeds, bases, strict=True):
            task, before = interp.load(str(base)).task, {}
            assert task is not None, "a training leaves a tunnel"
            for arm in ("before", *ARMS):
                folder = next(others) if arm in ARMS else base
                model, labels = interp.load(str(folder)), {"seed": seed, "data": arm}
                arrays, numbers = self._read(model, task)
                models.append((folder.name, model.fingerprint))
                networks.append(labels | numbers)
                if arm in ARMS:
                    moved.append(labels | distances(arrays, before))
                else:
                    before = arrays
            progress(n + n_arms + len(networks), total)
        of_labels = {"seed": LABEL, "data": LABEL}
        tables = {
            "moved": Table.from_rows(
                moved, of_labels | dict.fromkeys(MEASURES, "1"),
                "Distances of each network from the one before, on the same sequences.",
            ),
            "networks": Table.from_rows(
                networks, of_labels | {"keys": "1", "bayes_r2": "fraction", "kl_bits": "bits"},
                "Each network on the first task: keys' |cosine|, R² of the exact entropy, KL from the posterior.",
            ),
        }  # fmt: skip
        return Findings(
            self.name,
            moved_scalars(**tables),
            tables | {"models": fingerprint_table(models)},
            notes=(
                f"{self.n_further} further steps at the rates of a training of that length. All networks are read on "
                "the same sequences of the first task; intervals are over seeds, ratios paired by seed.",
            ),
            headline=tuple(f"{measure}_{arm}" for arm in _DATA for measure in MEASURES),
        )

    def _read(self, model: Model, task: Task) -> tuple[Arrays, dict[str, float]]:
        from ..evaluation.checkpoint import evaluate_model

        prompts = interp.sampled_prompts(task, self.n_pool)
        axis = read_by({"value_axis": {"sites": ("resid",)}}, model, prompts=prompts)["value_axis"]
        read = interp.collect(model, prompts, [ROWS, KEYS])
        cosines = token_cosines(read[KEYS][0], read.rows["token"])
        rows = np.exp2(read[ROWS].astype(np.float64))
        arrays = {"cosines": cosines, "axis": axis.arrays["resid.ridge.axis"][-1], "rows": rows}
        kl_bits = evaluate_model(model.module, task).figures["kl_bits"].value
        numbers = {"keys": float(np.abs(cosines).mean()), "bayes_r2": axis["bayes_r2"].value, "kl_bits": kl_bits}
        return arrays, numbers


def distances(after: Arrays, before: Arrays) -> dict[str, float]:
    """The distance of each measure from the network before."""
    axes = [each["axis"] / np.linalg.norm(each["axis"]) for each in (after, before)]
    return {
        "orthogonality": float(np.abs(after["cosines"] - before["cosines"]).mean()),
        "axis": float(1 - abs(axes[0] @ axes[1])),
        "frame": float(np.nanmean(np.nansum(np.abs(after["rows"] - before["rows"]), axis=-1) / 2)),
    }


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


def moved_scalars(moved: Table, networks: Table) -> dict[str, Scalar]:
    """For each measure and new data the ratio to further steps on the old, and the cost on the first task."""
    scalars = {}
    for measure, words in MEASURES.items():
        same = by_network(moved, measure, data="same")
        for arm, data in _DATA.items():
            meaning = f"{words}: after {data}, over that after as many further steps on the same task"
            scalars[f"{measure}_{arm}"] = ratio_scalar(by_network(moved, measure, data=arm), same, meaning)
        scalars[f"{measure}_same"] = mean_over_seeds(
            same, "positive", "a distance: it is read beside the other arms",
            f"{words}: after further steps on the same task",
        )  # fmt: skip
    for arm, data in _DATA.items():
        scalars[f"forgotten_{arm}_bits"] = difference_scalar(
            by_network(networks, "kl_bits", data=arm), by_network(networks, "kl_bits", data="same"), "bits",
            f"KL from the first task's posterior after {data}, less that after further steps on the same task",
        )  # fmt: skip
    return scalars
