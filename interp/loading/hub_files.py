"""The files of a model: in a folder, in the hub's local cache, or on the hub.

The hub is asked what a revision holds; what is missing is fetched into the hub library's own cache. Where the hub
cannot be reached, or refuses, the cache serves; where there is no cache and the hub stumbles, it is asked again. What
was fetched is compared with the checksum that the hub names: nothing damaged stays in the cache.
"""

import hashlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from huggingface_hub import HfApi, ModelInfo, constants, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    HTTPError,  # of whichever HTTP library the hub's is built on
    LocalEntryNotFoundError,
)
from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

from interp.errors import ModelError
from interp.loading.hub_errors import Damaged, Repository, explain, is_damage

T = TypeVar("T")

SECONDS_TO_ANSWER = 10.0
PAUSES = (1.0, 4.0)
"""Seconds before the hub is asked a second and a third time."""

LONGEST_WAIT = 60.0
"""Seconds that are waited at most where the hub says when to come back."""

_CONFIG = "config.json"
_BROKEN_WIRE = (HTTPError, OSError, EntryNotFoundError)
"""What the hub library raises when something between us and the files goes wrong."""


@dataclass(frozen=True)
class ModelFiles:
    """The files of one model: `names` are those there are, and they lie in `folder` once fetched.

    `hub_id` and `revision` (the commit) are set for a model of the hub; `is_online` says that the hub answered. `gguf`
    names the one file that holds configuration, weights and tokenizer, where it is one of that kind.
    """

    folder: Path
    names: frozenset[str]
    hub_id: str | None = None
    revision: str | None = None
    is_online: bool = False
    gguf: str | None = None

    @property
    def origin(self) -> str:
        """What to call them in a message."""
        return self.hub_id or str(self.folder / self.gguf if self.gguf else self.folder)

    def fetch(self, names: Iterable[str]) -> None:
        """See to it that the named files lie in `folder`; what is there already costs nothing."""
        missing = [name for name in names if not (self.folder / name).exists()]
        if not missing:
            return
        if self.hub_id is None or not self.is_online:
            raise ModelError(
                asked=f"the model {self.origin}",
                found=f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
                fix="Load it once with a network to complete the cache."
                if self.hub_id
                else "Copy the folder again, with all its files.",
            )
        hub_id = self.hub_id

        def fetch() -> None:
            with _bars_on_terminals_only():
                snapshot_download(hub_id, revision=self.revision, allow_patterns=missing)
            for name in missing:
                _refuse_damaged(self.folder / name)

        try:
            _persistently(fetch)
        except _BROKEN_WIRE as error:
            raise _refusal(hub_id, None, error) from error


def files_in_folder(folder: Path, gguf: str | None = None) -> ModelFiles:
    """The files of a local folder; `ModelError` where it does not exist, or has no configuration or GGUF file."""
    asked = f"the model in {folder}"
    if not folder.is_dir():
        found = "it is a file" if folder.exists() else "there is no such folder"
        raise ModelError(asked=asked, found=found, fix="Give the folder that `save_pretrained` wrote.")
    names = _listing(folder)
    if gguf is not None and gguf not in names:
        held = ", ".join(sorted(name for name in names if name.endswith(".gguf"))) or "none"
        raise ModelError(
            asked=f"the file {gguf} in {folder}", found=f"its GGUF files are: {held}", fix="Name one of them."
        )
    if gguf is None and _CONFIG not in names:
        shown = ", ".join(sorted(names)[:5]) or "no files"
        raise ModelError(
            asked=asked,
            found=f"there is no {_CONFIG} in it ({shown})",
            fix="Give the folder of the model, and this one as --adapter."
            if "adapter_config.json" in names
            else "Give the folder that `save_pretrained` wrote, with config.json in it, or name a GGUF file.",
        )
    return ModelFiles(folder, names, gguf=gguf)


