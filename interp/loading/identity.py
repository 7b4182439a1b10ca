"""Which files a run reads its models from: what has to be the same where finished work stands for a run."""

import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from interp.editing.edit_files import resolve_edits
from interp.edits import PatternsOf
from interp.loading.adapter import locate_adapter
from interp.loading.hub_files import ModelFiles
from interp.loading.sources import kept_steps, locate, source_of
from interp.loading.weights import weight_files
from interp.model import Model
from interp.options import RunOptions
from interp.system.array_files import digest_of_file
from interp.system.digest import digest_of
from interp.system.plain_numbers import path as plain_path

_SMALL = (".json", ".txt", ".model", ".jinja", ".py", ".tiktoken", ".safetensors")
"""Endings of files beside the weights that say what a model is."""

IS_WINDOWS = os.name == "nt"
_HEAD = 1 << 16
"""Bytes at the beginning of a file; of safetensors the names, shapes and places of tensors."""


def files_identity(options: RunOptions) -> dict[str, str]:
    """For the model of a run, its adapter, its lens and the donors of its edits: the commit on the hub, or a digest.

    A model in memory has none. The digest is of every file's name, size, inode, time of its last change (`st_ctime`,
    which no program sets) and first 64 kB; on Windows, where that time is another, of all its content. A file that is
    written, replaced, copied or moved has another one, whatever its date says.
    """
    if isinstance(options.model, Model):
        return {}
    source = source_of(options)
    found = {"model": _digest(source.files, digest_of(source.card))}
    if options.lens is not None:  # one that is not there is refused where it is opened
        lens = plain_path(str(options.lens))
        found["lens"] = getattr(options.lens, "digest", "") or identity_of([lens] if lens.is_file() else [])
    if options.adapter is not None:
        found["adapter"] = _digest(locate_adapter(options.adapter))
    donors = [edit.donor for edit in resolve_edits(options.edits) if isinstance(edit, PatternsOf)]
    return found | {f"donor {name}": _digest(locate(name).files) for name in donors if isinstance(name, str)}


def _digest(files: ModelFiles, card: str = "") -> str:
    if files.revision is not None:
        return files.revision
    names = {files.gguf} if files.gguf else {name for name in files.names if name.endswith(_SMALL)}
    if files.allow_pickle and not files.gguf:
        names |= {*weight_files(files)}
    steps = [path for step in kept_steps(files.folder).values() for path in step.iterdir()]
    return identity_of([*(files.folder / name for name in names), *steps], card)


def identity_of(paths: Iterable[Path], card: str = "") -> str:
    """A digest of what `files_identity` looks at in each of these files."""
    return sha256("\n".join([card, *map(_line, sorted(paths))]).encode()).hexdigest()


def _line(path: Path) -> str:
    """What tells a file from every other, but for where it lies."""
    if IS_WINDOWS:
        return f"{path.name} {digest_of_file(path)}"
    stat = path.stat()
    with path.open("rb") as file:
        head = sha256(file.read(_HEAD)).hexdigest()
    return f"{path.name} {stat.st_size} {stat.st_dev} {stat.st_ino} {stat.st_ctime_ns} {head}"
