"""Shell completion of names: probes, prompt sets, models, studies, tasks. Imports are light: every TAB is a process."""

from collections.abc import Callable, Iterable

from interp.registry import entries


def _of(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A completion of the last part of a list with commas."""

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
