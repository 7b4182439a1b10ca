"""`interp tunnel`: train, eval, sweep, rebuild. Heavy modules are imported inside the commands."""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interp.cli import completion as completing
from interp.cli.terminal import show_table
from interp.errors import UnknownName, named
from interp.records.tunnel_card import Figure
from interp.settings import LARGEST_SEED, MOST, by_name, split_commas
from interp.system.values import read

from ..plans.settings import read_settings, read_value

if TYPE_CHECKING:
    from ..plans.rebuild import Rebuild
    from ..plans.train_tunnel import FinishedTraining, Keep
    from ..training.loop import OnStep, TrainingState
    from ..training.plan import TrainingPlan


def print_figures(figures: Mapping[str, Figure], title: str) -> None:
    """Print value, interval and limit of every figure."""
    rows = []
    for name, figure in figures.items():
        limit = "" if figure.limit is None else f"{figure.limit:g}{'' if figure.is_met else ' NOT MET'}"
        interval = f"{figure.low:.5f} to {figure.high:.5f}"
        rows.append((name, f"{figure.value:.5f}", interval, {"1": ""}.get(figure.unit, figure.unit), limit))
    show_table(title, ("figure", "value", "95 % interval", "unit", "limit"), rows)


def print_sweep(sweep: Mapping[str, Any]) -> None:
    """Print a row for each combination: means over seeds with both intervals, and the KL of the position baseline."""
    from ..plans.sweep import label

    varied = [*dict.fromkeys(name for cell in sweep["cells"] for name in cell["settings"])]
    rows = []
    for cell in sweep["cells"]:
        position = cell["baselines"].get("position", {}).get("kl_bits")
        rows.append((
            *(str(cell["settings"].get(name, "")) for name in varied),
            f"{cell['n_parameters']:,}" if cell["n_parameters"] else "",
            str(len(cell["runs"])),
            "" if (spent := cell["core_seconds"]["mean"]) is None else f"{spent:.0f}",
            *(_both(cell, name) for name in ("kl_bits", "mae_per_sequence_bits")),
            "" if position is None else f"{position:.4f}",
        ))  # fmt: skip
    show_table(
        f"{sweep['task']}: mean over seeds (95 % t interval over seeds; span of the intervals over sequences)",
        (*varied, "parameters", "seeds", "core-seconds", "KL, bits", "entropy error, bits", "KL of position alone"),
        rows,
    )
    for cell in sweep["cells"]:
        for seed, words in cell["failures"].items():
            print(f"FAILED: {label(cell['settings'])}, seed {seed}: {_short(words)}")
        for run in cell["runs"]:
            if run["stage"] < run["n_stages"]:
                print(f"note: {run['folder']} ended in stage {run['stage']} of {run['n_stages']} of its curriculum")


def _both(cell: Mapping[str, Any], name: str) -> str:
    if not cell["runs"]:
        return "none finished"
    figure = cell["figures"][name]
    spans: Sequence[Sequence[float]] = [run["figures"][name]["interval"] for run in cell["runs"]]
    span = f"{min(low for low, _ in spans):.4f} to {max(high for _, high in spans):.4f}"
    seeds = "{:.4f} to {:.4f}".format(*figure["interval"]) if figure["interval"] else figure["interval_reason"]
    return f"{figure['mean']:.4f} ({seeds}; {span})"


def _short(failure: str) -> str:
    """An error message in one line; of a traceback the last line, the rest is in the file."""
    lines = [line.strip() for line in failure.strip().splitlines()]
    return lines[-1] if lines[0].startswith("Traceback") else " ".join(lines)


