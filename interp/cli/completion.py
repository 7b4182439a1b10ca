"""What the shell offers on TAB for a name: probes, prompt sets, models, studies, tasks.

Every press of TAB starts a process, so nothing heavy is imported. Whatever a name turns out not to be is refused when
the command runs.
"""

from collections.abc import Callable, Iterable

from interp.registry import entries


def _of(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Offers names for the last part of a list with commas; what stands before it is kept."""

    def offered(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [before + comma + name for name in names() if name.startswith(last) and name not in before.split(",")]

    return offered


def _aliases() -> Iterable[str]:
    from interp.loading.aliases import ALIASES

    return ALIASES


probes = _of(lambda: [*entries("probe"), "all", "everything"])
prompts = _of(lambda: entries("prompt"))
models = _of(_aliases)
studies = _of(lambda: entries("study"))
tasks = _of(lambda: entries("tunnel"))
