"""A file or folder is there whole or not at all, whatever stops the program that writes it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interp.errors import RecordError


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


def refuse_taken(folder: Path, what: str) -> None:
    """Raise `RecordError` where there is something already."""
    if folder.exists():
        raise RecordError(
            asked=f"writing {what} {folder.name}",
            found="a file or folder of this name exists",
            fix="Choose another place, or move the old one away.",
        )


@contextmanager
def writing_folder(folder: Path, what: str) -> Iterator[Path]:
    """The same of a folder that is not there yet. `what` is written, in words: `RecordError` says why it cannot be."""
    refuse_taken(folder, what)
    draft = folder.with_name(f".{folder.name}.writing")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.mkdir(parents=True)
        yield draft
        draft.rename(folder)
    except OSError as error:
        raise RecordError(
            asked=f"writing {what} to {folder}",
            found=error.strerror or str(error),
            fix="Check free space and permissions there, or choose another folder.",
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