app = typer.Typer(
    help="Train networks on tasks whose posterior is known, and measure how close they come.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

_SECONDS_BETWEEN_LINES = 5.0

TaskArgument = Annotated[
    str,
    typer.Argument(help="Name of a task; `interp list tunnels` shows them.", autocompletion=completing.tasks),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="field=value of the task, the network or the recipe; repeat.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
KeepOption = Annotated[
    str | None, typer.Option(help="Steps whose weights are kept, such as 0,16,64; `log`: 0, 1, 2, 4, 8 and so on.")
]


@app.command("train", epilog="Example: interp tunnel train bijection --arch llama --set n_kv_heads=2")
def train_command(
    task: TaskArgument,
    arch: Annotated[str | None, typer.Option(help="gpt-neox (the default), phi, llama, mistral, lstm ...")] = None,
    init: Annotated[str | None, typer.Option(help="Start from this checkpoint: a folder, or tunnel:NAME@step.")] = None,
    set_: SetOption = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=LARGEST_SEED, help="Seed of weights and sequences; 0 if left out.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu (the default) or cuda.")] = None,
    keep: KeepOption = None,
    limit: Annotated[
        list[str] | None, typer.Option(help="metric=value: an upper bound, kept in the card and checked by rebuild.")
    ] = None,
    variant: Annotated[str, typer.Option(help="Suffix that tells networks of a task and architecture apart.")] = "",
    out: Annotated[Path, typer.Option(help="Folder that receives TASK-ARCH-VARIANT.")] = Path("runs"),
    quiet: QuietOption = False,
) -> None:
    """Train a network, compare it with the exact posterior, and save it. The same command resumes."""
    kind = _task(task)
    from ..plans.train_tunnel import make_plan, train_tunnel

    named = {"arch": arch, "seed": seed, "device": device}
    settings = by_name([*read_settings(set_).items(), *((n, v) for n, v in named.items() if v is not None)])
    limits = {name: read(f"the limit {name}", float, value) for name, value in read_settings(limit).items()}
    plan = make_plan(kind, settings, init=init, variant=variant, limits=limits, keep=_keep(keep))
    _print_finished(train_tunnel(plan, out, None if quiet else _lines(plan.name, plan.recipe.n_steps)))


@app.command("eval", epilog="Example: interp tunnel eval runs/bijection-llama --length 24")
def eval_command(
    path: Annotated[str, typer.Argument(help="A checkpoint folder, or tunnel:NAME@step.")],
    n: Annotated[int, typer.Option(min=2000, max=MOST, help="Fresh sequences.")] = 4000,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the sequences.")] = 1,
    length: Annotated[
        int | None, typer.Option(max=MOST, help="Observations in a sequence, such as more than in training.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder that receives the record.")] = Path("runs"),
    quiet: QuietOption = False,
) -> None:
    """Compare a checkpoint with the exact posterior, on sequences that neither training nor its card used.

    It is the study `tunnel_evaluation`, which has more options.
    """
    from interp.cli.saved import finish
    from interp.running.spec import make_study
    from interp.running.study import run_study

    from ..networks.weights import open_tunnel

    open_tunnel(path)  # its error speaks of tunnels
    study = make_study("tunnel_evaluation", {"tunnel": path, "n": n, "length": length, "seed": seed})
    finish(run_study(study, out=out, quiet=quiet), quiet, verbose=True)


@app.command("sweep", epilog="Example: interp tunnel sweep bijection --arch llama,phi --kv-heads 4,2")
def sweep_command(
    task: TaskArgument,
    arch: Annotated[str | None, typer.Option(help="Architectures, such as gpt-neox,llama.")] = None,
    kv_heads: Annotated[str | None, typer.Option(help="Key-value heads, such as 4,2.")] = None,
    window: Annotated[str | None, typer.Option(help="Attention windows in tokens, such as 24,6.")] = None,
    depths: Annotated[str | None, typer.Option(help="Numbers of layers, such as 2,3.")] = None,
    d_model: Annotated[str | None, typer.Option(help="Widths of the residual stream, such as 32,64.")] = None,
    vary: Annotated[
        list[str] | None, typer.Option(help="field=A,B: further settings to vary; repeat. Lists as JSON: V=[4,8].")
    ] = None,
    crossed: Annotated[
        bool, typer.Option("--crossed", help="Train every combination; else vary one setting at a time.")
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, max=MOST, help="How often each combination is trained.")] = 1,
    set_: SetOption = None,
    keep: KeepOption = None,
    out: Annotated[Path, typer.Option(help="Folder of the sweep; the same one resumes.")] = Path("runs/sweep"),
    quiet: QuietOption = False,
) -> None:
    """Train networks that differ in one setting at a time, and tabulate them.

    The first value of each setting is the reference. All have the same seeds. The same command resumes.
    """
    kind = _task(task)
    from ..plans.sweep import SWEEP_NAME, cells, run_sweep

    named = {"arch": arch, "n_kv_heads": kv_heads, "window": window, "n_layers": depths, "d_model": d_model}
    more = read_settings(vary).items()
    varied = {
        name: value if isinstance(value, list) else [*map(read_value, split_commas(str(value)))]
        for name, value in by_name([*((n, words) for n, words in named.items() if words is not None), *more]).items()
    }
    swept = cells(kind, read_settings(set_), varied, seeds, crossed=crossed, keep=_keep(keep))
    plans = [plan.name for cell in swept for plan in cell.plans.values()]

    def on_begin(plan: "TrainingPlan") -> "OnStep | None":
        where = f"training {plans.index(plan.name) + 1} of {len(plans)}, {plan.name}"
        return None if quiet else _lines(where, plan.recipe.n_steps)

    table = run_sweep(task, swept, out, on_begin)
    print_sweep(table)
    print(out / SWEEP_NAME)
    if any(cell["failures"] for cell in table["cells"]):
        raise typer.Exit(1)


