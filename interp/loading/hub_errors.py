"""What the hub library raises, in words: what stands between us and a repository of the hub, and what to do."""

import errno
import os
from dataclasses import dataclass

from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)


class Damaged(OSError):
    """A file that is not what the hub says it is."""


@dataclass(frozen=True)
class Repository:
    """A repository of the hub as messages speak of it.

    `kind` is what it holds, `spelling` how its name is spelled; `fetched` is what fetches it into `cache`, the folder
    that the environment variable `variable` names.
    """

    kind: str
    page: str
    spelling: str
    fetched: str
    cache: str
    variable: str


def explain(error: Exception, repository: Repository) -> tuple[str, str]:
    """What was found, and what to do; the order is from the special to the general."""
    if isinstance(error, GatedRepoError):
        fix = f"Accept its conditions at {repository.page}, then log in: `hf auth login` (or HF_TOKEN)."
        return "it is gated, and the hub does not let you read it", fix
    if isinstance(error, RevisionNotFoundError):
        fix = f"Its branches are at {repository.page}/tree/main (Pythia: step0, step1, ... step143000)."
        return "the repository has no such revision", fix
    if isinstance(error, RepositoryNotFoundError):
        return (
            f"the hub has no public {repository.kind} of this name, and there is no local folder of it either",
            f"Check the spelling ({repository.spelling}); a private one needs `hf auth login`.",
        )
    if isinstance(error, HfHubHTTPError):
        return _explain_status(error.response.status_code, error)
    if is_damage(error):
        found = f"a file was damaged in every download ({str(error).splitlines()[0]})"
        return found, "Try again later, or over another network; nothing damaged was kept."
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "the disk is full", f"Free some space, or set {repository.variable} (now {repository.cache})."
    if isinstance(error, PermissionError):
        return f"the cache cannot be written ({error})", f"Set {repository.variable} to a folder that is yours."
    why = "HF_HUB_OFFLINE is set" if _is_offline(error) else f"the hub cannot be reached ({_innermost(error)})"
    return (
        f"{why}, and it is not in the cache {repository.cache}",
        f"Load it once with a network{repository.fetched}, or copy the cache from a machine that has it and set "
        f"{repository.variable}.",
    )


def is_damage(error: Exception) -> bool:
    """Whether a file arrived that is not whole, by our own check or the hub library's."""
    return isinstance(error, Damaged) or "Consistency check failed" in str(error)


def _explain_status(status: int, error: HfHubHTTPError) -> tuple[str, str]:
    if isinstance(error, EntryNotFoundError):
        return "the repository has no config.json", "It has no transformers model; name another one."
    if status in (401, 403):
        return f"the hub refused access ({status})", "Log in again with `hf auth login`, or renew HF_TOKEN."
    if status == 429:
        says = error.response.headers.get("Retry-After", "")
        wait = f"Wait {says} seconds" if says.isdigit() else "Wait some minutes"
        return "the hub answers only so many requests (429)", f"{wait}, or log in with `hf auth login`."
    return f"the hub answered with the error {status}", "Try again in some minutes; what was fetched is kept."


def _is_offline(error: Exception) -> bool:
    return isinstance(error, OfflineModeIsEnabled) or isinstance(error.__cause__, OfflineModeIsEnabled)


def _innermost(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": " + os.linesep)
