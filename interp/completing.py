"""What the shell offers on TAB for a name: probes, prompt sets, models, studies, tasks.

Every press of TAB starts a process, so nothing heavy is imported: names come from the entry points, and shipped tunnels
from the folder `checkpoints` beside the module of their task, unread. Whatever a name turns out not to be is refused
when the command runs.
"""

import os
from importlib.util import find_spec
from pathlib import Path

from interp.registry import entries

_WORDS, _AT = "COMP_WORDS", "COMP_CWORD"
_before_colon = ""
"""What bash holds to be words of their own in front of the one it completes."""


def probes(incomplete: str) -> list[str]:
    """Probes and the two groups of them, behind the last comma."""
    return _listed([*entries("probe"), "all", "everything"], incomplete)


def prompts(incomplete: str) -> list[str]:
    """Registered prompt sets; files are completed by the shell where none fits."""
    return _starting([*entries("prompt")], incomplete)


def models(incomplete: str) -> list[str]:
    """Aliases and shipped tunnels, behind the last comma."""
    from interp.loading.aliases import ALIASES

    found = _listed([*ALIASES, *(f"tunnel:{name}" for name in _tunnels())], _before_colon + incomplete)
    return [name.removeprefix(_before_colon) for name in found]


def studies(incomplete: str) -> list[str]:
    """Registered studies."""
    return _starting([*entries("study")], incomplete)


def tasks(incomplete: str) -> list[str]:
    """Tasks of wind tunnels."""
    return _starting([*entries("tunnel")], incomplete)


def mend_bash_words() -> None:
    """Bash takes the colon of `tunnel:NAME` for the end of a word and replaces only what follows: so must the answer.

    Does nothing unless bash is asking.
    """
    global _before_colon
    if os.environ.get("_INTERP_COMPLETE") != "complete_bash":
        return
    asked = os.environ.get(_WORDS, "").split()[: int(os.environ.get(_AT, "0")) + 1]
    colon = next((i for i in (len(asked) - 1, len(asked) - 2) if i > 1 and asked[i] == ":"), None)
    if colon is None:
        return
    _before_colon = asked[colon - 1] + ":"
    os.environ[_WORDS] = " ".join([*asked[: colon - 1], *asked[colon + 1 :]])
    os.environ[_AT] = str(colon - 1)


def _listed(names: list[str], incomplete: str) -> list[str]:
    """Names for the last part of a list with commas; what stands before it is kept."""
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in _starting(names, last) if name not in before.split(",")]


def _starting(names: list[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _tunnels() -> list[str]:
    from interp.tunnel import CARD_NAME

    modules = {entry.module for entry in entries("tunnel").values()}
    homes = {Path(spec.origin).parent for module in modules if (spec := find_spec(module)) and spec.origin}
    return sorted(card.parent.name for home in homes for card in (home / "checkpoints").glob(f"*/{CARD_NAME}"))
