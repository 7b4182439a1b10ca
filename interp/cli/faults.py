"""Errors of a command as messages: options that typer rejects, a full disk, letters that a terminal lacks."""

import errno
import io
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from textwrap import shorten

from typer._click import exceptions

from interp.errors import InterpError, UnknownName, UsageError
from interp.formatting import printable
from interp.system.habits import option_of
from interp.system.values import refuse_half_character
from interp.system.whole_files import FAULTS, telling

_OURS = re.compile("(\x1b\\[[0-9;]*m|\r)")
"""Control characters that interp prints: colours, and the carriage return of a progress bar."""


def print_anything() -> None:
    """Print letters that a terminal lacks as `?`, control characters as escapes, and to a closed stream nothing."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
        setattr(sys, name, stream)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
            stream.write = _shown_by(stream.write)


def _shown_by(write: Callable[[str], int]) -> Callable[[str], int]:
    return lambda text: write("".join(x if _OURS.fullmatch(x) else printable(x) for x in _OURS.split(text)))


def refuse_nowhere(words: Sequence[str]) -> None:
    """Raise `UsageError` where the current folder is gone, and for an empty word, which as a path would be it."""
    asked = shlex.join(["interp", *words])
    try:
        Path.cwd()
    except OSError as error:  # importing torch there ends the process
        raise UsageError(asked=asked, found="the current folder has been removed", fix="Go to another one.") from error
    for before, word in pairwise(["", *words]):
        flag = before if word == "" else word.removesuffix("=") if re.fullmatch("--[a-z-]+=", word) else None
        if flag is not None and flag not in ("--figures", "--tables"):
            found = "a value is empty, as that of a variable that the shell does not know is"
            raise UsageError(asked=asked, found=found, fix="Give a value, or leave it out.")


@contextmanager
def translating_usage_errors() -> Iterator[None]:
    """Raise usage errors of typer as `UsageError`, with the nearest known name."""
    try:
        yield
    except exceptions.NoArgsIsHelpError:
        raise
    except exceptions.UsageError as error:
        raise _in_our_words(error) from error
    except UnicodeEncodeError as error:  # typer looks up a file of such a name
        refuse_half_character("the command line", error.object)
        raise


def _in_our_words(error: exceptions.UsageError) -> UsageError:
    command = error.ctx.command_path if error.ctx else "interp COMMAND"
    known = (
        [flag for each in error.ctx.command.params for flag in (*each.opts, *each.secondary_opts)] if error.ctx else []
    )
    options, of = [flag for flag in known if flag.startswith("-")], command.removeprefix("interp ")
    if isinstance(error, exceptions.NoSuchOption):
        return UnknownName(f"option of {of}", error.option_name, options, option_of(error.option_name))
    if error.ctx and (found := re.match("No such command '(.*?)'", error.message)):
        kind = "command" if of == "interp" else f"command of {of}"
        known = error.ctx.command.list_commands(error.ctx)  # pyrefly: ignore[missing-attribute]
        return UnknownName(kind, found[1], known)
    message, param = error.format_message(), getattr(error, "param", None)
    if param is not None and not isinstance(error, exceptions.MissingParameter):
        message, of = (
            error.message.removeprefix("Value error, "),
            f"{of} {param.opts[0] if param.opts[0] in options else ''}".strip(),
        )
    if found := re.match("'(.*)' is not one of (.*)", message):
        return UnknownName(f"value of {of}", found[1], re.findall("'(.*?)'", found[2]))
    fix = f"`{command} --help` shows what it takes."
    if message.startswith("Got unexpected extra") and "--prompt" in options:
        fix = f"A text follows --prompt, a probe --probe. {fix}"
    return UsageError(asked=of, found=f"{message[0].lower()}{message[1:].rstrip('.')}", fix=fix)


@contextmanager
def translating_faults() -> Iterator[None]:
    """Raise errors of a full disk or memory as `InterpError`; other errors are faults of interp and stay."""
    try:
        try:
            yield
        finally:
            _finish_output()
    except OSError as error:
        if error.errno not in FAULTS:
            raise
        fix = "Check free space, permissions and the length of names, there and where the output goes."
        with telling(_command(), fix):
            raise
    except (MemoryError, RuntimeError) as error:
        from interp.reading.batches import ran_out  # imports torch, as the failed command has

        if not ran_out(error):
            raise
        found = f"memory ran out ({(str(error).splitlines() or [type(error).__name__])[0]})"
        fix = "Ask for fewer or shorter sequences at a time, or use a larger machine."
        raise InterpError(asked=_command(), found=found, fix=fix) from error


def _command() -> str:
    return shorten(shlex.join(["interp", *sys.argv[1:]]), 200, placeholder=" ...")


def _finish_output() -> None:
    """Flush standard output; after an `OSError` it goes nowhere. A closed pipe is no error."""
    try:
        sys.stdout.flush()
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        if error.errno != errno.EPIPE:
            raise
