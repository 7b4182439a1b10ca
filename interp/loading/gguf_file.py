"""GGUF files: a model in one file, most often with rounded weights; what the header says is checked before it is read.

transformers turns the weights back into plain numbers, so whatever reads a model reads those: rounded, as the file
stores them.
"""

import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from interp.errors import ModelError

_ENTRY_BYTES = 12
"""What a field of the header, or the description of a tensor, takes at least."""

_BROKEN = (ArithmeticError, LookupError, OSError, TypeError, UnicodeDecodeError, ValueError, struct.error)


@dataclass(frozen=True)
class GgufContent:
    """How the tensors of a file are stored: `kinds` counts them by GGUF's names, `bits` a weight of each kind takes."""

    kinds: dict[str, int]
    bits: dict[str, float]

    @property
    def rounded(self) -> str | None:
        """The kinds that are not plain floating point, in words; None where all are."""
        if all(bits in (16, 32, 64) for bits in self.bits.values()):
            return None
        told = [
            f"{n} {'tensor' if n == 1 else 'tensors'} {kind} ({self.bits[kind]:g} bits)"
            for kind, n in self.kinds.items()
        ]
        return f"GGUF: {', '.join(told)}"


def read_header(path: Path) -> GgufContent:
    """What the file holds, by its header.

    Raises `ModelError` where the package `gguf` is missing, and for a file that is none, is cut off, or describes
    what it cannot hold.
    """
    try:
        from gguf import GGML_QUANT_SIZES, GGUFReader
    except ImportError as error:
        raise ModelError(
            asked=f"the model {path.name}", found="the package gguf is not installed", fix="pip install 'interp[gguf]'"
        ) from error
    _refuse_lies(path)
    try:
        tensors = GGUFReader(path).tensors
    except _BROKEN as error:
        raise _unreadable(path, f"it is cut off or damaged ({type(error).__name__}: {error})") from error
    if not tensors:
        raise _unreadable(path, "it holds no tensor")
    kinds = Counter(tensor.tensor_type for tensor in tensors)
    sizes = {kind: GGML_QUANT_SIZES[kind] for kind in kinds}  # weights a block, bytes a block
    return GgufContent(
        {kind.name: n for kind, n in kinds.most_common()},
        {kind.name: 8 * n_bytes / n_weights for kind, (n_weights, n_bytes) in sizes.items()},
    )


def _refuse_lies(path: Path) -> None:
    """The first bytes: kind, version, and counts that the file is long enough for."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(24)
    except OSError as error:
        raise _unreadable(path, str(error)) from error
    if head[:4] != b"GGUF":
        found = "it is a git-lfs pointer without its content" if head.startswith(b"version https://git") else None
        raise _unreadable(path, found or "it does not begin as a GGUF file does")
    if len(head) < 24:
        raise _unreadable(path, "it is cut off in its first line")
    version, n_tensors, n_fields = struct.unpack("<IQQ", head[4:])
    if version not in (2, 3):
        raise _unreadable(path, f"its version is {version}; 2 and 3 are read")
    if (n_tensors + n_fields) * _ENTRY_BYTES > size:
        raise _unreadable(
            path, f"it says that it holds {n_tensors:,} tensors and {n_fields:,} fields in {size:,} bytes"
        )


def _unreadable(path: Path, found: str) -> ModelError:
    return ModelError(asked=f"the model {path}", found=found, fix="Copy or download the file again.")
