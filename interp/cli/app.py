"""The command line. Heavy modules are imported inside the commands: `interp --help` does not touch torch."""

import gc
import re
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer._click.core import Context
from typer.core import TyperGroup

import interp
from interp.cli import completion as completing
from interp.cli import lens as lenses
from interp.cli import saved
from interp.cli.demo import YOUR_MODEL, demo
from interp.cli.faults import print_anything, refuse_nowhere, translating_faults, translating_usage_errors
from interp.cli.options import (
    ALL,
    MODEL,
    QuietOption,
    VerboseOption,
    options_given,
    panel_of,
    split_names,
    with_run_options,
)
from interp.errors import InterpError, UsageError
from interp.options import OPTIONS, RunOptions
from interp.registry import entries, load_entry
from interp.settings import LARGEST_SEED, MOST, split_commas, split_settings
from interp.system.foreign_files import is_file
from interp.system.signals import handling_signals


class _Pluggable(TyperGroup):
    """The commands of interp, and groups that packages register as `interp.commands`, which are imported when named."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted([*super().list_commands(ctx), *entries("command")], key=("help", "version").__contains__)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self.commands or cmd_name not in entries("command"):
            return _named_kinds(super().get_command(ctx, cmd_name))
        group = typer.main.get_command(load_entry("command", cmd_name))
        group.name = cmd_name
        return _named_kinds(group)

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **how: Any) -> Any:
        refuse_nowhere(args)
        with translating_usage_errors():
            return super().make_context(info_name, args, *more, **how)

    def invoke(self, ctx: Any) -> Any:
        with translating_usage_errors():
            return super().invoke(ctx)


def _named_kinds(command: Any) -> Any:
    """The command with the kinds of its options as help shows them: none for flags, that of one value for lists."""
    for part in filter(None, (command, *getattr(command, "commands", {}).values())):
        context = Context(part)
        for each in part.get_params(context):
            if each.metavar is None and each.param_type_name == "option":
                kind = "" if each.is_flag else each.display_type(context)
                each.metavar = re.sub(r"list\[(.+)\]| range", r"\1", kind)
    return command


app = typer.Typer(
    name="interp",
    cls=_Pluggable,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.add_typer(lenses.app, name="lens")
app.add_typer(saved.app)


def _show_version(is_asked: bool) -> bool:
    if is_asked:
        print(f"interp {version('interp')}")
        raise typer.Exit
    return is_asked


@app.callback()
def options_of_all(
    is_asked: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and stop.")
    ] = False,
) -> None:
    """Measure the geometry of uncertainty in language models: every number with its interval and its null."""


@app.command(epilog="Example: interp run --model pythia-410m --probe manifold --set manifold.scaling=zscored")
@with_run_options(ALL)
def run(
    asked: RunOptions,
    models: list[str],
    sets: list[str],
    revisions: Annotated[
        str | None,
        typer.Option(
            help="Revisions with commas: a run of each. For `dynamics`, the same as --checkpoints.",
            rich_help_panel=panel_of("revisions"),
        ),
    ] = None,
    from_: Annotated[Path | None, typer.Option("--from", help="Repeat the run of this record.")] = None,
    verbose: VerboseOption = False,
) -> None:
    """Run probes on a model: one page and one record. Without a model, on a shipped network with a known posterior.

    The same command resumes an interrupted run, and repeats a finished one. Several models, revisions or prompt sets
    get a record each and one page that compares them; there, finished records in the same folder are used again.
    """
    from interp.running.run import run_as_asked
    from interp.running.spec import RunSpec

    given, steps = options_given(), split_commas(revisions)
    shown = None if from_ else demo(asked, given)
    if from_ is None and (len(models) > 1 or len(sets) > 1 or steps):
        return _run_many(models, steps, sets, replace(asked, prompts=None) if sets else asked, verbose)
    again = RunSpec.of(interp.open_run(from_)).on(asked, given) if from_ else shown or asked
    saved.finish(run_as_asked(again), asked.quiet, verbose)
    if shown and not asked.quiet:
        print(YOUR_MODEL)


def _run_many(
    models: list[str], revisions: Sequence[str], prompts: Sequence[str], asked: RunOptions, verbose: bool
) -> None:
    """Print the outcome of each model, then the comparison; exit code 1 if one failed."""
    quiet = asked.quiet

    def say(outcome: Any) -> None:
        if outcome.record is None or not quiet:
            print(outcome, file=sys.stderr if outcome.record is None else sys.stdout, flush=True)

    many = interp.run_many(
        models, revisions=revisions, prompts=prompts, options=asked, out=str(asked.out), on_outcome=say, quiet=quiet
    )
    if many.comparison is not None:
        saved.finish_comparison(many.comparison, quiet, verbose)
    elif len(many.records) == 1:
        saved.finish(many.records[0], quiet, verbose)
    if many.failures:
        raise typer.Exit(1)


@app.command(epilog="Example: interp plan --model mistral-7b --probe causal")
@with_run_options([name for name in ALL if name not in ("out", "quiet")])
def plan(asked: RunOptions) -> None:
    """Print what a run will cost before it starts: passes, memory, disk and time. No weights are needed."""
    from interp.cli.tables import print_plan

    print_plan(interp.plan(**vars(asked)))


@app.command(epilog="Example: interp study sticky_chain --set n_steps=1000")
def study(
    name: Annotated[
        str,
        typer.Argument(help="Name of a study; `interp list studies` shows them.", autocompletion=completing.studies),
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="field=value of the study; repeat for more."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder that receives the record; the same one resumes.")] = Path("runs"),
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Run a study, which trains or compares models of its own: one page and one record."""
    from interp.running.spec import make_study
    from interp.running.study import run_study

    asked = make_study(name, split_settings(set_ or [], [name])[name])
    saved.finish(run_study(asked, out=out, quiet=quiet), quiet, verbose)


