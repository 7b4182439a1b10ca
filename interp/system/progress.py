"""How a run says how far it is: a bar with the time left on a terminal or in a notebook, plain lines in a log.

Everything goes to standard error, so that standard output stays what the caller asked for.
"""

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[int, int], None]
"""Called with the number done and the number in all."""

_SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def reporting(what: str, quiet: bool = False) -> Iterator[Report]:
    """A reporter of progress on `what` for the length of the block; `quiet` says nothing."""
    if quiet:
        yield lambda done, total: None
    elif sys.stderr.isatty() or _in_notebook():
        with _bar(what) as report:
            yield report
    else:
        yield _Lines(what)


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
    with tqdm(desc=what, leave=_in_notebook()) as bar:

        def report(done: int, total: int) -> None:
            if bar.total != total:
                bar.reset(total)
            bar.update(done - bar.n)

        yield report


class _Lines:
    """One line at the start, at most one every ten seconds, and one at the end."""

    def __init__(self, what: str) -> None:
        self.what, self.began, self.said = what, time.monotonic(), 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self.said < _SECONDS_BETWEEN_LINES and done < total:
            return
        self.said = now
        spent = now - self.began
        left = f", about {spent * (total - done) / done:.0f} s left" if 0 < done < total else ""
        print(f"{self.what}: {done} of {total} after {spent:.0f} s{left}", file=sys.stderr, flush=True)
