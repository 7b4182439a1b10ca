"""`interp programs`: list, show, rebuild, noise. Heavy modules are imported inside the commands."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from interp.errors import InterpError
from interp.settings import LARGEST_SEED

app = typer.Typer(
    help="Programs compiled to weights, whose mechanism is known.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.command("list", epilog="Example: interp programs list chain lookup")
def list_command(
    names: Annotated[list[str] | None, typer.Argument(help="Programs; all if left out.")] = None,
) -> None:
    """List the shipped programs with their variables, idle heads and origin."""
    from interp.loading.sources import shipped_programs

    from .task import Program

    for name in names or shipped_programs():
        program = Program(name)
        idle = len(program.card["idle_heads"])
        typer.echo(f"program:{name:20} {', '.join(program.columns)}; {idle} idle heads; from {program.card['origin']}")


@app.command("rebuild", epilog="Example: interp programs rebuild --python /tmp/tracr/bin/python")
def rebuild_command(
    names: Annotated[list[str] | None, typer.Argument(help="Programs; all if left out.")] = None,
    python: Annotated[Path | None, typer.Option(help="Another Python, which has Tracr.")] = None,
) -> None:
    """Compile programs again and compare with the shipped files, bit for bit."""
    from interp.loading.sources import shipped_programs

    from .task import read_program

    homes = shipped_programs()
    for name in names or ():
        read_program(name)
    with tempfile.TemporaryDirectory() as folder:
        compiler, script = str(python or sys.executable), str(Path(__file__).with_name("compiling.py"))
        done = subprocess.run(
            [compiler, script, folder, *(names or homes)], capture_output=True, text=True, check=False
        )
        others = [
            f"{name}/{path.name}"
            for name in names or homes
            for path in sorted(Path(folder, name).glob("*"))
            if path.read_bytes() != (homes[name] / path.name).read_bytes()
        ]
    if done.returncode:
        found = f"{compiler} could not: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
        fix = "Install Tracr (`pip install 'interp[programs]'`), or name another Python with --python."
    elif others:
        found = f"other bytes than those shipped: {', '.join(others)}"
        fix = "Use the versions of constraints.txt; else the programs or the compiler changed."
    else:
        typer.echo(f"{len(names or homes)} programs, the same bit for bit")
        return
    raise InterpError(asked="compiling the programs again", found=found, fix=fix)


@app.command("noise", epilog="Example: interp programs noise frac_prevs --rotate --seed 1 --out runs/rotated")
def noise_command(
    name: Annotated[str, typer.Argument(help="A shipped program.")],
    out: Annotated[Path, typer.Option(help="Folder that receives the model; load it by its path.")],
    rotate: Annotated[bool, typer.Option("--rotate", help="Rotate the residual stream into a random basis.")] = False,
    dimensions: Annotated[
        int | None, typer.Option(help="Superposition: fewer dimensions than the program has directions.")
    ] = None,
    weight_noise: Annotated[float, typer.Option(min=0, help="Noise added, relative to each matrix's deviation.")] = 0.0,
    distractors: Annotated[
        int, typer.Option(min=0, max=1000, help="Heads added per layer whose output nothing reads.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of all noise.")] = 0,
) -> None:
    """Write a program with noise as in trained models; its card still states the exact mechanism."""
    from .noise import Noise, write_noisy

    write_noisy(name, Noise(rotate, dimensions, weight_noise, distractors, seed), out)
    typer.echo(f"{out}")