@app.command(epilog="Example: interp certify manifold --scale smoke")
def certify(
    probes: Annotated[
        list[str],
        typer.Argument(help="Names of probes, or module:Class of your own.", autocompletion=completing.probes),
    ],
    scale: Annotated[
        Literal["smoke", "default", "full"],
        typer.Option(help="smoke: about 90 simulations; default: 90 of each kind; full: 230 of each."),
    ] = "default",
    seed: Annotated[int, typer.Option(help="Seed of the simulations.", min=0, max=LARGEST_SEED)] = 0,
    set_: Annotated[list[str] | None, typer.Option("--set", help="PROBE.field=value; repeat for more.")] = None,
    out: Annotated[Path, typer.Option(help="Folder that receives the records; the same one resumes.")] = Path("runs"),
    quiet: QuietOption = False,
) -> None:
    """Certify probes: how often a headline is significant without an effect, and with a planted one.

    Each gets a record and a one-screen page, with the hash of the probe's code.
    """
    from interp.cli.tables import print_certificate

    settings = split_settings(set_ or [], probes)
    for probe in probes:
        record = interp.certify(probe, settings=settings[probe], scale=scale, seed=seed, out=out, quiet=quiet)
        if not quiet:
            print_certificate(record)
        print(record.page)


@app.command(epilog="Example: interp replicate paper3 --model pythia-410m --model phi-2")
def replicate(
    paper: Annotated[
        str,
        typer.Argument(
            help="paper1 (wind tunnels), paper2 (gradients), paper3 (models), newer (2026), all; or a ledger's folder."
        ),
    ],
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help="Language model to measure paper3's claims on; repeat for more.",
            autocompletion=completing.models,
        ),
    ] = None,
    row: Annotated[list[int] | None, typer.Option("--row", help="Number of a claim to test; repeat for more.")] = None,
    scale: Annotated[
        Literal["tiny", "smoke", "default", "paper"],
        typer.Option(help="tiny: one claim of each kind; smoke: minutes; paper: the papers' sizes, for a GPU."),
    ] = "default",
    out: Annotated[Path, typer.Option(help="Folder that receives the ledger; the same one resumes.")] = Path("runs"),
    allow_quantised: Annotated[bool, typer.Option("--allow-quantised", help=OPTIONS["allow_quantised"].help)] = False,
    quiet: QuietOption = False,
) -> None:
    """Measure the papers' claims again: a page with every claim, the paper's number, yours, and an outcome.

    Given the folder of a ledger instead of a paper, today's rules judge its numbers; only missing ones are measured.
    """
    from interp.cli.tables import print_ledger

    models = split_names(model or [])
    done = interp.replicate(
        paper, models=models, rows=row or [], scale=scale, out=out, allow_quantised=allow_quantised, quiet=quiet
    )
    if not quiet:
        print_ledger(done.ledger)
    print(done.page)
    for source in done.ledger.failures:
        print(f"FAILED: {source.title}: {source.reason}", file=sys.stderr)
    if done.ledger.failures:
        raise typer.Exit(1)


