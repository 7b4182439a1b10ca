"""Checkpoints: what a finished training leaves behind, and how a shipped one is built again.

A folder holds what `save_pretrained` writes (`config.json`, `model.safetensors`), the card `tunnel.json`, and the same
in words, `README.md`. The card alone is enough to train the network again.
"""

import dataclasses
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from interp.errors import ModelError
from interp.tunnel import Figure, Task, TunnelCard, read_card, write_card
from wind_tunnels.evaluation import Evaluation, evaluate
from wind_tunnels.networks import Network, n_parameters, predict
from wind_tunnels.training import Progress, Recipe, train

EVAL_SEED = 20_000
N_EVAL = 4000
TOLERANCE = 1.0
"""A rebuild may be off by a factor of two: another processor rounds sums otherwise, and a thousand steps amplify it."""


def assess(model: PreTrainedModel, task: Task, *, n: int = N_EVAL, seed: int = EVAL_SEED) -> Evaluation:
    """Hold a network against the exact posterior on `n` fresh sequences."""
    # Training takes the first two streams of its seed; the next two stay fresh even where the seeds are equal.
    draws, resamples = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(4)[2:])
    sequences = task.sample(draws, n)
    return evaluate(predict(model, sequences.tokens, sequences.scored), sequences, resamples)


def save(
    progress: Progress, task: Task, network: Network, recipe: Recipe, *, folder: Path, limits: Mapping[str, float]
) -> TunnelCard:
    """Measure a trained network and write its checkpoint folder; `limits` are upper bounds by the name of a figure."""
    evaluation = assess(progress.model, task)
    figures = {name: dataclasses.replace(figure, limit=limits.get(name)) for name, figure in evaluation.figures.items()}
    card = TunnelCard(
        task=task.name,
        parameters=task.describe(),
        arch=network.arch,
        network={name: size for name, size in dataclasses.asdict(network).items() if name != "arch"},
        n_parameters=n_parameters(progress.model),
        recipe={name: value for name, value in dataclasses.asdict(recipe).items() if name != "seed"},
        seed=recipe.seed,
        step=progress.step,
        figures=figures,
        n_eval=evaluation.n,
        eval_seed=EVAL_SEED,
        tolerance=TOLERANCE,
        core_seconds=round(progress.core_seconds, 1),
        environment={
            "python": platform.python_version(),
            "machine": platform.machine(),
            **{package: version(package) for package in ("torch", "transformers")},
        },
    )
    folder.mkdir(parents=True, exist_ok=True)
    progress.model.save_pretrained(folder)
    write_card(card, folder)
    (folder / "README.md").write_text(in_words(card, task, evaluation), encoding="utf-8")
    return card


@dataclass(frozen=True)
class Rebuild:
    """A shipped checkpoint beside the same training done again."""

    shipped: TunnelCard
    rebuilt: TunnelCard
    is_identical: bool

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


def rebuild(
    shipped: Path, kind: type[Task], folder: Path, on_step: Callable[[Progress], None] | None = None
) -> Rebuild:
    """Train a shipped checkpoint again from its card, into another folder, and compare weights and figures."""
    card = read_card(shipped)
    task = kind(**card.parameters)
    network, recipe = Network(arch=card.arch, **card.network), Recipe(seed=card.seed, **card.recipe)
    progress = train(task, network, recipe, on_step=on_step)
    limits = {name: figure.limit for name, figure in card.figures.items() if figure.limit is not None}
    rebuilt = save(progress, task, network, recipe, folder=folder, limits=limits)
    old, new = load_weights(shipped).state_dict(), progress.model.state_dict()
    return Rebuild(card, rebuilt, all(torch.equal(old[name], new[name]) for name in new))


def load_weights(folder: Path) -> PreTrainedModel:
    """The network of a checkpoint folder, in float32."""
    if not (folder / "model.safetensors").is_file():
        raise ModelError(
            asked=f"the tunnel in {folder}",
            found="there is no model.safetensors",
            fix="Give a folder that a finished training wrote.",
        )
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()


def in_words(card: TunnelCard, task: Task, evaluation: Evaluation) -> str:
    """The card as a page for people."""
    parameters = ", ".join(f"{name} = {value}" for name, value in card.parameters.items() if value is not None)
    sizes = ", ".join(f"{name} = {value}" for name, value in card.network.items() if value is not None)
    recipe = ", ".join(f"{name} = {value}" for name, value in card.recipe.items())
    n_seen = card.step * int(card.recipe["batch"])
    where = ", ".join(f"{name} {value}" for name, value in card.environment.items())
    lines = [
        f"# {card.name}",
        "",
        f"{task.question} Task `{card.task}` ({parameters}), {card.n_parameters:,} parameters.",
        "",
        "```python",
        "from transformers import AutoModelForCausalLM",
        "",
        "model = AutoModelForCausalLM.from_pretrained(folder)",
        "```",
        "",
        f"Measured against the exact posterior on {card.n_eval:,} fresh sequences (95 % bootstrap over sequences):",
        "",
        "| figure | value | interval | limit |",
        "|---|---|---|---|",
        *(_figure_row(name, figure) for name, figure in card.figures.items()),
        "",
        "Without looking at the sequence one gets:",
        "",
        "| predictor | entropy error, bits | KL, bits |",
        "|---|---|---|",
        *(
            f"| {name} | {mae:.4f} | {kl:.4f} |"
            for name, mae, kl in zip(*evaluation.baselines.columns.values(), strict=True)
        ),
        "",
        f"Network: {card.arch}, {sizes}.",
        "",
        f"Recipe: {recipe}, seed {card.seed}. It saw {n_seen:,} sequences in {card.core_seconds:.0f} core-seconds, one "
        f"thread ({where}). A rebuild (`python -m wind_tunnels rebuild {card.name}`) has to come within a factor of "
        f"{1 + card.tolerance:g} of every figure that has a limit.",
        "",
    ]
    return "\n".join(lines)


def _figure_row(name: str, figure: Figure) -> str:
    limit = "" if figure.limit is None else f"{figure.limit:g}"
    unit = {"1": "", "fraction": ""}.get(figure.unit, f" {figure.unit}")
    return f"| `{name}` | {figure.value:.5f}{unit} | {figure.low:.5f} to {figure.high:.5f} | {limit} |"
