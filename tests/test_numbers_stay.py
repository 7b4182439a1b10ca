"""Numbers stay what they were, whichever module a change was made in: see `held_numbers.py`."""

import pytest

from tests.held_numbers import CASES, STORIES, UNSURE, is_close, sums, written
from tests.quick import quick

SLOW = ("comparison", "evidence", "hidden states", "maps", "reading", "simulations")
"""What other cases and tests hold too: another network and task, draws for certificates, sites and maps."""


@pytest.mark.parametrize("case", quick([case for case in CASES if case not in SLOW], CASES))
def test_numbers_stay(case):
    if case in ("texts", "evidence") and not STORIES.exists():
        pytest.skip("the model stories260K is not on this machine")
    now, was = sums(case), written(case)
    again = f"if this is meant, write them anew: OMP_NUM_THREADS=1 python -m tests.held_numbers {case!r}"
    assert not now.keys() - was.keys(), f"numbers that `numbers.csv` does not hold; {again}"
    assert not was.keys() - now.keys(), f"numbers that are there no more; {again}"
    moved = [f"{name}: {numbers} is now {now[name]}" for name, (numbers, moves) in was.items()
             if numbers != UNSURE and not is_close(numbers, moves, now[name])]  # fmt: skip
    assert not moved, again
