"""Command lines in documents and help texts, read by the parser of the real command line without running anything."""

import re
import shlex

import typer
from typer._click.core import Command, Context

from interp.cli.app import app


def command_lines(text: str) -> list[str]:
    """Every line that calls `interp` in an indented or fenced block: without comment, prompt or launcher."""
    found = []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        called = re.match(r"(?:    |\$ )?(?:\S*/)?(interp (?:run|[a-z][a-z-]*)\b.*)$", line)
        launched = re.match(r"    (?:accelerate|torchrun) .* -m (interp .*)$", line)
        if called and (line.startswith("    ") or line.startswith("$ ")):
            found.append(called[1])
        elif launched:
            found.append(launched[1])
    return [re.split(r"\s+#\s", line)[0].strip() for line in found]


def parsed(line: str) -> Context:
    """The context of the innermost command after its words were read; raises what a wrong line would raise."""
    words = [word for word in shlex.split(line) if word not in ("...", "…")]
    command, context = typer.main.get_command(app), None
    assert words.pop(0) == "interp", line
    while hasattr(command, "get_command"):
        context = Context(command, parent=context, info_name=command.name)
        inner = command.get_command(context, words.pop(0))
        assert inner is not None, f"no such command: {line}"
        command = inner
    return command.make_context(command.name, words, parent=context)


def all_commands() -> dict[str, Command]:
    """Every command by the words that call it, those of groups from other packages included."""
    found: dict[str, Command] = {}

    def walk(command: Command, words: str, parent: Context | None) -> None:
        if not hasattr(command, "list_commands"):
            found[words] = command
            return
        context = Context(command, parent=parent, info_name=words)
        for name in command.list_commands(context):
            walk(command.get_command(context, name), f"{words} {name}", context)

    walk(typer.main.get_command(app), "interp", None)
    return found
