"""The only lookup of what is pluggable, by entry point: probes, studies, prompt sets, tunnels and the rest.

Ours and everybody else's are registered in the same way. A name given twice is an error; a plug-in that fails to
import fails loudly.
"""

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
    """Every registered name of a kind with its entry point, sorted; nothing is imported."""
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
    """The registered object; an unknown name lists the nearest, one that cannot be imported its package.

    Names out of files come here too: nothing is imported but what is registered.
    """
    return _imported(kind, named(kind, name, entries(kind)))


def load_named(kind: Kind, words: str) -> Any:
    """What the user, and no file, has named: a registered object, or `module:Object`, registered or not.

    Modules of the current folder are found too.
    """
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
