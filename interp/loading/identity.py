"""Digests of the files that a run reads its models from: they must be the same for finished work to be reused."""

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
"""Endings of the files that define a model."""

IS_WINDOWS = os.name == "nt"
_HEAD = 1 << 16
"""Bytes read at the beginning of a file: in safetensors, names and shapes of tensors."""


def files_identity(options: RunOptions) -> dict[str, str]:
    """The commit or digest of a run's model (unless in memory), adapter, lens and donors of edits.

    The digest covers every file's name, size, inode, time of last change (`st_ctime`, which programs cannot set) and
    first 64 kB; on Windows, which lacks that time, its content. It changes when a file is written, copied or moved.
    """
    if isinstance(options.model, Model):
        return {}
    source = source_of(options)
    found = {"model": _digest(source.files, digest_of(source.card))}
    if options.lens is not None:  # opening a missing one raises later
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
    """One digest of these files, as described in `files_identity`."""
    return sha256("\n".join([card, *map(_line, sorted(paths))]).encode()).hexdigest()


def _line(path: Path) -> str:
    if IS_WINDOWS:
        return f"{path.name} {digest_of_file(path)}"
    stat = path.stat()
    with path.open("rb") as file:
        head = sha256(file.read(_HEAD)).hexdigest()
    return f"{path.name} {stat.st_size} {stat.st_dev} {stat.st_ino} {stat.st_ctime_ns} {head}"
