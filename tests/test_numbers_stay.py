"""Numbers stay what they were, whichever module a change was made in: see `held_numbers.py`."""

import pytest

from tests.held_numbers import CASES, STORIES, is_close, sums, written
from tests.quick import quick

SLOW = ("comparison", "evidence", "hidden states", "maps", "reading", "simulations")
"""What other cases and tests hold too: another network and task, draws for certificates, sites and maps."""


@pytest.mark.parametrize("case", quick([case for case in CASES if case not in SLOW], CASES))
def test_numbers_stay(case):
    if case in ("texts", "evidence") and not STORIES.exists():
        pytest.skip("the model stories260K is not on this machine")
    now, was = sums(case), written(case)
    assert was and was.keys() <= now.keys()
    moved = [f"{name}: {numbers} is now {now[name]}" for name, (numbers, moves) in was.items()
             if not is_close(numbers, moves, now[name])]  # fmt: skip
    assert not moved, f"if this is meant, write them anew: python -m tests.held_numbers {case!r}"
