"""What is done where memory gives out: the batch is read again in halves, which leave the same rows.

Of a pass that failed nothing is kept: reductions, keys and sizes of a pass count once it has come to its end.
"""

import warnings
from collections.abc import Callable

import torch
from accelerate.utils.memory import clear_device_cache

from interp.errors import InterpError
from interp.reading.batches import Batch

_WORDS = ("out of memory", "can't allocate memory", "not enough memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""How PyTorch says it, on the processor and on devices."""


def ran_out(error: BaseException) -> bool:
    """Whether an error says that memory gave out."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in _WORDS)


class InHalves:
    """Runs batches, and halves them where memory runs out; later ones are cut to what fitted."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tokens_that_fit: int | None = None

    def __call__(self, batch: Batch, attempt: Callable[[Batch], None], keep: Callable[[], None]) -> None:
        """`attempt` the batch or its parts, one after the other; `keep` follows every attempt that succeeded.

        Raises `InterpError` where a single prompt does not fit.
        """
        waiting = [batch]
        while waiting:
            part = waiting.pop(0)
            n = len(part.ids)
            if n > 1 and self.tokens_that_fit is not None and part.ids.numel() > self.tokens_that_fit:
                waiting[:0] = part.halves()
                continue
            why = _lack_of_memory(attempt, part)
            if why is None:
                keep()
            else:
                clear_device_cache(garbage_collection=True)
                self._make_smaller(part, why)
                waiting.insert(0, part)

    def _make_smaller(self, batch: Batch, why: str) -> None:
        n, width = batch.ids.shape
        if n == 1:
            raise InterpError(
                asked=f"reading a prompt of {width} tokens with {self.name}",
                found=f"memory does not suffice for it alone ({why})",
                fix="Shorten the texts (--window), load the weights in bfloat16 (--dtype), or use a larger machine.",
            )
        self.tokens_that_fit = (n + 1) // 2 * width
        warnings.warn(
            f"out of memory in a batch of {n} prompts of up to {width} tokens ({why}); "
            f"continuing with batches of up to {self.tokens_that_fit} tokens",
            RuntimeWarning,
            stacklevel=2,
        )


def _lack_of_memory(attempt: Callable[[Batch], None], batch: Batch) -> str | None:
    """What was said where memory gave out; None where it sufficed. The error itself would keep the pass in memory."""
    try:
        attempt(batch)
    except (MemoryError, RuntimeError) as error:
        if not ran_out(error):
            raise
        return (str(error).splitlines() or [type(error).__name__])[0]
    return None