@app.command("list", epilog="Example: interp list models")
def list_(
    what: Annotated[
        Literal["models", "families", "probes", "studies", "prompts", "tunnels"] | None,
        typer.Argument(help="What to list; without it, what there is to list."),
    ] = None,
    name: Annotated[str | None, typer.Argument(help="A probe or study, to explain it.")] = None,
):
    """List models, families of models, probes, studies, prompt sets or wind tunnels.

    `interp list probes manifold` explains the fields of one probe, and the numbers that it finds.
    """
    from interp.cli import tables as terminal

    if what is None:
        return print("interp list models | families | probes [NAME] | studies [NAME] | prompts | tunnels")
    if what in ("probes", "studies"):
        kind = "probe" if what == "probes" else "study"
        return terminal.print_questions(kind) if name is None else terminal.print_fields(kind, name)
    if name is not None:
        raise UsageError(
            asked=f"interp list {what} {name}",
            found="only a probe or a study has fields to explain",
            fix=f"`interp list {what}` lists all.",
        )
    {
        "models": terminal.print_models, "families": terminal.print_families, "prompts": terminal.print_prompts,
        "tunnels": terminal.print_tunnels,
    }[what]()  # fmt: skip


@app.command(epilog="Example: interp check --model phi-2 --oracle transformer-lens")
@with_run_options(MODEL)
def check(
    asked: RunOptions,
    oracle: Annotated[
        Literal["transformer-lens", "nnsight"] | None,
        typer.Option(help="Compare with this library on the same weights."),
    ] = None,
) -> None:
    """Load a model and check that each captured tensor is what its name says. Exit code 1 if one is not."""
    from interp.cli.tables import print_checks
    from interp.loading.load import load_as_asked
    from interp.self_check.selfcheck import run_checks

    interp.show_versions()
    loaded = load_as_asked(asked, check=False, text=False)
    checks = list(run_checks(loaded))
    if oracle is not None:
        from interp.self_check.witnesses import check_against

        checks += check_against(oracle, loaded)
    print_checks(loaded, checks)
    if not all(c.passed for c in checks):
        raise typer.Exit(1)


@app.command(
    epilog="Example: interp generate --model smollm2-135m --prompts texts.txt --edit edits.json --page words.html"
)
@with_run_options((*MODEL, "prompts", "n_pool", "seed", "text_column", "chat", "window", "edits"))
def generate(
    asked: RunOptions,
    n_tokens: Annotated[int, typer.Option(help="New tokens of each text, at most.", min=1, max=MOST)] = 20,
    temperature: Annotated[
        float, typer.Option(help="0: the most likely token; above 0, tokens are sampled.", min=0)
    ] = 0.0,
    page: Annotated[Path | None, typer.Option(help="HTML file to write.")] = None,
) -> None:
    """Continue prompts with the model as it is and edited, side by side; by default five of a built-in set."""
    from interp.cli.terminal import show_table
    from interp.loading.load import load_as_asked
    from interp.prompting.pools import prompts_for
    from interp.records.unfinished import refuse_unwritable
    from interp.running.generate import HEAD

    if page is not None:
        refuse_unwritable(page, is_file=True)
    model = load_as_asked(asked)
    are_built_in = asked.prompts is None or (isinstance(asked.prompts, str) and not is_file(asked.prompts))
    n_pool = asked.n_pool or (5 if are_built_in else None)
    pool = prompts_for(model, replace(asked, n_pool=n_pool))
    found = interp.generate(
        model, pool, asked.edits, n_tokens=n_tokens, temperature=temperature, seed=asked.seed, window=asked.window
    )
    show_table(found.title, HEAD, found.rows(), whole=slice(0))
    if page is not None:
        print(found.write(page))


@app.command("help", epilog="Example: interp help run")
def help_(
    command: Annotated[list[str] | None, typer.Argument(help="Words of a command: run, tunnel train.")] = None,
) -> None:
    """Show the options of a command, as its --help does."""
    app([*(command or ()), "--help"], prog_name="interp")


@app.command("version", epilog="Example: interp version")
def version_() -> None:
    """Print versions and devices, for a bug report."""
    interp.show_versions()


def main() -> None:
    """The entry point: an `InterpError` is printed with its exit code, other errors keep their trace.

    Ctrl-C and SIGTERM end it within two seconds with exit codes 130 and 143, and print what is saved.
    """
    gc.set_threshold(200_000, 20, 100)  # seldom: scanning all that torch imports takes a tenth of a short run
    print_anything()
    warnings.formatwarning = lambda words, *_, **__: f"warning: {words}\n"
    try:
        with handling_signals(), translating_faults():
            app(standalone_mode=True)
    except InterpError as error:
        from interp.system.processes import name_of_process

        print(f"interp{name_of_process()}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
