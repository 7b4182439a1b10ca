"""Values of numpy, pandas, torch and the shell as Python's own: numbers, precisions, devices and paths."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from interp.errors import UnknownName, UsageError


def plain(value: Any) -> Any:
    """A scalar of any of these libraries as Python's, an array as lists; anything else unchanged."""
    value = value.detach().cpu() if hasattr(value, "detach") else value
    return value.tolist() if hasattr(value, "tolist") else value


def from_0(asked: str, given: Sequence[int], n: int, has: str) -> tuple[int, ...]:
    """Numbers of layers or positions counted from 0; negative ones count from the end.

    Raises `UsageError` for one that does not exist or is named twice, and if there are none.
    """
    found = tuple(i % n for i in given if -n <= i < n)
    if len(found) < len(given) or len(set(found)) < len(found) or not found:
        fix = "Name one or several of these, each once; −1 is the last."
        raise UsageError(asked=asked, found=f"{has} 0 to {n - 1}", fix=fix)
    return found


DTYPES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of one number in the precisions a model can be read in."""

_SHORT = {
    "bf16": "bfloat16", "fp16": "float16", "f16": "float16", "half": "float16", "fp32": "float32", "f32": "float32",
    "float": "float32", "full": "float32", "fp64": "float64", "f64": "float64", "double": "float64",
}  # fmt: skip


def dtype_name(given: Any) -> str:
    """The name of a precision, `bfloat16`, from a dtype of torch or numpy or a short name; else `UnknownName`."""
    if isinstance(given, type):
        given = given.__name__
    name = str(getattr(given, "name", given)).removeprefix("torch.").lower()
    name = _SHORT.get(name, name)
    if name not in DTYPES:
        raise UnknownName("dtype", name, DTYPES)
    return name


def device_name(given: Any) -> str:
    """The name of a device, from one of torch or the number of a GPU; else `UsageError`."""
    name = f"cuda:{given}" if isinstance(given, int) else str(given)
    if not re.fullmatch(r"(cpu|cuda|mps)(:(0|[1-9][0-9]?))?", name):
        fix = "Use cpu, cuda, cuda:1 ... or mps."
        raise UsageError(asked=f"the device {name!r}", found="there is no such kind of device", fix=fix)
    return name


def path(given: str | Path) -> Path:
    """A path; `~` is the user's folder. Raises `UsageError` for an empty name."""
    if given == "":
        fix = "Name one; the current folder is `.`."
        raise UsageError(asked="a file or folder called ''", found="the name is empty", fix=fix)
    return Path(os.path.expanduser(given))  # noqa: PTH111 (Path raises for a user that is not there)
