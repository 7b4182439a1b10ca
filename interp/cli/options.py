"""Options of commands: those of a run are made of `interp.options`, and some commands take a few of them."""

from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_args

import typer

from interp.cli import completion as completing
from interp.options import OPTIONS, RunOptions
from interp.settings import split_settings

_COMPLETED: Mapping[str, Callable[..., list[str]]] = {
    "model": completing.models,
    "probes": completing.probes,
    "settings": completing.probe_settings,
    "prompts": completing.prompts,
}


def told(name: str, **changes: Any) -> Any:
    """What the command line shows of an option of a run, for a command that reads it in its own way."""
    option = OPTIONS[name]
    shown = {"help": option.help, "min": option.least, "autocompletion": _COMPLETED.get(name)}
    return typer.Option(*filter(None, (option.flag, option.short)), **shown | changes)


ModelOption = Annotated[str, told("model")]
PromptsOption = Annotated[str | None, told("prompts")]
RevisionOption = Annotated[str | None, told("revision")]
DtypeOption = Annotated[str | None, told("dtype")]
DeviceOption = Annotated[str | None, told("device")]
DeviceMapOption = Annotated[str | None, told("device_map")]
OwnCodeOption = Annotated[bool, told("trust_remote_code")]
PickleOption = Annotated[bool, told("allow_pickle")]
QuantisedOption = Annotated[bool, told("allow_quantised")]
SeedOption = Annotated[int, told("seed")]
ResumeOption = Annotated[bool, told("resume")]
QuietOption = Annotated[bool, told("quiet")]


def with_run_options(*left_out: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a run in the place of its first parameter, a `RunOptions`.

    A parameter of the command's own stands in the place of an option of its name.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        _, *given = signature(command).parameters.values()
        own = {each.name: each.replace(kind=Parameter.KEYWORD_ONLY) for each in given}
        made = {field.name: _parameter(field) for field in fields(RunOptions) if field.name not in left_out}

        @wraps(command)
        def called(**words: Any) -> None:
            mine = {name: words.pop(name) for name in own}
            command(_read(words), **mine)

        called.__dict__["__signature__"] = Signature([*(made | own).values()])
        return called

    return decorate


def _parameter(field: Field[Any]) -> Parameter:
    """An option as typer reads it from a signature; None where no word says what the field has by default."""
    kind = OPTIONS[field.name].kind or get_args(field.type)[0]
    is_word = isinstance(field.default, str | int)
    annotation = Annotated[kind if is_word else kind | None, told(field.name)]
    default = field.default if is_word else None
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _read(words: Mapping[str, Any]) -> RunOptions:
    from interp.running.choose_probes import probe_names

    given = {name: OPTIONS[name].read(word) for name, word in words.items() if word is not None}
    if "settings" in given:
        probes = probe_names(given.get("probes", RunOptions.probes))
        given["settings"] = split_settings(given["settings"], list(probes))
    return RunOptions(**given)
