"""Ranks without processes: threads that meet at a barrier, for tests of what several ranks find together.

Whatever one hands to the others is pickled and read again, as between processes.
"""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from interp.system.processes import _HERE, Ranks


class _Meeting:
    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=60)
        self.held: list[Any] = [None] * size


@dataclass(frozen=True)
class ThreadRanks(Ranks):
    meeting: Any = field(default=None)

    def union(self, mine):
        self.meeting.held[self.rank] = pickle.dumps(mine)
        self.meeting.barrier.wait()
        found = [pickle.loads(each) for each in self.meeting.held]
        self.meeting.barrier.wait()
        return found


def in_ranks(size: int, act) -> list[Any]:
    """What `act(ranks)` returns on each of `size` ranks; the first error of any is raised."""
    meeting = _Meeting(size)

    def run(rank: int) -> Any:
        ranks = ThreadRanks(rank, size, None, meeting)
        _HERE.set(ranks)
        try:
            return act(ranks)
        except BaseException:
            meeting.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        done = [pool.submit(run, rank) for rank in range(size)]
    errors = [error for each in done if (error := each.exception())]
    if errors:
        raise next((e for e in errors if not isinstance(e, threading.BrokenBarrierError)), errors[0])
    return [each.result() for each in done]