@app.command("rebuild", epilog="Example: interp tunnel rebuild bijection-gpt-neox")
def rebuild_command(
    names: Annotated[list[str] | None, typer.Argument(help="Shipped tunnels; all if left out.")] = None,
    out: Annotated[Path | None, typer.Option(help="Keep the rebuilt checkpoints in this folder.")] = None,
    quiet: QuietOption = False,
) -> None:
    """Train the shipped checkpoints again from their cards; exit code 1 if a figure misses its tolerance.

    As many train at once as there are cores, the longest first.
    """
    import tempfile
    from functools import partial

    from interp.loading.sources import shipped_tunnels
    from interp.records.tunnel_card import read_card
    from interp.system.child_processes import in_processes

    shipped = shipped_tunnels()
    for name in names or []:
        named("shipped tunnel", name, shipped)
    n_failed = 0
    asked = sorted(names or shipped, key=lambda name: -read_card(shipped[name]).core_seconds)
    with tempfile.TemporaryDirectory() as scratch:
        work = partial(_rebuilt, shipped=shipped, out=out or Path(scratch), quiet=quiet)
        for i, result in in_processes(work, asked, f"rebuilding {len(asked)} tunnels"):
            print_figures(result.rebuilt.figures, asked[i])
            print(f"{asked[i]}: {result.in_words()}")
            n_failed += bool(result.failures)
    if n_failed:
        raise typer.Exit(1)


def _rebuilt(name: str, shipped: Mapping[str, Path], out: Path, quiet: bool) -> "Rebuild":
    from interp.records.tunnel_card import read_card
    from interp.registry import load_entry

    from ..plans.rebuild import rebuild

    card = read_card(shipped[name])
    on_step = None if quiet else _lines(name, card.recipe["n_steps"])
    return rebuild(shipped[name], load_entry("tunnel", card.task), out / name, on_step)


def _print_finished(training: "FinishedTraining") -> None:
    if training.stage < training.n_stages:
        stage = f"stage {training.stage} of {training.n_stages}"
        print(f"warning: the curriculum ended at {stage}: the network has not seen the task itself. Train longer, or "
              "raise gate_bits.", file=sys.stderr)  # fmt: skip
    card, errors = training.card, ("kl_bits", "mae_per_sequence_bits")
    print_figures(card.figures, f"{card.name}, {card.n_parameters:,} parameters, {card.core_seconds:.0f} core-seconds")
    rows = ((name, *(f"{found[error]:.5f}" for error in errors)) for name, found in card.baselines.items())
    show_table("without looking at the sequence", ("predictor", "KL, bits", "entropy error, bits"), rows)
    print(training.folder)


def _task(name: str) -> Any:
    """The task of this name; the registry calls it a tunnel."""
    from interp.registry import entries, load_entry

    if name not in entries("tunnel"):
        raise UnknownName("task", name, entries("tunnel"))
    return load_entry("tunnel", name)


def _keep(words: str | None) -> "Keep":
    return "log" if words == "log" else read("--keep", tuple[int, ...], words or ())


def _lines(what: str, n_steps: int) -> "OnStep":
    """A callback that prints the progress of a training every few seconds."""
    printed = time.monotonic()

    def say(state: "TrainingState") -> None:
        nonlocal printed
        waited = time.monotonic() - printed
        if waited < _SECONDS_BETWEEN_LINES and state.step < n_steps:
            return
        printed += waited
        left = (n_steps - state.step) * state.core_seconds / state.step
        print(
            f"{what}: step {state.step} of {n_steps}, stage {state.stage + 1}, "
            f"KL about {state.excess_bits:.4f} bits, {left:.0f} s left",
            file=sys.stderr,
            flush=True,
        )

    return say
