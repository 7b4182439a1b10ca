"""The command line of the wind tunnels: `python -m wind_tunnels train|eval|rebuild`."""

import dataclasses
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from transformers.utils.logging import disable_progress_bar

from interp.errors import InterpError, UnknownName, UsageError
from interp.registry import entries, load_entry
from interp.tunnel import CARD_NAME, Figure, Task, make_task, read_card
from wind_tunnels.cards import assess, load_weights, rebuild, save
from wind_tunnels.networks import Network
from wind_tunnels.training import STATE_NAME, Progress, Recipe, describe, train

app = typer.Typer(
    help="Train networks on tasks whose posterior is known.", no_args_is_help=True, pretty_exceptions_enable=False
)

_SECONDS_BETWEEN_LINES = 5.0

QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


@app.command("train", epilog="Example: python -m wind_tunnels train bijection --arch llama --set n_kv_heads=2")
def train_command(
    task: Annotated[str, typer.Argument(help="Name of a task; `interp list tunnels` shows them.")],
    arch: Annotated[str, typer.Option(help="gpt-neox, phi, llama or mistral.")] = "gpt-neox",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="field=value of the task, the network or the recipe; repeat.")
    ] = None,
    limit: Annotated[
        list[str] | None, typer.Option(help="figure=value: an upper bound that the card carries and a rebuild checks.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder that receives <task>-<arch>.")] = Path("runs"),
    quiet: QuietOption = False,
) -> None:
    """Train, measure against the exact posterior, save. The same command again resumes an unfinished training."""
    settings = dict(_setting(s) for s in set_ or [])
    kind: type[Task] = load_entry("tunnel", task)
    chosen, network, recipe = _configure(kind, {"arch": arch, **settings})
    target = out / f"{task}-{arch}"
    if target.exists():
        raise UsageError(
            asked=f"training into {target}",
            found="there is something already",
            fix="Choose another --out, or move it away.",
        )
    plan = json.dumps(describe(chosen, network, recipe), sort_keys=True)
    work = out / ".partial" / hashlib.sha256(plan.encode()).hexdigest()[:16]
    on_step = None if quiet else _lines(target.name, recipe.n_steps)
    progress = train(chosen, network, recipe, folder=work, on_step=on_step)
    n_stages = len(chosen.curriculum())
    if recipe.curriculum == "success" and progress.stage + 1 < n_stages:
        print(f"warning: the curriculum ended at stage {progress.stage + 1} of {n_stages}: the network has not seen "
              "the task itself. Train longer, or raise gate_bits.", file=sys.stderr)  # fmt: skip
    limits = {name: float(value) for name, value in map(_setting, limit or [])}
    card = save(progress, chosen, network, recipe, folder=work, limits=limits)
    (work / STATE_NAME).unlink()
    work.rename(target)
    if not any(work.parent.iterdir()):
        work.parent.rmdir()
    _print_figures(card.figures)
    print(target)


@app.command("eval", epilog="Example: python -m wind_tunnels eval runs/bijection-llama")
def eval_command(
    folder: Annotated[Path, typer.Argument(help="A checkpoint folder.")],
    n: Annotated[int, typer.Option(min=2, help="Fresh sequences.")] = 4000,
    seed: Annotated[int, typer.Option(help="Seed of the sequences.")] = 1,
) -> None:
    """Measure a checkpoint against the exact posterior, on sequences that neither training nor its card has seen."""
    card = read_card(folder)
    task = make_task(load_entry("tunnel", card.task), card.parameters)
    _print_figures(assess(load_weights(folder), task, n=n, seed=seed).figures)


@app.command("rebuild", epilog="Example: python -m wind_tunnels rebuild bijection-gpt-neox")
def rebuild_command(
    names: Annotated[list[str] | None, typer.Argument(help="<task>-<arch>; all that are shipped if left out.")] = None,
    out: Annotated[Path | None, typer.Option(help="Keep the rebuilt checkpoints in this folder.")] = None,
    quiet: QuietOption = False,
) -> None:
    """Train the shipped checkpoints again from their cards; exit code 1 where a figure does not come out."""
    shipped = _shipped()
    for name in names or []:
        if name not in shipped:
            raise UnknownName("shipped tunnel", name, shipped)
    n_failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in names or shipped:
            kind, folder = shipped[name]
            on_step = None if quiet else _lines(name, read_card(folder).recipe["n_steps"])
            result = rebuild(folder, kind, (out or Path(scratch)) / name, on_step)
            _print_figures(result.rebuilt.figures)
            same = "bit for bit the same weights" if result.is_identical else "other weights than shipped"
            verdict = "; ".join(result.failures) or f"within a factor {1 + result.shipped.tolerance:g} of the card"
            print(f"{name}: {same}, {result.rebuilt.core_seconds:.0f} core-seconds, {verdict}")
            n_failed += bool(result.failures)
    if n_failed:
        raise typer.Exit(1)


def _shipped() -> dict[str, tuple[type[Task], Path]]:
    """Every checkpoint folder with a card that lies with a registered task, by name."""
    kinds: list[type[Task]] = [load_entry("tunnel", name) for name in entries("tunnel")]
    return {
        card.parent.name: (kind, card.parent)
        for kind in kinds
        for card in sorted(kind.checkpoints.glob(f"{kind.name}-*/{CARD_NAME}"))
    }


def _setting(words: str) -> tuple[str, Any]:
    """`field=value`, the value read as JSON where it is that (numbers, true, null) and as a text otherwise."""
    name, equals, value = words.partition("=")
    if not (name and equals and value):
        raise UsageError(asked=f"the setting {words!r}", found="it is not of the form field=value", fix="Write V=20.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _configure(kind: type[Task], settings: Mapping[str, Any]) -> tuple[Task, Network, Recipe]:
    """The task, network and recipe that these settings describe; each field belongs to exactly one of them."""
    owners = {f.name: owner for owner in (kind, Network, Recipe) for f in dataclasses.fields(owner)}
    for name in settings:
        if name not in owners:
            raise UnknownName(f"field of {kind.name}, network or recipe", name, owners)
    mine = {owner: {n: v for n, v in settings.items() if owners[n] is owner} for owner in (kind, Network, Recipe)}
    return kind(**mine[kind]), Network(**mine[Network]), Recipe(**mine[Recipe])


def _lines(what: str, n_steps: int) -> Callable[[Progress], None]:
    """Says every few seconds how far a training is and how far from the posterior."""
    said = time.monotonic()

    def say(progress: Progress) -> None:
        nonlocal said
        waited = time.monotonic() - said
        if waited < _SECONDS_BETWEEN_LINES and progress.step < n_steps:
            return
        said += waited
        left = (n_steps - progress.step) * progress.core_seconds / progress.step
        print(
            f"{what}: step {progress.step} of {n_steps}, stage {progress.stage + 1}, "
            f"KL about {progress.excess_bits:.4f} bits, {left:.0f} s left",
            file=sys.stderr,
            flush=True,
        )

    return say


def _print_figures(figures: Mapping[str, Figure]) -> None:
    for name, figure in figures.items():
        limit = "" if figure.limit is None else f", limit {figure.limit:g}{'' if figure.is_met else ' NOT MET'}"
        print(f"  {name:24} {figure.value:.5f} [{figure.low:.5f}, {figure.high:.5f}] {figure.unit}{limit}")


def main() -> None:
    """Run a command; our errors are words and an exit code."""
    disable_progress_bar()  # transformers draws one for every file of weights
    torch.set_num_threads(1)  # more threads gain nothing at these sizes, and sums would depend on their number
    try:
        app()
    except InterpError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
