"""Options of commands: those of a run are made of `interp.options`, and some commands take a few of them."""

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, fields, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer._click.core import Context

from interp.cli import completion as completing
from interp.cli.early import refuse_wrong_words
from interp.errors import UsageError
from interp.options import OPTIONS, RunOptions
from interp.settings import split_commas, split_settings

_COMPLETED: Mapping[str, Callable[..., list[str]]] = {
    "model": completing.models,
    "probes": completing.probes,
    "settings": completing.probe_settings,
    "prompts": completing.prompts,
}


SELDOM = frozenset({
    "gguf", "adapter", "splits", "cluster", "text_column", "chat", "bos", "attention_window", "null", "n_untrained",
    "checkpoints", "device_map", "trust_remote_code", "allow_pickle", "allow_quantised", "show_tokens", "resume",
    "revision", "edits", "window",
})  # fmt: skip
"""Options that `--help` leaves to `--help-all`."""

_ALSO: Mapping[str, tuple[str, ...]] = {"probes": ("--probes",)}
"""Other flags that are accepted."""


def told(name: str, **changes: Any) -> Any:
    """What the command line shows of an option of a run, for a command that reads it in its own way."""
    option = OPTIONS[name]
    bounds = {} if option.least is None else {"min": option.least, "max": option.most}
    shown: dict[str, Any] = {"help": option.help, "autocompletion": _COMPLETED.get(name), **bounds}
    shown["hidden"] = name in SELDOM
    return typer.Option(*filter(None, (option.flag, option.short, *_ALSO.get(name, ()))), **shown | changes)


ResumeOption = Annotated[bool, told("resume")]
QuietOption = Annotated[bool, told("quiet")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print every number, its controls and the notes as well.")
]

LEFT = ("out", "resume", "quiet")
"""What a run leaves and says."""

ALL = tuple(name for name in OPTIONS if name != "report")
"""Those of a run; its page is what a command ends with."""

MODEL = (
    "model", "revision", "gguf", "adapter", "dtype", "device", "device_map", "trust_remote_code", "allow_pickle",
    "allow_quantised",
)  # fmt: skip
"""Those of a model alone."""


def with_run_options(names: Collection[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options of a run in the place of its first parameter, a `RunOptions`.

    A parameter of the command's own stands in the place of an option of its name.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        _, *given = signature(command).parameters.values()
        own = {each.name: each.replace(kind=Parameter.KEYWORD_ONLY) for each in given}
        made = {field.name: _parameter(field) for field in fields(RunOptions) if field.name in names}
        beside = {"help_all": _HELP_ALL} | ({"prompt": _PROMPT} if "prompts" in names else {})

        @wraps(command)
        def called(**words: Any) -> None:
            mine = {name: words.pop(name) for name in own}
            words.pop("help_all")
            texts = [*(words.pop("prompt", None) or ()), *(_piped() if words.get("prompts") == "-" else ())]
            asked = _read(words)
            named = "" if texts else str(words.get("prompts") or "")
            if texts:
                asked = replace(asked, prompts=texts)
            prompts = [named] if Path(named).is_file() else split_commas(named)
            refuse_wrong_words([str(asked.model)] if "model" in words else (), prompts, asked)
            command(asked, **mine)

        called.__dict__["__signature__"] = Signature([*(made | own | beside).values()])
        return called

    return decorate


def _piped() -> list[str]:
    """The lines of standard input, a prompt each."""
    texts = [line for line in sys.stdin.read().splitlines() if line.strip()]
    if not texts:
        fix = "Pipe a text a line: `cat texts.txt | interp run --prompts -`."
        raise UsageError(asked="--prompts -", found="standard input is empty", fix=fix)
    return texts


def _show_all(ctx: Context, is_asked: bool) -> bool:
    """Show the help of a command with the options that `--help` leaves out."""
    if is_asked:
        for each in ctx.command.params:
            each.hidden = False  # pyrefly: ignore[missing-attribute]
        ctx.get_help()
        raise typer.Exit
    return is_asked


_HELP_ALL = Parameter(
    "help_all", Parameter.KEYWORD_ONLY, default=False,
    annotation=Annotated[
        bool,
        typer.Option("--help-all", is_eager=True, callback=_show_all, help="Show the seldom needed options as well."),
    ],
)  # fmt: skip

_PROMPT = Parameter(
    "prompt", Parameter.KEYWORD_ONLY, default=None,
    annotation=Annotated[list[str] | None, typer.Option("--prompt", help="A text to read; repeat for more.")],
)  # fmt: skip


def _parameter(field: Field[Any]) -> Parameter:
    """An option as typer reads it from a signature; None where no word says what the field has by default."""
    kind = OPTIONS[field.name].kind or get_args(field.type)[0]
    is_word = isinstance(field.default, str | int)
    annotation = Annotated[kind if is_word else kind | None, told(field.name)]
    default = field.default if is_word else None
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _read(words: Mapping[str, Any]) -> RunOptions:
    given = {name: OPTIONS[name].read(word) for name, word in words.items() if word is not None}
    if "settings" in given:
        from interp.running.choose_probes import probe_names

        probes = probe_names(given.get("probes", RunOptions.probes))
        given["settings"] = split_settings(given["settings"], list(probes))
    return RunOptions(**given)
