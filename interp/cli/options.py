"""Options of commands, made from `interp.options`."""

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import Field, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_args

import typer
from typer._click.core import Context, ParameterSource
from typer._click.globals import get_current_context
from typer.core import TyperArgument
from typer.models import ArgumentInfo

from interp.cli import completion as completing
from interp.errors import UsageError
from interp.options import OPTIONS, RunOptions
from interp.registry import load_entry
from interp.settings import split_commas, split_settings
from interp.system.foreign_files import is_file, is_folder

_COMPLETED: Mapping[str, Callable[..., list[str]]] = {
    "model": completing.models,
    "probes": completing.probes,
    "prompts": completing.prompts,
}

SELDOM = frozenset({
    "gguf", "adapter", "cluster", "text_column", "chat", "bos", "attention_window", "null", "n_untrained",
    "checkpoints", "device_map", "trust_remote_code", "allow_pickle", "allow_quantised", "show_tokens",
    "revision", "edits", "window", "check",
})  # fmt: skip
"""Options that `--help` leaves to `--help-all`."""

_PANELS: Mapping[str, tuple[str, ...]] = {
    "Model": ("model", "revision", "revisions", "gguf", "adapter", "dtype", "device", "device_map", "batch_size",
              "trust_remote_code", "allow_pickle", "allow_quantised", "check"),
    "Prompts": ("prompts", "prompt", "n_pool", "per_quintile", "window", "text_column", "cluster", "chat", "bos"),
    "Probes": ("probes", "settings", "layer", "seed", "lens", "edits", "checkpoints", "attention_window", "null",
               "n_untrained"),
}  # fmt: skip
"""Options by panel of the help; the others are about the output."""


def option(name: str, **changes: Any) -> Any:
    """The typer option of an option of a run."""
    option = OPTIONS[name]
    shown: dict[str, Any] = {"help": option.help, "autocompletion": _COMPLETED.get(name)}
    shown |= {"hidden": name in SELDOM, "rich_help_panel": panel_of(name)}
    also = "--probes" if name == "probes" else None
    return typer.Option(*filter(None, (option.flag, option.short, also)), **shown | changes)


def panel_of(name: str) -> str | None:
    """The panel of the help that has an option."""
    return next((panel for panel, names in _PANELS.items() if name in names), None)


QuietOption = Annotated[bool, option("quiet")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also print every number, its controls and the notes.")
]

ALL = tuple(name for name in OPTIONS if name != "report")
"""Options of a run on the command line, which always writes the page."""

MODEL = (
    "model", "revision", "gguf", "adapter", "dtype", "device", "device_map", "trust_remote_code", "allow_pickle",
    "allow_quantised",
)  # fmt: skip
"""Options of a model."""


