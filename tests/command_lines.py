"""Command lines in documents and help texts, read by the parser of the real command line without running anything."""

import re
import shlex
import textwrap

import typer
from typer._click.core import Command, Context

from interp.cli.app import app


def command_lines(text: str) -> list[str]:
    """Every line that calls `interp`, indented or fenced as `bash`: without comment, prompt or launcher."""
    fenced = re.findall(r"^ *```bash\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    found = []
    for line in re.sub(r"\\\n\s*", "", "\n".join([*map(_indented, fenced), text])).splitlines():
        called = re.match(r"(?:    |\$ )(?:\S*/)?(interp (?:run|[a-z][a-z-]*)\b.*)$", line)
        launched = re.match(r"    (?:accelerate|torchrun) .* -m (interp .*)$", line)
        found += [match[1] for match in (called, launched) if match]
    return [re.split(r"\s+#\s", line)[0].strip() for line in found]


def _indented(block: str) -> str:
    return textwrap.indent(textwrap.dedent(block), "    ")


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
