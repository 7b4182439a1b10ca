"""What a system refuses a command: full disks, names too long, a full output, letters that a terminal lacks."""

import errno
import io
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from interp.system.whole_files import FAULTS, telling

_LONGEST = 200


def print_anything() -> None:
    """What the terminal or file that output goes to has no letters for is printed as `?`, not an error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


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
