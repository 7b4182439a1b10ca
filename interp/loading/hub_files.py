"""The files of a model: in a folder, in the hub's local cache, or on the hub.

Missing files of the hub are fetched into the hub library's cache, which is also used if the hub cannot be reached.
"""

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HTTPError,  # of whichever HTTP library the hub's is built on
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import tqdm

from interp.errors import ModelError
from interp.loading.gguf_file import GgufContent, read_header
from interp.system.foreign_files import is_folder

SECONDS_TO_ANSWER = 10.0
CONFIG = "config.json"
_BROKEN_WIRE = (HTTPError, OSError, EntryNotFoundError)
"""What the hub library raises if files cannot be found or fetched."""


class _Bar(tqdm):
    """A progress bar on terminals only, never in logs."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings | {"disable": None})


@dataclass(frozen=True)
class ModelFiles:
    """The `names` of the files of one model, which are in `folder` once fetched.

    `main` is the configuration, or a GGUF file. `hub_id` and `revision` (the commit) are set for a model of the hub;
    `is_online`: the hub answered. The last three fields are what the user allows.
    """

    folder: Path
    names: frozenset[str]
    main: str = CONFIG
    hub_id: str | None = None
    revision: str | None = None
    is_online: bool = False
    trust_remote_code: bool = False
    allow_pickle: bool = False
    allow_quantised: bool = False

    @property
    def gguf(self) -> str | None:
        """The GGUF file, with configuration, weights and tokenizer, or None."""
        return None if self.main.endswith(".json") else self.main

    @cached_property
    def header(self) -> GgufContent:
        """The header of the GGUF file, which is fetched."""
        self.fetch([self.main])
        return read_header(self.folder / self.main)

    @property
    def origin(self) -> str:
        """Their name in messages."""
        return self.hub_id or str(self.folder / self.gguf if self.gguf else self.folder)

    def fetch(self, names: Iterable[str]) -> None:
        """Fetch the named files into `folder`, except those that are there."""
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
        try:
            snapshot_download(self.hub_id, revision=self.revision, allow_patterns=missing, tqdm_class=_Bar)
        except _BROKEN_WIRE as error:
            raise _refusal(self.hub_id, None, missing[0], error) from error


def files_in_folder(folder: Path, main: str = CONFIG) -> ModelFiles:
    """The files of a local folder; raises `ModelError` if the folder, or its main file, does not exist."""
    asked = f"the files in {folder}"
    if not is_folder(folder):
        found = "it is a file" if os.path.lexists(folder) else "there is no such folder"
        raise ModelError(asked=asked, found=found, fix="Give the folder that `save_pretrained` wrote.")
    names = _listing(folder)
    if main not in names:
        nearest = sorted(names, key=lambda name: (not name.endswith(Path(main).suffix), name))
        example = next((f", such as {folder / name}" for name in nearest if name.endswith(".gguf")), "")
        others = f", or name a GGUF file{example}" if main == CONFIG else ""
        raise ModelError(
            asked=asked,
            found=f"there is no {main} in it ({', '.join(nearest[:5]) or 'no files'})",
            fix="Give the folder of the model, and this one as --adapter."
            if "adapter_config.json" in names
            else f"Give the folder with {main} in it{others}.",
        )
    return ModelFiles(folder, names, main)


def files_on_hub(hub_id: str, revision: str | None = None, main: str = CONFIG) -> ModelFiles:
    """The files of a hub repository at a revision (default `main`), from the hub or else from its local cache.

    Raises `ModelError` if there is no access, no such repository or revision, no main file, or no network and no cache.
    """
    try:
        info = HfApi().model_info(hub_id, revision=revision, timeout=SECONDS_TO_ANSWER)
        # By the revision's name, so that the cache also notes its commit for the next load offline.
        fetched = hf_hub_download(hub_id, main, revision=revision)
    except _BROKEN_WIRE as error:
        cached = cached_files(hub_id, revision, main)
        if cached is None:
            raise _refusal(hub_id, revision, main, error) from error
        return cached
    folder = Path(fetched).parent
    names = _listing(folder) | {entry.rfilename for entry in info.siblings or ()}
    return ModelFiles(folder, names, main, hub_id, folder.name, is_online=True)


def cached_files(hub_id: str, revision: str | None = None, main: str = CONFIG) -> ModelFiles | None:
    """The files of a repository in the hub's local cache; None if the main file of this revision is not there."""
    try:
        folder = Path(hf_hub_download(hub_id, main, revision=revision, local_files_only=True)).parent
    except LocalEntryNotFoundError:
        return None
    return ModelFiles(folder, _listing(folder), main, hub_id, folder.name)


def _listing(folder: Path) -> frozenset[str]:
    return frozenset(entry.name for entry in folder.iterdir() if entry.is_file())


def _refusal(hub_id: str, revision: str | None, file: str, error: Exception) -> ModelError:
    found, fix = _explained(error, file, f"https://huggingface.co/{hub_id}")
    return ModelError(asked=f"the model {f'{hub_id}@{revision}' if revision else hub_id}", found=found, fix=fix)


def _explained(error: Exception, file: str, page: str) -> tuple[str, str]:
    if isinstance(error, GatedRepoError):
        fix = f"Accept its conditions at {page}, then log in: `hf auth login` (or HF_TOKEN)."
        return "it is gated, and the hub does not let you read it", fix
    if isinstance(error, RevisionNotFoundError):
        fix = f"Its branches are at {page}/tree/main (Pythia: step0, step1, ... step143000)."
        return "the repository has no such revision", fix
    if isinstance(error, RepositoryNotFoundError):
        return (
            "the hub has no public repository of this name, and there is no local folder of it either",
            "Check the spelling (`interp list models` shows the short names); a private one needs `hf auth login`.",
        )
    if isinstance(error, EntryNotFoundError) and isinstance(error, HfHubHTTPError):
        return f"the repository has no {file}", f"Its files are at {page}/tree/main; name another one."
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        fix = "Log in (again) with `hf auth login`." if status in (401, 403) else "Try again in some minutes."
        return f"the hub answered with the error {status}", fix
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "the disk is full", f"Free some space, or set HF_HUB_CACHE (now {constants.HF_HUB_CACHE})."
    if isinstance(error, PermissionError):
        return f"the cache cannot be written ({error})", "Set HF_HUB_CACHE to a folder that is yours."
    is_offline = isinstance(error, OfflineModeIsEnabled) or isinstance(error.__cause__, OfflineModeIsEnabled)
    why = "HF_HUB_OFFLINE is set" if is_offline else f"the hub cannot be reached ({_innermost(error)})"
    return (
        f"{why}, and it is not in the cache {constants.HF_HUB_CACHE}",
        "Load it once with a network, or copy the cache from a machine that has it and set HF_HUB_CACHE.",
    )


def _innermost(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": " + os.linesep)
