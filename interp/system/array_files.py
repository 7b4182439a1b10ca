"""Arrays in safetensors files, one each: written in parts and memory-mapped.

The safetensors library copies everything that it reads, and its errors of a disk have no `errno`.
"""

import hashlib
import json
import math
from pathlib import Path

import numpy as np
from safetensors import safe_open

_KINDS = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
_NAMES = {np.dtype(kind): name for name, kind in _KINDS.items()}
_LENGTH = 8
"""Bytes of the number before the header, its length."""


class ArrayFile:
    """A file of an array, to be filled in blocks in any order."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.path, self.shape, self.dtype = path, shape, dtype.newbyteorder("<")
        if self.dtype not in _NAMES:
            raise ValueError(f"numbers of type {dtype} cannot be written")
        size = int(np.prod(shape)) * self.dtype.itemsize
        described = {"dtype": _NAMES[self.dtype], "shape": list(shape), "data_offsets": [0, size]}
        header = json.dumps({"array": described}).encode()
        header += b" " * (-len(header) % _LENGTH)
        self.start = _LENGTH + len(header)
        with path.open("wb") as file:
            file.write(len(header).to_bytes(_LENGTH, "little") + header)
            file.truncate(self.start + size)

    def put(self, first: tuple[int, ...], block: np.ndarray) -> None:
        """Write a contiguous block from the entry with the leading indices `first` on."""
        strides = np.cumprod((1, *self.shape[:0:-1]))[::-1] if self.shape else np.array([])
        offset = int(np.dot(strides[: len(first)], first)) if first else 0
        with self.path.open("r+b") as file:
            file.seek(self.start + offset * self.dtype.itemsize)
            file.write(np.ascontiguousarray(block, dtype=self.dtype).tobytes())


def write_array(path: Path, array: np.ndarray) -> None:
    """Write an array, one entry of its first axis at a time. `ValueError` for a dtype that the format lacks."""
    file = ArrayFile(path, array.shape, array.dtype)
    if array.ndim < 2:
        file.put((), array)
    else:
        for i, block in enumerate(array):
            file.put((i,), block)


def read_array(path: Path) -> np.ndarray:
    """The memory-mapped, read-only array.

    Raises `OSError`, `SafetensorError` or `KeyError` for a file that is missing, damaged or of another kind.
    """
    with safe_open(path, "np") as file:
        found = file.get_slice("array")
        dtype, shape = np.dtype(_KINDS[found.get_dtype()]), tuple(found.get_shape())
    size = math.prod(shape) * dtype.itemsize
    if size == 0:
        return np.empty(shape, dtype)
    return np.asarray(np.memmap(path, dtype, "r", path.stat().st_size - size, shape))


def digest_of_file(path: Path) -> str:
    """The SHA-256 of the content of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
