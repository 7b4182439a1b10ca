"""How a run says how far it is: a bar with the time left on a terminal or in a notebook, plain lines in a log.

Everything goes to standard error, so that standard output stays what the caller asked for. Stages lie in one another:
what is said inside `stage("run 2 of 5")` begins with these words, and a log has a line in ten seconds over all of it.
"""

import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from .threads import during

Report = Callable[[int, int], None]
"""Called with the number done and the number in all."""


def unheard(done: int, total: int) -> None:
    """The report of a work that nobody follows."""


def part_of(report: Report, total: int, before: int = 0) -> Report:
    """What a piece of a work of `total` things reports by, `before` of which are done when it begins."""
    return lambda done, _: report(before + done, total)


@dataclass
class _Stage:
    """Which piece of a longer work is being done, in words, and when a line of it was last said, or it began."""

    name: str
    said: float


_STAGE: ContextVar[_Stage | None] = ContextVar("stage", default=None)


def stage(name: str) -> AbstractContextManager[None]:
    """What is said inside the block begins with this name (`run 2 of 5`), after the names of the stages around it."""
    return during(_STAGE, _Stage(_in_stage(name), time.monotonic()))


def _in_stage(what: str) -> str:
    around = _STAGE.get()
    return what if around is None else f"{around.name}, {what}"


def announce(what: str, quiet: bool = False) -> None:
    """Say on standard error what comes next and takes a while without a count; `quiet` says nothing."""
    if not quiet:
        print(_in_stage(what), file=sys.stderr, flush=True)


_SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def reporting(what: str, quiet: bool = False) -> Iterator[Report]:
    """A reporter of progress on `what` for the length of the block; `quiet` says nothing."""
    if quiet:
        yield unheard
    elif sys.stderr.isatty() or _in_notebook():
        with _bar(_in_stage(what)) as report:
            yield report
    else:
        yield _lines(_in_stage(what), _STAGE.get())


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


@contextmanager
def _bar(what: str) -> Iterator[Report]:
    from tqdm import TqdmWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TqdmWarning)  # a notebook without ipywidgets shows a bar of text
        from tqdm.auto import tqdm
    pace = _Pace()
    shown = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"
    with tqdm(desc=what, leave=_in_notebook(), bar_format=shown) as bar:

        def report(done: int, total: int) -> None:
            if bar.total != total:
                bar.reset(total)
            bar.set_postfix_str(pace.left(done / total), refresh=False)
            bar.update(done - bar.n)

        yield report


class _Pace:
    """How long the rest will take by what was done since the first report: before it came what is done once.

    Where less is done than before, a new count has begun.
    """

    def __init__(self) -> None:
        self._first, self._last = (0.0, 0.0), math.inf

    def left(self, share: float) -> str:
        """The time left in words, `share` of the work being done; nothing where that cannot be said."""
        now = time.monotonic()
        if share < self._last:
            self._first = now, share
        self._last = share
        since, before = self._first
        if not before < share < 1:
            return ""
        return f"about {(now - since) * (1 - share) / (share - before):.0f} s left"


def _lines(what: str, around: _Stage | None) -> Report:
    """One line at the start, at most one every ten seconds, and one at the end; inside a stage the second alone.

    So a log of a thousand short runs has no line for every part of each.
    """
    began, pace, paced = time.monotonic(), _Pace(), around or _Stage(what, -math.inf)

    def report(done: int, total: int) -> None:
        now = time.monotonic()
        left = pace.left(done / total)
        is_end = done >= total and around is None
        if now - paced.said < _SECONDS_BETWEEN_LINES and not is_end:
            return
        paced.said = now
        parts = f"{what}: {done} of {total} after {now - began:.0f} s", left
        print(", ".join(filter(None, parts)), file=sys.stderr, flush=True)

    return report
