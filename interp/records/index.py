"""All records below a folder with their answers, and the reason for each that cannot be read."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from interp.errors import InterpError, UsageError
from interp.records.answers import answers
from interp.records.record import RunRecord, open_run
from interp.records.unfinished import PARTIAL
from interp.registry import load_entry
from interp.system.foreign_files import readable

DEEPEST = 4
"""The depth of folders that are searched."""

_RECORD, _LEDGER, _PAGES = "run.json", "ledger.json", ("report.html", "ledger.html")


@dataclass(frozen=True)
class Entry:
    """One record: `path` from the listed folder, its page if there is one, and questions with their answers.

    `compares` are the paths of the records in a comparison, `compared_in` those of the comparisons of a record.
    """

    path: str
    record: RunRecord
    answers: tuple[tuple[str, str], ...]
    n_bytes: int
    page: str | None = None
    compares: tuple[str, ...] = ()
    compared_in: tuple[str, ...] = ()


@dataclass(frozen=True)
class Listed:
    """The contents of a folder: records, newest first, ledgers by path, and other folders with the reason."""

    folder: Path
    entries: tuple[Entry, ...]
    ledgers: tuple[tuple[str, str | None], ...]
    left_out: tuple[tuple[str, str], ...]
    n_unfinished: int

    @property
    def n_bytes(self) -> int:
        return sum(entry.n_bytes for entry in self.entries)


def list_records(folder: str | Path) -> Listed:
    """List the records below `folder`; `UsageError` if there are none."""
    root = Path(folder)
    if not root.is_dir():
        found = "it is a file" if root.exists() else "there is no such folder"
        raise UsageError(asked=f"an index of {root}", found=found, fix="Give a folder with runs, such as runs.")
    found = list(_homes(root, 0))
    entries: list[Entry] = []
    left_out: list[tuple[str, str]] = []
    ledgers: list[tuple[str, str | None]] = []
    for home, reason in found:
        path = home.relative_to(root).as_posix()
        if reason is not None:
            left_out.append((path, reason))
        elif (home / _RECORD).is_file():
            try:
                entries.append(_entry(path, home))
            except InterpError as error:
                left_out.append((path, error.found))
        else:
            ledgers.append((path, _page(path, home)))
    if not found:
        raise UsageError(
            asked=f"an index of {root}", found="no folder in it has a record", fix="Give a folder with runs."
        )
    partial = root / PARTIAL
    return Listed(
        folder=root,
        entries=_linked(root, sorted(entries, key=lambda e: (e.record.created, e.path), reverse=True)),
        ledgers=tuple(sorted(ledgers)),
        left_out=tuple(sorted(left_out)),
        n_unfinished=sum(child.is_dir() for child in partial.iterdir()) if partial.is_dir() else 0,
    )


def _homes(folder: Path, depth: int) -> Iterator[tuple[Path, str | None]]:
    """Folders with a record or ledger, and those without, with the reason; hidden ones are skipped."""
    if any((folder / name).is_file() for name in (_RECORD, _LEDGER)):
        yield folder, None
        return
    try:
        children = sorted(c for c in folder.iterdir() if not c.name.startswith(".") and c.is_dir())
    except OSError as error:
        yield folder, error.strerror or str(error)
        return
    inside = [each for c in children if depth < DEEPEST and not c.is_symlink() for each in _homes(c, depth + 1)]
    inside += [(c, None) for c in children if c.is_symlink() and (c / _RECORD).is_file()]
    if depth > 0 and not any(reason is None for _, reason in inside):
        yield folder, f"there is no {_RECORD} in it"
    else:
        yield from inside


def _page(path: str, home: Path) -> str | None:
    return next(((Path(path) / name).as_posix() for name in _PAGES if (home / name).is_file()), None)


def _entry(path: str, home: Path) -> Entry:
    record = open_run(home)
    with readable(f"the record {home}", "Repeat the run.", found="its numbers cannot be printed"):
        sentences = tuple((answer.question, answer.said) for answer in answers(record, "the model"))
    n_bytes = sum(os.lstat(Path(at) / name).st_size for at, _, names in os.walk(home) for name in names)
    return Entry(path, record, sentences, n_bytes, _page(path, home))


def _linked(root: Path, entries: list[Entry]) -> tuple[Entry, ...]:
    """Link comparisons and their runs, by the path that a comparison names, or by the folder's name."""
    by_place = {(root / e.path).resolve(): e.path for e in entries}
    by_name: Mapping[str, str] = {Path(e.path).name: e.path for e in entries}
    compares: dict[str, tuple[str, ...]] = {}
    for e in entries:
        named = e.record.parameters.get("comparison", {}).get("runs", ())
        places = [Path(str(run)) for run in named] if isinstance(named, list | tuple) else []
        found = [by_place.get(place.resolve()) or by_name.get(place.name) for place in places]
        compares[e.path] = tuple(path for path in found if path is not None)
    compared_in = {e.path: tuple(path for path, runs in compares.items() if e.path in runs) for e in entries}
    return tuple(replace(e, compares=compares[e.path], compared_in=compared_in[e.path]) for e in entries)


def index_runs(folder: str | Path = "runs") -> Path:
    """Write `index.html` into a folder of runs: model, probes, answers, date and size of each, with links.

    Args:
        folder: The folder. Damaged records are listed with the reason that they cannot be read.

    Returns:
        The path of the page.

    Raises:
        UsageError: There is no such folder.
        RecordError: The page cannot be written.

    Examples:
        >>> interp.index_runs("runs").name
        'index.html'
    """
    return load_entry("report", "index")(list_records(folder))
