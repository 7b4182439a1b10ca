"""Whether there is a file or folder of a name that somebody gave; of one that is too long there is none."""

import os
from pathlib import Path


def is_file(name: str | Path) -> bool:
    return os.path.isfile(name)  # noqa: PTH113 (`Path.is_file` raises before Python 3.14)


def is_folder(name: str | Path) -> bool:
    return os.path.isdir(name)  # noqa: PTH112
