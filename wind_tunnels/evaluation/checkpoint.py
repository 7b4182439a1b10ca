"""Checkpoints: what a finished training leaves behind, and how a shipped one is built again.

A folder holds what `save_pretrained` writes (`config.json`, `model.safetensors`), the card `tunnel.json`, the same in
words (`README.md`), the learning curve (`curve.csv`), and under `steps/` the checkpoints taken on the way, if any. The
card alone is enough to train the network again.
"""

import csv
import dataclasses
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from interp.errors import ModelError, UnknownName
from interp.loading.sources import kept_steps
from interp.records.tunnel_card import TunnelCard, read_card, write_card
from interp.tunnel import Task

from ..networks.architectures import Network
from ..networks.networks import n_parameters, predict
from ..networks.weights import Init, load_weights, shipped_init
from ..training.loop import STATE_NAME, train
from ..training.progress import CurvePoint, Progress
from ..training.recipe import Recipe
from ..training.stream import evaluation_generators, share_seen
from .card_readme import in_words
from .evaluation import FIGURE_UNITS, Evaluation, evaluate
from .extrapolation import Extrapolation, extrapolate, longer

EVAL_SEED = 20_000
N_EVAL = 4000
TOLERANCE = 1.0
"""A rebuild may be off by a factor of two: another processor rounds sums otherwise, and a thousand steps amplify it."""
SEEN = "seen_share"
CURVE_NAME = "curve.csv"
_CURVE_COLUMNS = ("step", "stage", "excess_bits", "core_seconds")


def assess(model: PreTrainedModel, task: Task, *, n: int = N_EVAL, seed: int = EVAL_SEED) -> Evaluation:
    """Hold a network against the exact posterior on `n` fresh sequences."""
    draws, resamples = evaluation_generators(seed)
    sequences = task.sample(draws, n)
    return evaluate(predict(model, sequences.tokens, sequences.scored), sequences, resamples)


def assess_longer(
    model: PreTrainedModel, task: Task, n_observations: int, *, n: int = N_EVAL, seed: int = EVAL_SEED
) -> Extrapolation:
    """The same on sequences of more observations than the task of its training has."""
    draws, resamples = evaluation_generators(seed)
    sequences = longer(task, n_observations).sample(draws, n)
    log_probs = predict(model, sequences.tokens, sequences.scored)
    return extrapolate(log_probs, sequences, task.n_positions, resamples)


def check_limits(task: Task, limits: Mapping[str, float]) -> None:
    """Refuse a limit on a figure that this task has not, before anything is trained."""
    others = task.sample(evaluation_generators(EVAL_SEED)[0], 1).slices[1:]
    known = [*FIGURE_UNITS, SEEN, *(f"{part}.{name}" for part in others for name in FIGURE_UNITS)]
    for name in limits:
        if name not in known:
            raise UnknownName("figure", name, known)


def save(
    progress: Progress,
    task: Task,
    network: Network,
    recipe: Recipe,
    *,
    folder: Path,
    limits: Mapping[str, float],
    variant: str = "",
    init: Init | None = None,
) -> TunnelCard:
    """Measure a trained network and write its checkpoint folder; `limits` are upper bounds by the name of a figure."""
    model = progress.model.to("cpu")  # pyrefly: ignore[bad-argument-type]
    evaluation = assess(model, task)
    figures = dict(evaluation.figures)
    if recipe.device == "cpu":  # what a GPU has drawn is not drawn again here
        evaluated = task.sample(evaluation_generators(EVAL_SEED)[0], N_EVAL).tokens
        figures[SEEN] = share_seen(task, recipe, progress.stage_ends, progress.step, evaluated)
    card = TunnelCard(
        task=task.name,
        parameters=task.describe(),
        arch=network.arch,
        network={name: size for name, size in dataclasses.asdict(network).items() if name != "arch"},
        n_parameters=n_parameters(model),
        recipe={name: value for name, value in dataclasses.asdict(recipe).items() if name != "seed"},
        seed=recipe.seed,
        step=progress.step,
        figures={name: dataclasses.replace(figure, limit=limits.get(name)) for name, figure in figures.items()},
        n_eval=evaluation.n,
        eval_seed=EVAL_SEED,
        tolerance=TOLERANCE,
        core_seconds=round(progress.core_seconds, 1),
        environment={
            "python": platform.python_version(),
            "machine": platform.machine(),
            **{package: version(package) for package in ("torch", "transformers")},
        },
        variant=variant,
        init=None if init is None else init.record(),
        baselines=by_predictor(evaluation),
    )
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    write_card(card, folder)
    _write_curve(progress, folder / CURVE_NAME)
    (folder / "README.md").write_text(in_words(card, task, evaluation.notes), encoding="utf-8")
    return card


