"""Two processes on the same run or study in one folder: one does it, the other waits and finds it done."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from interp.system.locks import one_at_a_time

from .record import RunRecord, finished_record


@contextmanager
def waiting_for_lock(
    out: Path, spec_hash: str, what: str, is_same: Callable[[RunRecord], bool] = lambda record: True
) -> Iterator[RunRecord | None]:
    """Whoever else asks for this specification in `out` waits until the block is left; a warning says for `what`.

    Gives the record that another process left while this one waited, if it is finished and `is_same` says so. Records
    from before are not given: who repeats a run wants it repeated. One that died leaves none, and its unfinished work.
    """
    before = {file.parent for file in out.glob("[!.]*/run.json")}
    with one_at_a_time(out / f".interp-{spec_hash}.lock", f"{what} into {out}") as waited:
        yield finished_record(spec_hash, out, lambda r: r.path not in before and is_same(r)) if waited else None