def with_run_options(names: Collection[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace the first parameter of a command, a `RunOptions`, by these options of a run.

    The command may take all `models` and prompt `sets` that are named; without these parameters only one of each may
    be. A command without arguments also takes the model as one. Wrong probes, prompts and models are refused before
    torch is imported, if neither hub, tokenizer nor weights are needed to know.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        _, *given = signature(command).parameters.values()
        own = {each.name: each.replace(kind=Parameter.KEYWORD_ONLY) for each in given if each.name not in _SEVERAL}
        made = {field.name: _parameter(field) for field in fields(RunOptions) if field.name in names}
        beside = {each.name: each for each in (_PROMPT, _LAYER, _HELP_ALL) if _BESIDE[each.name] in {*names, ""}}
        has_argument = any(isinstance(part, ArgumentInfo) for each in given for part in get_args(each.annotation))
        takes = {each.name for each in given} & {*_SEVERAL}
        if "model" in names and not has_argument:
            shown = typer.Argument(metavar="MODEL", help="The same as --model.", autocompletion=completing.models)
            beside["named"] = _beside("named", (list[str] if "models" in takes else str) | None, shown)

        @wraps(command)
        def called(**words: Any) -> None:
            from interp.loading.sources import refuse_wrong_models
            from interp.prompting.files import refuse_wrong_file
            from interp.running.choose_probes import choose_probes

            mine = {name: words.pop(name) for name in own}
            texts, layer, named, _ = (words.pop(name, None) for name in ("prompt", "layer", "named", "help_all"))
            if words.get("prompts") == ["-"]:
                words["prompts"], texts = None, [*(texts or ()), *_piped(words)]
            by_argument = [named] if isinstance(named, str) else named or ()
            models = split_names([*by_argument, *(words.get("model") or ())]) or [str(RunOptions.model)]
            sets = split_names(words.get("prompts") or (), is_file)
            if texts and sets:
                fix = "Leave one out, or put all texts into the file."
                raise UsageError(asked="--prompt and --prompts", found="a run reads texts or a set of them", fix=fix)
            several = {"models": models, "sets": sets}
            for name, each in several.items():
                if len(each) > 1 and name not in takes:
                    found, fix = f"this reads one {_SEVERAL[name]}", "Name one; interp run reads several."
                    raise UsageError(asked=" and ".join(each), found=found, fix=fix)
            words |= {"model": models[0], "prompts": texts or (sets[0] if sets else None)}
            asked = _read(words, layer)
            choose_probes(asked.probes, asked.settings)
            for name in sets:
                refuse_wrong_file(name, asked.text_column)
            refuse_wrong_models(models, asked.revision, asked.gguf)
            command(asked, **mine, **{name: several[name] for name in takes})

        called.__dict__["__signature__"] = Signature([*(made | own | beside).values()])
        return called

    return decorate


def options_given() -> dict[str, str]:
    """The options of a run that the command line names, and their flags."""
    context = get_current_context()
    found = {}
    for each in context.command.params:
        name = _STANDS_FOR.get(each.name or "", each.name)
        if name in OPTIONS and context.get_parameter_source(each.name or "") is not ParameterSource.DEFAULT:
            found[name] = OPTIONS[name].flag if isinstance(each, TyperArgument) else each.opts[0]
    return found


def split_names(given: Iterable[str], is_one: Callable[[str], bool] = is_folder) -> list[str]:
    """Models or prompt sets, each once, split at commas, except folders (or files) with a comma in their name."""
    parts = (part for words in given for part in ([words] if is_one(words) else split_commas(words) or [words]))
    return [*dict.fromkeys(parts)]


def _piped(words: Mapping[str, Any]) -> list[Any]:
    from interp.prompting.formats import piped_rows

    rows = piped_rows(sys.stdin.buffer.read(), words.get("text_column", RunOptions.text_column))
    if not rows:
        fix = "Pipe a text a line: `cat texts.txt | interp run --prompts -`."
        raise UsageError(asked="--prompts -", found="standard input is empty", fix=fix)
    return [dict(row.values) for row in rows]


def _show_all(ctx: Context, is_asked: bool) -> bool:
    """Show the help of a command with the options that `--help` leaves out."""
    if is_asked:
        for each in ctx.command.params:
            each.hidden = False  # pyrefly: ignore[missing-attribute]
        ctx.get_help()
        raise typer.Exit
    return is_asked


def _beside(name: str, kind: Any, shown: Any, default: Any = None) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, shown])


_HELP_ALL = _beside(
    "help_all", bool, typer.Option("--help-all", is_eager=True, callback=_show_all, help="Show all options."), False
)
_PROMPT = _beside(
    "prompt", list[str] | None,
    typer.Option("--prompt", help="A text to read; repeat for more.", rich_help_panel=panel_of("prompt")),
)  # fmt: skip
_LAYER = _beside(
    "layer", int | None,
    typer.Option("--layer", help="Layer of every probe that reads one.", rich_help_panel=panel_of("layer")),
)  # fmt: skip
_SEVERAL = {"models": "model", "sets": "prompt set"}
"""Parameters of commands that take all models or prompt sets that are named, and the word for one."""
_BESIDE = {"prompt": "prompts", "layer": "settings", "help_all": ""}
"""Further options, and the option of a run that they go with."""
_STANDS_FOR = {**_BESIDE, "named": "model", "revisions": "checkpoints"}


def _parameter(field: Field[Any]) -> Parameter:
    """An option as a parameter for typer; its default is None for lists, and if the field's is no text or number."""
    kind = OPTIONS[field.name].kind or get_args(field.type)[0]
    is_word = isinstance(field.default, str | int) and kind != list[str]
    return _beside(field.name, kind if is_word else kind | None, option(field.name), field.default if is_word else None)


def _read(words: Mapping[str, Any], layer: int | None) -> RunOptions:
    given = {name: OPTIONS[name].read(word) for name, word in words.items() if word is not None}
    if "settings" in given or layer is not None:
        from interp.running.choose_probes import probe_names

        probes = [*probe_names(given.get("probes", RunOptions.probes))]
        given["settings"] = split_settings(given.get("settings", ()), probes)
        having = [] if layer is None else [name for name in probes if hasattr(load_entry("probe", name), "layer")]
        if layer is not None and not having:
            fix = "Leave it out: these probes read every layer. `interp list probes NAME` shows the fields of one."
            raise UsageError(asked=f"--layer {layer}", found=f"no field `layer` in {', '.join(probes)}", fix=fix)
        for name in having:
            given["settings"][name].setdefault("layer", str(layer))
    return RunOptions(**given)
