"""What a system refuses a command: full disks, names too long, a full output, letters that a terminal lacks."""

import errno
import io
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from interp.system.whole_files import FAULTS, telling
from interp.words import printable

_LONGEST = 200


_OURS = re.compile("(\x1b\\[[0-9;]*m|\r)")
"""The colours of tables and help, and the return of a progress bar to the start of its line."""


def print_anything() -> None:
    """Whatever is printed is text: letters that a terminal lacks become `?`, and control characters are written out."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
            stream.write = _shown_by(stream.write)


def _shown_by(write: Callable[[str], int]) -> Callable[[str], int]:
    return lambda text: write("".join(x if _OURS.fullmatch(x) else printable(x) for x in _OURS.split(text)))


@contextmanager
def telling_faults() -> Iterator[None]:
    """Such an error of the block becomes a `RecordError`; any other `OSError` is a fault of the toolkit and stays."""
    try:
        try:
            yield
        finally:
            _finish_output()
    except OSError as error:
        if error.errno not in FAULTS:
            raise
        asked = shlex.join(["interp", *sys.argv[1:]])
        fix = "Check free space, permissions and the length of names, there and where the output goes."
        with telling(asked if len(asked) <= _LONGEST else f"{asked[:_LONGEST]} ...", fix):
            raise


def _finish_output() -> None:
    """Write out what was printed; where nobody takes it, `OSError`, and it is not tried again when the process ends.

    Whoever has closed a pipe wants no more, which is no error.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        if error.errno != errno.EPIPE:
            raise
