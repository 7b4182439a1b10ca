"""Numbers as numpy, pandas and torch give them, as Python's own: each raises `TypeError` or `ValueError` for others."""

from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """A scalar of any of these libraries as Python's, an array as lists; anything else as it is."""
    value = value.detach().cpu() if hasattr(value, "detach") else value
    return value.tolist() if hasattr(value, "tolist") else value


def number(value: Any) -> float:
    """A real number; true, false and texts are none."""
    value = plain(value)
    if isinstance(value, bool | str | bytes):
        raise TypeError(f"{value!r} is no number")
    return float(value)


def whole_number(value: Any) -> int:
    """A whole number; 2.0 is one, as a row of a table has it whose other columns are fractions."""
    found = number(value)
    if not found.is_integer():
        raise ValueError(f"{found} is not whole")
    return int(found)


def whole_numbers(value: Any) -> int | tuple[int, ...]:
    """One whole number, or several."""
    value = plain(value)
    return tuple(map(whole_number, value)) if hasattr(value, "__iter__") else whole_number(value)


def array(value: Any) -> np.ndarray:
    """An array of real numbers; one of numpy stays as it is."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "iuf":
        return value
    value = plain(value)
    if value is None or np.asarray(value).dtype.kind not in "iufO":
        raise TypeError("its entries are no real numbers")
    return np.array(value, dtype=np.float64)
