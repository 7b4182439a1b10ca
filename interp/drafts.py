"""A file is there whole or not at all, whatever stops the program that writes it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """A draft beside the file, which takes its place at the end of the block; one that failed leaves nothing."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.writing")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
