"""A file is there whole or not at all, whatever stops the program that writes it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def writing(path: Path, by: int | None = None) -> Iterator[Path]:
    """A draft beside the file, which takes its place at the end of the block; one that failed leaves nothing.

    What a killed process has left is written over; `by`, its number, keeps a process that may have company apart.
    """
    draft = path.with_name(f".{path.name}.writing" if by is None else f".{path.name}.{by}.writing")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
