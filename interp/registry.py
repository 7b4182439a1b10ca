"""Plug-ins by entry point: probes, studies, prompt sets, tunnels and the rest, ours and those of other packages."""

import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal

from interp.errors import InterpError, named

Kind = Literal["probe", "study", "prompt", "tunnel", "family", "report", "command", "claims", "program", "simulations"]


def _group(kind: Kind) -> str:
    """The entry points of a kind: `interp.` and its plural."""
    stem = f"{kind[:-1]}ie" if kind.endswith("y") else kind.removesuffix("s")
    return f"interp.{stem}s"


@cache
def entries(kind: Kind) -> dict[str, EntryPoint]:
    """The entry points of a kind by name, sorted, without an import; `InterpError` if two share a name."""
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=_group(kind)):
        if entry.name in found and found[entry.name].value != entry.value:
            raise InterpError(
                asked=f"the {kind} {entry.name!r}",
                found=f"two packages register it: {found[entry.name].value} and {entry.value}",
                fix="Uninstall one of them, or have it renamed.",
            )
        found[entry.name] = entry
    return dict(sorted(found.items()))


def load_entry(kind: Kind, name: str) -> Any:
    """The registered object. Names from files are looked up here: only what is registered is imported."""
    return _imported(kind, named(kind, name, entries(kind)))


def load_named(kind: Kind, words: str) -> Any:
    """A registered object, or `module:Object` of any module, also of the current folder; for names from users only."""
    if ":" not in words:
        return load_entry(kind, words)
    here = str(Path.cwd())
    sys.path += [] if here in sys.path else [here]
    return _imported(kind, EntryPoint(words, words, _group(kind)))


def _imported(kind: Kind, entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        package = f" of the package {entry.dist.name}" if entry.dist else ""
        raise InterpError(
            asked=f"the {kind} {entry.name!r}",
            found=f"{entry.value}{package} cannot be imported ({error})",
            fix="Install that package again, or uninstall it."
            if entry.dist
            else "It is `module:Class` of a module that Python finds from here.",
        ) from error
