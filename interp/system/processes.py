"""Several processes on one run, as `accelerate launch -m interp run ...` or `torchrun` start them.

Every process (rank) loads the model and cuts the same batches; each runs its share of them, and the reduced rows are
joined in the order of the ranks, so rows do not depend on the number of processes. Only the first rank analyses and
writes. torch.distributed, over gloo, is imported only if there are several processes.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from interp.errors import InterpError, UsageError

from .threads import during

T = TypeVar("T")

TIMEOUT = "INTERP_RANK_TIMEOUT"
"""Environment variable: the seconds to wait for a process that hangs; an hour by default. One that dies ends the run at
once."""


@dataclass(frozen=True)
class Ranks:
    """This process among those of the run: number `rank`, from 0, of `size`, in the process group `group`."""

    rank: int = 0
    size: int = 1
    group: Any = None

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        return self.size == 1

    def share(self, n: int) -> range:
        """This rank's contiguous part of `n` things; parts differ by at most one and may be empty."""
        return range(self.rank * n // self.size, (self.rank + 1) * n // self.size)

    def union(self, mine: T) -> list[T]:
        """The values of all ranks, in their order; all ranks have to call this."""
        if self.is_alone:
            return [mine]
        import torch.distributed as dist

        everybodys: list[Any] = [None] * self.size
        try:
            dist.all_gather_object(everybodys, mine, group=self.group)
        except RuntimeError as error:
            raise InterpError(
                asked=f"process {self.rank + 1} of {self.size} joining what the others found",
                found=f"another process ended or does not answer ({str(error).splitlines()[0]})",
                fix=f"Read its last message. To give slow processes more time, set {TIMEOUT}=SECONDS.",
            ) from error
        return everybodys

    def of_first(self, mine: T) -> T:
        """The value of the first rank; all ranks have to call this."""
        found: list[Any] = self.union(mine if self.is_first else None)
        return found[0]

    def agree(self, what: str, mine: str) -> None:
        """Raise `UsageError` if the values of the ranks differ; all ranks have to call this."""
        everybodys = self.union(mine)
        other = next((rank for rank, theirs in enumerate(everybodys) if theirs != everybodys[0]), None)
        if other is not None:
            raise UsageError(
                asked=f"one run in {self.size} processes",
                found=f"{what} is not the same everywhere: {everybodys[0]} in process 1, {everybodys[other]} "
                f"in process {other + 1}",
                fix="Give every machine the same files, or one folder that all of them see.",
            )


ALONE = Ranks()

_HERE: ContextVar[Ranks] = ContextVar("ranks", default=ALONE)


def here() -> Ranks:
    """The ranks of the run in this thread; a single one outside a run."""
    return _HERE.get()


def n_started() -> int:
    """The number of processes that a launcher has started; 1 without one."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def is_first_started() -> bool:
    """Whether this process prints: the first that a launcher started, or the only one."""
    return n_started() == 1 or int(os.environ.get("RANK") or 0) == 0


def name_of_process() -> str:
    """` (process 2 of 4)` for messages; empty if there is one process."""
    rank = int(os.environ.get("RANK") or 0)
    return "" if n_started() == 1 else f" (process {rank + 1} of {n_started()})"


def local_rank() -> int:
    """The number of this process on its machine, which says which GPU is its own."""
    return int(os.environ.get("LOCAL_RANK") or 0) if n_started() > 1 else 0


@contextmanager
def joined() -> Iterator[Ranks]:
    """Connect the ranks that a launcher has started for the length of the block, which all have to enter.

    Without a launcher, and inside another such block, this does nothing.
    """
    if n_started() == 1 or not here().is_alone:
        yield here()
        return
    import torch.distributed as dist

    waits = timedelta(seconds=float(os.environ.get(TIMEOUT) or 3600))
    is_ours = not dist.is_initialized()
    try:
        if is_ours:
            dist.init_process_group("gloo", timeout=waits)
        group: Any = dist.new_group(backend="gloo", timeout=waits)
    except (RuntimeError, ValueError) as error:
        raise InterpError(
            asked=f"joining {n_started()} processes",
            found=f"they do not find one another ({str(error).splitlines()[0]})",
            fix="Start them with `accelerate launch -m interp run ...` or torchrun, or unset WORLD_SIZE.",
        ) from error
    ranks = Ranks(dist.get_rank(group), dist.get_world_size(group), group)
    try:
        with during(_HERE, ranks):
            yield ranks
            ranks.union(None)  # nobody leaves while another still waits for an answer
    finally:
        if is_ours:
            dist.destroy_process_group()
        else:
            dist.destroy_process_group(group)