def by_predictor(evaluation: Evaluation) -> dict[str, dict[str, float]]:
    """The table of baselines as the card keeps it; `<slice>.<predictor>` for slices after the primary one."""
    table = evaluation.baselines
    slices = table["slice"].tolist() if "slice" in table else [""] * table.n_rows
    parts = zip(slices, table["predictor"].tolist(), strict=True)
    names = [name if part == slices[0] else f"{part}.{name}" for part, name in parts]
    figures = ("mae_per_sequence_bits", "kl_bits")
    return {name: {figure: float(table[figure][row]) for figure in figures} for row, name in enumerate(names)}


def as_data(evaluation: Evaluation, extrapolation: Extrapolation | None = None) -> dict[str, Any]:
    """Everything that was measured, as plain data with units."""
    table = evaluation.by_position
    found: dict[str, Any] = {
        "n": evaluation.n,
        "interval_method": "95 % percentile bootstrap over sequences",
        "figures": {name: dataclasses.asdict(figure) for name, figure in evaluation.figures.items()},
        "baselines": by_predictor(evaluation),
        "by_position": {"units": dict(table.units), "columns": {n: c.tolist() for n, c in table.columns.items()}},
        "notes": list(evaluation.notes),
    }
    if extrapolation is not None:
        figures = {name: dataclasses.asdict(figure) for name, figure in extrapolation.figures.items()}
        found["extrapolation"] = {"n_trained_tokens": extrapolation.n_trained, "figures": figures}
    return found


def _write_curve(progress: Progress, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(_CURVE_COLUMNS)
        writer.writerows((step, stage, f"{bits:.6g}", f"{spent:.2f}") for step, stage, bits, spent in progress.curve)


def read_curve(folder: Path) -> list[CurvePoint]:
    """The learning curve of a finished training: steps, stage, smoothed excess loss in bits, core-seconds.

    Raises `ModelError` where the file is missing or damaged.
    """
    try:
        with (folder / CURVE_NAME).open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        if tuple(header) != _CURVE_COLUMNS:
            raise ValueError(f"its columns are {', '.join(header)}")
        return [(int(step), int(stage), float(bits), float(spent)) for step, stage, bits, spent in rows]
    except (OSError, ValueError, csv.Error) as error:
        raise ModelError(
            asked=f"the learning curve {folder / CURVE_NAME}",
            found=f"it cannot be read ({error})",
            fix="Restore the file, or train the tunnel again: `interp tunnel train`.",
        ) from error


@dataclass(frozen=True)
class Rebuild:
    """A shipped checkpoint beside the same training done again; `other_steps` came out with other weights."""

    shipped: TunnelCard
    rebuilt: TunnelCard
    is_identical: bool
    other_steps: tuple[int, ...] = ()

    @property
    def failures(self) -> list[str]:
        """In words, every figure with a limit that the rebuild misses, by the limit or by the card's tolerance."""
        found = []
        factor = 1.0 + self.shipped.tolerance
        for name, figure in self.shipped.figures.items():
            value = self.rebuilt.figures[name].value
            if figure.limit is None:
                continue
            if value > figure.limit:
                found.append(f"{name} is {value:.4g}, its limit {figure.limit:.4g}")
            if not figure.value / factor <= value <= figure.value * factor:
                found.append(f"{name} is {value:.4g}, shipped {figure.value:.4g}, more than a factor {factor:g} apart")
        return found

    def in_words(self) -> str:
        """What came out, in one line."""
        same = "bit for bit the same weights" if self.is_identical else "other weights than shipped"
        if self.other_steps:
            same += f" (at steps {', '.join(map(str, self.other_steps))} other weights)"
        verdict = "; ".join(self.failures) or f"within a factor {1 + self.shipped.tolerance:g} of the card"
        return f"{same}, {self.rebuilt.core_seconds:.0f} core-seconds, {verdict}"


def rebuild(
    shipped: Path, kind: type[Task], folder: Path, on_step: Callable[[Progress], None] | None = None
) -> Rebuild:
    """Train a shipped checkpoint again from its card, into another folder, and compare weights and figures.

    Checkpoints taken on the way are taken again and compared too.
    """
    card = read_card(shipped)
    task = kind(**card.parameters)
    network, recipe = Network(arch=card.arch, **card.network), Recipe(seed=card.seed, **card.recipe)
    init = None if card.init is None else shipped_init(card.init)
    steps = kept_steps(shipped)
    progress = train(task, network, recipe, init=init, folder=folder, on_step=on_step, keep=steps)
    limits = {name: figure.limit for name, figure in card.figures.items() if figure.limit is not None}
    rebuilt = save(progress, task, network, recipe, folder=folder, limits=limits, variant=card.variant, init=init)
    (folder / STATE_NAME).unlink()
    others = tuple(step for step, path in steps.items() if not _same_weights(path, folder / "steps" / str(step)))
    return Rebuild(card, rebuilt, _same_weights(shipped, folder), others)


def _same_weights(one: Path, other: Path) -> bool:
    first, second = (load_weights(folder).state_dict() for folder in (one, other))
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
