"""What the shell offers on TAB for a name: probes, prompt sets, models, studies, tasks, and settings of the first.

Every press of TAB starts a process, so nothing heavy is imported: names come from the entry points, fields from the
class that is named, shipped tunnels from the folder `checkpoints` beside the module of their task or its folder, and
programs from the folders in that beside theirs, unread.
Whatever a name turns out not to be is refused when the command runs.
"""

import os
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from interp.registry import Kind, entries, load_entry
from interp.settings import field_words, split_commas

_WORDS, _AT = "COMP_WORDS", "COMP_CWORD"
_before_break = ""
"""What bash holds to be words of their own in front of the one it completes."""


def probes(incomplete: str) -> list[str]:
    """Probes and the two groups of them, behind the last comma."""
    return _listed([*entries("probe"), "all", "everything"], incomplete)


def prompts(incomplete: str) -> list[str]:
    """Registered prompt sets; files are completed by the shell where none fits."""
    return _starting([*entries("prompt")], incomplete)


def models(incomplete: str) -> list[str]:
    """Aliases, shipped tunnels and programs, behind the last comma."""
    from interp.loading.aliases import ALIASES

    shipped = [*(f"tunnel:{name}" for name in _tunnels()), *(f"program:{name}" for name in _programs())]
    found = _listed([*ALIASES, *shipped], _before_break + incomplete)
    return [name.removeprefix(_before_break) for name in found]


def studies(incomplete: str) -> list[str]:
    """Registered studies."""
    return _starting([*entries("study")], incomplete)


def tasks(incomplete: str) -> list[str]:
    """Tasks of wind tunnels."""
    return _starting([*entries("tunnel")], incomplete)


def probe_settings(ctx: typer.Context, incomplete: str) -> list[str]:
    """`PROBE.field=` of the probes that are named, else `PROBE.` of all; behind `=` the words that the field takes."""
    asked = _before_break + incomplete
    probe, dot, _ = asked.partition(".")
    known = [name for name in split_commas(ctx.params.get("probes")) if name in entries("probe")] or [*entries("probe")]
    chosen = [name for name in known if (name == probe if dot else name.startswith(probe))]
    if not dot and chosen == [*entries("probe")]:
        return [f"{name}." for name in chosen]
    return _settings({f"{name}.": load_entry("probe", name) for name in chosen}, asked)


def study_settings(ctx: typer.Context, incomplete: str) -> list[str]:
    """`field=` of the study that is named; behind it the words that the field takes."""
    # An option that still lacks its value leaves the arguments before it unread.
    name = next((word for word in (ctx.params.get("name"), *ctx.args) if word in entries("study")), None)
    return _settings({"": load_entry("study", name)} if name else {}, _before_break + incomplete)


def mend_bash_words() -> None:
    """Bash ends a word at the colon of `tunnel:NAME` and the `=` of a setting, and replaces only what follows: so must
    the answer.

    Does nothing unless bash is asking.
    """
    global _before_break
    if os.environ.get("_INTERP_COMPLETE") != "complete_bash":
        return
    asked = os.environ.get(_WORDS, "").split()[: int(os.environ.get(_AT, "0")) + 1]
    at = next((i for i in (len(asked) - 1, len(asked) - 2) if i > 1 and asked[i] in (":", "=")), None)
    if at is None:
        return
    option = [asked[at - 1]] if asked[at - 1].startswith("-") else []  # of `--probe=NAME` only NAME is completed
    _before_break = "" if option else asked[at - 1] + asked[at]
    os.environ[_WORDS] = " ".join([*asked[: at - 1], *option, *asked[at + 1 :]])
    os.environ[_AT] = str(at - 1 + len(option))


def _settings(owners: dict[str, Any], asked: str) -> list[str]:
    """Fields that begin as asked; of a single one its words, since the shell would set a space behind a bare `=`."""
    known = {before + field: words for before, cls in owners.items() for field, words in field_words(cls).items()}
    fitting = [field for field in known if f"{field}=".startswith(asked) or asked.startswith(f"{field}=")]
    if len(fitting) != 1:
        return [f"{field}=" for field in fitting]
    (field,) = fitting
    defaults = {before + f.name: f.default for before, cls in owners.items() for f in fields(cls)}
    default = [str(defaults[field])] if isinstance(defaults[field], int | float | str) else []
    offered = _starting([f"{field}={word}" for word in known[field] or default], asked)
    return [word.removeprefix(_before_break) for word in offered or ([] if "=" in asked else [f"{field}="])]


def _listed(names: list[str], incomplete: str) -> list[str]:
    """Names for the last part of a list with commas; what stands before it is kept."""
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in _starting(names, last) if name not in before.split(",")]


def _starting(names: list[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _tunnels() -> list[str]:
    from interp.records.tunnel_card import CARD_NAME

    homes = {home for origin in _origins("tunnel") for home in origin.parents[:2]}
    return sorted(card.parent.name for home in homes for card in (home / "checkpoints").glob(f"*/{CARD_NAME}"))


def _programs() -> list[str]:
    return sorted(card.parent.name for origin in _origins("program") for card in origin.parent.glob("*/*/program.json"))


def _origins(kind: Kind) -> list[Path]:
    """The files of the modules that entry points of a kind name, nothing imported of them."""
    modules = {entry.module for entry in entries(kind).values()}
    return [Path(spec.origin) for module in modules if (spec := find_spec(module)) and spec.origin]
