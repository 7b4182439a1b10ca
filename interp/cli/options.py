"""Options that several commands share."""

from typing import Annotated

import typer

from interp.cli import completion as completing

ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        help="Alias, hub id (@revision), local folder, or tunnel:NAME (@step).",
        autocompletion=completing.models,
    ),
]
DtypeOption = Annotated[str | None, typer.Option(help="float32, bfloat16 or float16.")]
DeviceOption = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 ...")]
DeviceMapOption = Annotated[str | None, typer.Option(help="`auto` spreads a large model over devices.")]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Only go on with what was stopped; the same command does so without it too.")
]
QuantisedOption = Annotated[
    bool, typer.Option("--allow-quantised", help="Measure quantised weights, rounded as they are.")
]
PickleOption = Annotated[
    bool,
    typer.Option(
        "--allow-pickle",
        help="Read pickled weights. A pickle can run code hidden in it, with your rights: for sources you trust alone.",
    ),
]
OwnCodeOption = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Run the Python code that comes with the model, with your rights. Read it first, and name a @revision.",
    ),
]
ProbesOption = Annotated[
    list[str] | None,
    typer.Option("--probe", "-p", help="Probes of the run, as for `interp run`.", autocompletion=completing.probes),
]
PromptsOption = Annotated[
    str | None, typer.Option(help="Prompts of the run, as for `interp run`.", autocompletion=completing.prompts)
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Option of a probe: PROBE.field=value; repeat for more.",
        autocompletion=completing.probe_settings,
    ),
]
