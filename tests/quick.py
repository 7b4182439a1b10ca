"""Which cases of a test run in `make test`, the others in `make test-all` alone."""

from collections.abc import Iterable
from typing import Any

import pytest


def quick(kept: Iterable[Any], cases: Iterable[Any]) -> list[Any]:
    """The cases, those that are not among the `kept` ones marked slow; a tuple is a case of several arguments."""
    kept = tuple(kept)
    cases = list(cases)
    assert all(case in cases for case in kept), "what is kept has to be one of the cases"
    return [case if case in kept else _slow(case) for case in cases]


def _slow(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
