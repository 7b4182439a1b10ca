"""Commands on finished runs: their pages, tables, figures and differences."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import interp
from interp.cli.options import QuietOption, VerboseOption
from interp.registry import load_entry
from interp.settings import split_commas

if TYPE_CHECKING:
    from interp.records.record import RunRecord


app = typer.Typer()


def finish(record: "RunRecord", quiet: bool, verbose: bool) -> None:
    """Print a record, and as the last line the path of its page; of several processes only the first prints."""
    from interp.system.processes import is_first_started

    if not is_first_started():
        return
    if not quiet:
        from interp.cli.tables import print_record

        print_record(record, verbose)
    print(record.page)


def finish_comparison(record: "RunRecord", quiet: bool, verbose: bool) -> None:
    """Print the differences of a comparison, then its record."""
    if not quiet:
        from interp.cli.tables import print_differences

        print_differences(record.findings["comparison"].tables["differences"])
    finish(record, quiet, verbose)


@app.command(epilog="Example: interp export runs/pythia-410m-20260101-120000 --figures pdf --tables latex --out paper")
def export(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    figures: Annotated[
        str, typer.Option(help="Formats of the figures with commas: pdf, svg, png; empty for none.")
    ] = "svg",
    tables: Annotated[str, typer.Option(help="Formats of the tables with commas: latex, csv; empty for none.")] = "csv",
    columns: Annotated[int, typer.Option(help="Columns of a paper that a figure spans: 1 or 2.", min=1, max=2)] = 1,
    out: Annotated[Path, typer.Option(help="Folder that receives the files.")] = Path("export"),
) -> None:
    """Write the figures of a run as PDF, SVG or PNG and its numbers as LaTeX or CSV, for a paper."""
    written = load_entry("report", "export")(
        interp.open_run(run), out, split_commas(figures), split_commas(tables), columns
    )
    print(f"{len(written)} files in {out}")


@app.command(epilog="Example: interp compare runs/pythia-70m-20260101-120000 runs/pythia-160m-20260101-120500")
def compare(
    runs: Annotated[list[str], typer.Argument(help="Folders of runs; the others are compared with the first.")],
    label: Annotated[list[str] | None, typer.Option(help="Label of each run, in order.")] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="Group of each run, in order; runs of one group are pooled.")
    ] = None,
    against: Annotated[
        list[str] | None, typer.Option(help="Group that each run's group is compared with, if not the first.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder that receives the comparison.")] = Path("runs"),
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Write one page that compares two runs or more, number by number and layer by layer."""
    record = interp.compare(runs, labels=label or (), groups=group or (), against=against or (), out=out, quiet=quiet)
    finish_comparison(record, quiet, verbose)


@app.command(epilog="Example: interp view runs")
def view(
    what: Annotated[Path, typer.Argument(help="A run, or a folder that holds runs.")] = Path("runs"),
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it in the browser.")] = True,
) -> None:
    """Open the page of a run, or one page over all runs of a folder with their answers side by side."""
    import webbrowser

    is_run = what.name in ("run.json", "report.html") or (what / "run.json").is_file()
    page = (interp.open_run(what).show() if is_run else interp.index_runs(what)).resolve()
    print(page)
    if browser:
        webbrowser.open(page.as_uri())


@app.command(epilog="Example: interp diff runs/pythia-70m-20260101-120000 runs/pythia-70m-20260102-120000")
def diff(
    first: Annotated[Path, typer.Argument(help="Folder of a run.")],
    second: Annotated[Path, typer.Argument(help="Folder of another run.")],
    exact: Annotated[bool, typer.Option("--exact", help="Exit code 1 if any number differs.")] = False,
) -> None:
    """Print which numbers changed between two runs, and which settings differ.

    Exit code 0 if no number changed by more than its interval, 1 if one did. A number without an interval, or an
    underpowered one, cannot be tested: its change is printed and does not count, unless --exact is given.
    """
    from interp.cli.tables import print_diff

    found = interp.diff(first, second)
    print_diff(found)
    if found.moved or (exact and not found.is_exact):
        raise typer.Exit(1)


@app.command(epilog="Example: interp power runs/pythia-410m-20260101-120000")
def power(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    every: Annotated[bool, typer.Option("--every", help="All numbers, not only the headline numbers.")] = False,
) -> None:
    """Print the smallest effect that a run's prompts find 80 times in 100, at the 5 % level, two-sided."""
    from interp.cli.tables import print_power

    print_power(interp.power(run), every)


@app.command(epilog="Example: interp report runs/pythia-410m-20260101-120000")
def report(
    run: Annotated[Path, typer.Argument(help="Folder of a run or of a ledger, or one that holds a single run.")],
) -> None:
    """Draw the page of a run or of a ledger again from its record."""
    from interp.ledger.ledger import is_ledger, show_ledger

    print(show_ledger(run) if is_ledger(run) else interp.open_run(run).show())
