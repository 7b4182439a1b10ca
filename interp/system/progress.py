"""Progress of a run on standard error: a bar with the time left on a terminal or in a notebook, plain lines in a log.

Inside `stage("run 2 of 5")` messages begin with these words, and a log has at most a line in ten seconds.
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


def no_report(done: int, total: int) -> None:
    """A report that prints nothing."""


def part_of(report: Report, total: int, before: int = 0) -> Report:
    """The report of a part of `total` things, `before` of which are done when it begins."""
    return lambda done, _: report(before + done, total)


@dataclass
class _Stage:
    """The name of a stage, and the time of its last line, or of its beginning."""

    name: str
    last_line: float


_STAGE: ContextVar[_Stage | None] = ContextVar("stage", default=None)


def stage(name: str) -> AbstractContextManager[None]:
    """Begin messages inside the block with this name (`run 2 of 5`), after the names of the stages around it."""
    return during(_STAGE, _Stage(_in_stage(name), time.monotonic()))


def _in_stage(what: str) -> str:
    around = _STAGE.get()
    return what if around is None else f"{around.name}, {what}"


def announce(what: str, quiet: bool = False) -> None:
    """Print what comes next and takes a while without a count, unless `quiet`."""
    if not quiet:
        print(_in_stage(what), file=sys.stderr, flush=True)


_SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def reporting(what: str, quiet: bool = False) -> Iterator[Report]:
    """A reporter of progress on `what` for the length of the block; with `quiet` it prints nothing."""
    if quiet:
        yield no_report
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
    """The time left, by the pace since the first report, or since the count began again."""

    def __init__(self) -> None:
        self._first, self._last = (0.0, 0.0), math.inf

    def left(self, share: float) -> str:
        """The time left in words when `share` of the work is done; empty if unknown."""
        now = time.monotonic()
        if share < self._last:
            self._first = now, share
        self._last = share
        since, before = self._first
        if not before < share < 1:
            return ""
        return f"about {(now - since) * (1 - share) / (share - before):.0f} s left"


def _lines(what: str, around: _Stage | None) -> Report:
    """Print a line at the start, at most one every ten seconds, and one at the end; inside a stage only the second."""
    began, pace, paced = time.monotonic(), _Pace(), around or _Stage(what, -math.inf)

    def report(done: int, total: int) -> None:
        now = time.monotonic()
        left = pace.left(done / total)
        is_end = done >= total and around is None
        if now - paced.last_line < _SECONDS_BETWEEN_LINES and not is_end:
            return
        paced.last_line = now
        parts = f"{what}: {done} of {total} after {now - began:.0f} s", left
        print(", ".join(filter(None, parts)), file=sys.stderr, flush=True)

    return report
