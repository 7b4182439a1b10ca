"""Partial results of a run, from which the same run continues after it was stopped.

`<out>/.partial/<hash of the specification>/` has a file for every pass over prompts (the reduced activations, and the
number of batches) and for the conditions of every causal probe. Each file is replaced whole or not at all. It is used
only with the same identity: specification, weights, prompts, tokens, device and library versions. A resumed run gives
the same bytes as one that was never stopped.

Nothing is kept in the first `SECONDS` of a run. An incomplete part is written again when the last write took at most
the share `SHARE` of the time since. Runs of several processes keep nothing: they would have to resume together.
"""

import hashlib
import json
import os
import time
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from interp.errors import RecordError, UsageError
from interp.model import Model
from interp.prompt import PromptSet
from interp.system.environment import environment
from interp.system.foreign_files import is_folder, readable
from interp.system.signals import Stopped, remember
from interp.system.whole_files import remove_empty, remove_kept, writing

PARTIAL = ".partial"
SECONDS = 10.0
SHARE = 0.01

Name = tuple[str | int, ...]
Arrays = Iterable[tuple[Name, np.ndarray]]


@dataclass(frozen=True)
class Kept:
    """The contents of a file: how many items were done, and their arrays by name."""

    n_done: int
    arrays: Mapping[Name, np.ndarray]


@dataclass
class Unfinished:
    """The folder of a run's partial results; None keeps nothing."""

    folder: Path | None = None
    spec_hash: str = ""
    began: float = field(default_factory=time.monotonic)
    _next: float = -np.inf

    def stage(self, name: str, model: Model, prompts: PromptSet, ids: Sequence[np.ndarray], **more: Any) -> "Stage":
        """The file of one part of the run on this model and these prompts."""
        info = model.info
        if self.folder is None:
            return NOT_KEPT
        return self.part(name, {
            "spec": self.spec_hash,
            "weights": model.fingerprint,
            "precision": info.dtype,
            "device": info.device,
            "attention kernel": info.attention_kernel,
            "prompts": prompts.content_hash,
            "tokens": hashlib.sha256(b"|".join(np.asarray(x).tobytes() for x in ids)).hexdigest(),
            **({"lens": info.lens} if info.lens else {}),
            **more,
        })  # fmt: skip

    def part(self, name: str, identity: Mapping[str, Any]) -> "Stage":
        """The file of one part with this identity."""
        return Stage(self, name, json.loads(json.dumps(identity)))

    def may_write(self, is_whole: bool) -> bool:
        """Whether it is time for a write; see the module."""
        now = time.monotonic()
        return now >= self.began + SECONDS and (is_whole or now >= self._next)

    def wrote(self, seconds: float) -> None:
        self._next = time.monotonic() + max(SECONDS, seconds / SHARE)

    def remove(self) -> None:
        """Delete the partial results of a finished run."""
        remember("")
        if self.folder is None:
            return
        remove_kept(self.folder, r"[0-9a-f]{8}\.zip")
        remove_empty(self.folder.parent)


@dataclass(frozen=True)
class Stage:
    """One part of a run, written from time to time and when the run is stopped."""

    run: Unfinished
    name: str
    identity: Mapping[str, Any]

    @property
    def path(self) -> Path:
        return Path(self.run.folder or "") / f"{hashlib.sha256(self.name.encode()).hexdigest()[:8]}.zip"

    def load(self) -> Kept | None:
        """Earlier results; None, with a warning, if they are damaged or of another identity."""
        if self.run.folder is None:
            return None
        try:
            asked = f"the unfinished work in {self.path}"
            with readable(asked, "", found="it is damaged"), zipfile.ZipFile(self.path) as file:
                about = json.loads(file.read("said.json"))
                theirs, ours = about["identity"], {**self.identity, **_versions()}
                unlike = [name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name)]
                other = f"it belongs to other {' and '.join(unlike)}"
                if not unlike:
                    arrays = {tuple(name): _read(file, i) for i, name in enumerate(about["arrays"])}
                    remember(self._in_words(about["n_done"], about["n"], about["unit"]))
                    return Kept(about["n_done"], arrays)
        except RecordError as error:
            if isinstance(error.__cause__, FileNotFoundError):  # none, or just removed by another process
                return None
            other = error.found
        warnings.warn(f"unfinished work in {self.path} is left aside: {other}", RuntimeWarning, stacklevel=2)
        return None

    @contextmanager
    def keeping(
        self, n: int, unit: str, n_done: Callable[[], int], arrays: Callable[[], Arrays]
    ) -> Iterator[Callable[[], None]]:
        """Yield a function to call after each item, which writes if it is time. A stopped block writes once more."""

        def keep() -> None:
            if self.run.folder is not None and self.run.may_write(n_done() == n):
                self._write(n_done(), n, unit, arrays())

        try:
            yield keep
        except Stopped:
            if n_done() and self.run.folder is not None:
                self._write(n_done(), n, unit, arrays())
            raise

    def _write(self, n_done: int, n: int, unit: str, arrays: Arrays) -> None:
        began = time.perf_counter()
        identity = {**self.identity, **_versions()}
        about = {"identity": identity, "n_done": n_done, "n": n, "unit": unit}
        try:
            with writing(self.path) as draft:
                _write_zip(draft, about, arrays)
        except OSError as error:  # the run continues without partial results
            words = f"unfinished work cannot be kept in {self.run.folder} ({error.strerror or error})"
            warnings.warn(f"{words}; the run continues without", RuntimeWarning, stacklevel=2)
            self.run.folder = None
            return
        self.run.wrote(time.perf_counter() - began)
        remember(self._in_words(n_done, n, unit))

    def _in_words(self, n_done: int, n: int, unit: str) -> str:
        return f"{n_done} of {n} {unit} ({self.name}) are kept in {self.path.parent}"


NOT_KEPT = Stage(Unfinished(), "", {})
"""A part of a run that keeps nothing."""


def refuse_unwritable(out: Path, *, is_file: bool = False) -> None:
    """Raise `UsageError` if a folder, or a file, could not be written; leaves nothing behind."""
    import tempfile

    if is_file and is_folder(out):
        raise UsageError(asked=f"writing {out}", found="it is a folder", fix="Name a file in it.")
    there = out = out.absolute().parent if is_file else out
    try:
        there = next(folder for folder in (out, *out.absolute().parents) if os.path.lexists(folder))
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(bytes(1 << 12))
    except OSError as error:
        link = f" (a link to {there.readlink()})" if there.is_symlink() else ""
        found = f"{there}{link} cannot be written ({error.strerror or error})"
        raise UsageError(
            asked=f"writing under {out}", found=found, fix="Name another folder with --out, or free some space."
        ) from error


@cache
def _versions() -> dict[str, Any]:
    known = environment()
    return {"versions": known["packages"], "code": (known["code"] or {}).get("revision")}


def _write_zip(path: Path, about: Mapping[str, Any], arrays: Arrays) -> None:
    """One array in memory at a time; the format has checksums."""
    names = []
    with zipfile.ZipFile(path, "w") as file:
        for i, (name, array) in enumerate(arrays):
            names.append(name)
            with file.open(f"{i}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
        file.writestr("said.json", json.dumps({**about, "arrays": names}))


def _read(file: zipfile.ZipFile, i: int) -> np.ndarray:
    with file.open(f"{i}.npy") as member:
        array = np.lib.format.read_array(member, allow_pickle=False)
        member.read()  # to the end, where the checksum is compared
        return array