def files_on_hub(hub_id: str, revision: str | None = None, gguf: str | None = None) -> ModelFiles:
    """The files of a hub repository at a revision (default `main`), from the hub or else from its local cache.

    Raises `ModelError`: no access, no such repository or revision, no network and not cached, no configuration (or no
    such GGUF file, which takes its place).
    """
    first = gguf or _CONFIG

    def ask() -> tuple[ModelInfo, str]:
        info = HfApi().model_info(hub_id, revision=revision, timeout=SECONDS_TO_ANSWER)
        # By the revision's name, not its commit: this also notes which commit it is, for the next load offline.
        with _bars_on_terminals_only():
            config = hf_hub_download(hub_id, first, revision=revision)
        _refuse_damaged(Path(config))
        return info, config

    is_cached = cached_files(hub_id, revision, gguf) is not None
    try:
        info, config = ask() if is_cached else _persistently(ask)
    except _BROKEN_WIRE as error:
        cached = cached_files(hub_id, revision, gguf)
        if cached is None:
            raise _refusal(hub_id, revision, error) from error
        return cached
    folder = Path(config).parent
    names = _listing(folder) | {entry.rfilename for entry in info.siblings or ()}
    return ModelFiles(folder, names, hub_id, folder.name, is_online=True, gguf=gguf)


def cached_files(hub_id: str, revision: str | None = None, gguf: str | None = None) -> ModelFiles | None:
    """What the hub's local cache holds of a repository; None where it holds no configuration of this revision."""
    try:
        config = hf_hub_download(hub_id, gguf or _CONFIG, revision=revision, local_files_only=True)
    except LocalEntryNotFoundError:
        return None
    folder = Path(config).parent
    return ModelFiles(folder, _listing(folder), hub_id, folder.name, gguf=gguf)


def _persistently(ask: Callable[[], T]) -> T:
    """What the hub answers, asked again where it stumbles: its own errors, a connection that breaks, a damaged file."""
    for pause in PAUSES:
        try:
            return ask()
        except _BROKEN_WIRE as error:
            wait = _seconds_to_wait(error, pause)
            if wait is None:
                raise
            time.sleep(wait)
    return ask()


def _seconds_to_wait(error: Exception, pause: float) -> float | None:
    """None where asking again would not help: a refusal, no network, a full disk."""
    if isinstance(error, HfHubHTTPError):
        status, says = error.response.status_code, error.response.headers.get("Retry-After", "")
        if status == 429 and says.isdigit() and float(says) <= LONGEST_WAIT:
            return float(says)
        return pause if status >= 500 else None
    return pause if is_damage(error) or type(error).__name__ in _BROKEN_OFF else None


_BROKEN_OFF = ("RemoteProtocolError", "ReadError")
"""What the HTTP library calls a connection that ends in the middle; a hub that is not there is another matter."""


def _refuse_damaged(path: Path) -> None:
    """Raise `Damaged`, and take it out of the cache, where a file has not the checksum that the hub names it by.

    The cache keeps content under its checksum: SHA-256 for large files, the SHA-1 of git for small ones.
    """
    if not path.is_symlink():
        return
    blob = path.parent / path.readlink()
    kind = {64: "sha256", 40: "sha1"}.get(len(blob.name))
    is_in_cache = blob.resolve().is_relative_to(Path(constants.HF_HUB_CACHE).resolve())
    if kind is None or not is_in_cache:
        return
    digest = hashlib.new(kind, b"" if kind == "sha256" else f"blob {blob.stat().st_size}\0".encode())
    with blob.open("rb") as file:
        while part := file.read(1 << 22):
            digest.update(part)
    if digest.hexdigest() != blob.name:
        path.unlink()
        blob.unlink()
        raise Damaged(f"{path.name} has not the checksum that the hub names")


def _listing(folder: Path) -> frozenset[str]:
    return frozenset(entry.name for entry in folder.iterdir() if entry.is_file())


def _refusal(hub_id: str, revision: str | None, error: Exception) -> ModelError:
    repository = Repository(
        "repository", f"https://huggingface.co/{hub_id}", "`interp list models` shows the short names", "",
        str(constants.HF_HUB_CACHE), "HF_HUB_CACHE",
    )  # fmt: skip
    found, fix = explain(error, repository)
    return ModelError(asked=f"the model {f'{hub_id}@{revision}' if revision else hub_id}", found=found, fix=fix)


@contextmanager
def _bars_on_terminals_only() -> Iterator[None]:
    """The hub library draws its bars of downloads on a terminal, and nothing into a log."""
    is_silenced = not sys.stderr.isatty() and not are_progress_bars_disabled()
    if is_silenced:
        disable_progress_bars()
    try:
        yield
    finally:
        if is_silenced:
            enable_progress_bars()
