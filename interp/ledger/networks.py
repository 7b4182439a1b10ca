"""Networks that one source trains and another reads: whether those in its folder are those that its record names."""

from collections.abc import Sequence
from pathlib import Path

from interp.errors import InterpError


def networks_amiss(
    recorded: Sequence[tuple[str, str]], work: Path, pattern: str
) -> tuple[Sequence[str], Sequence[str]]:
    """Names of networks that are recorded and missing, and of those there that are not the recorded ones.

    Folders of `work` that match `pattern` are compared with `recorded`, names with the fingerprints of their weights.
    A record without names tells nothing of what it trained: everything is missing then.
    """
    known = dict(recorded)
    there = {folder.name: folder for folder in work.glob(pattern)}
    missing = sorted(known.keys() - there.keys()) if known else [pattern]
    other = sorted(name for name, folder in there.items() if known and known.get(name) != _fingerprint(folder))
    return missing, other


def _fingerprint(folder: Path) -> str | None:
    """That of the weights in a folder; None where they cannot be read."""
    from interp.loading.load import load

    try:
        return load(str(folder), check=False).fingerprint
    except InterpError:
        return None
