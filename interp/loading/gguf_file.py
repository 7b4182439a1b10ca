"""Headers of GGUF files, which hold a model in one file, most often with rounded weights.

transformers silently leaves out tensors that its model lacks, so the numbers of file and model are counted. Layout:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

import math
import mmap
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interp.errors import ModelError, optional_part
from interp.system.foreign_files import readable

_FORMS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_PLAIN = ("F64", "F32", "F16", "BF16")
_STRETCHED = ("rope_freqs", "rope_factors")
"""Tensors that stretch the rotary embedding for long texts, which transformers does not read."""


@dataclass(frozen=True)
class StoredTensor:
    """How a tensor is stored: how many numbers, GGUF's name of the kind, and bits per number."""

    n: int
    kind: str
    bits: float


@dataclass(frozen=True)
class GgufContent:
    """The fields of a file's header (for a list, its length), and its tensors by name."""

    fields: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]

    @property
    def n_numbers(self) -> int:
        return sum(tensor.n for tensor in self.tensors.values())

    @property
    def rounded(self) -> str | None:
        """The kinds of the tensors, with counts; None if all are plain floating point."""
        kinds = Counter((tensor.kind, tensor.bits) for tensor in self.tensors.values())
        if all(kind in _PLAIN for kind, _ in kinds):
            return None
        parts = [
            f"{n} {'tensor' if n == 1 else 'tensors'} {kind} ({bits:g} bits)" for (kind, bits), n in kinds.most_common()
        ]
        return f"GGUF: {', '.join(parts)}"

    @property
    def in_words(self) -> dict[str, str]:
        """Kind and bits of each tensor."""
        return {name: f"{tensor.kind}, {tensor.bits:g} bits" for name, tensor in self.tensors.items()}

    def of_family(self, field: str) -> Any:
        """A field of the model's architecture, such as `block_count`, or None."""
        return self.fields.get(f"{self.fields['general.architecture']}.{field}")

    @property
    def stretched(self) -> str | None:
        """The field or tensor that stretches the rotary embedding, or None."""
        kind, factor = self.of_family("rope.scaling.type"), self.of_family("rope.scaling.factor")
        if kind not in (None, "none") and factor != 1:
            return f"rope.scaling.type {kind}"
        return next((name for name in self.tensors if name.startswith(_STRETCHED)), None)


class _Reader:
    """Reads values one after another; raises `ValueError` or `struct.error` beyond the end of the file."""

    def __init__(self, data: mmap.mmap):
        self.data, self.at = data, 0

    def skip(self, n_bytes: int) -> int:
        """Skip bytes; returns where they begin."""
        begin, self.at = self.at, self.at + n_bytes
        if self.at > len(self.data):
            raise ValueError(f"{n_bytes:,} bytes should follow at {begin:,}, and the file has {len(self.data):,}")
        return begin

    def numbers(self, form: str) -> tuple[Any, ...]:
        return struct.unpack_from(f"<{form}", self.data, self.skip(struct.calcsize(f"<{form}")))

    def text(self) -> str:
        (n_bytes,) = self.numbers("Q")
        begin = self.skip(n_bytes)
        return self.data[begin : self.at].decode()

    def value(self, kind: int) -> Any:
        """The value of a field; for a list, its length."""
        if kind == _TEXT:
            return self.text()
        if kind != _LIST:
            return self.numbers(_FORMS[kind])[0]
        entry, n = self.numbers("IQ")
        if entry == _TEXT:
            for _ in range(n):
                self.skip(self.numbers("Q")[0])
        else:
            self.skip(n * struct.calcsize(f"<{_FORMS[entry]}"))
        return n


def read_header(path: Path) -> GgufContent:
    """The header of a GGUF file.

    Raises `UsageError` if the package `gguf` is missing, and `ModelError` for a file that is cut off or not GGUF.
    """
    with optional_part("gguf", f"the model {path.name}"):
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
    sizes = {kind.value: (kind.name, *GGML_QUANT_SIZES[kind]) for kind in GGMLQuantizationType}
    fix = "Copy or download the file again (`git lfs pull` where it was cloned)."
    found = "its header is cut off, damaged or not that of a GGUF file"
    with readable(f"the model {path}", fix, found=found, error=ModelError), path.open("rb") as file:
        if (begins := file.read(11))[:4] != b"GGUF":
            raise ValueError(f"it does not begin as a GGUF file does: {begins!r}")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _content(_Reader(data), sizes)


def _content(reader: _Reader, sizes: Mapping[int, tuple[str, int, int]]) -> GgufContent:
    """Fields, then tensors, which must follow one another to the end of the file, as llama.cpp demands.

    `sizes`: name, numbers and bytes of a block, by the code of its kind.
    """
    _, version, n_tensors, n_fields = reader.numbers("IIQQ")
    if version not in (2, 3):
        raise ValueError(f"its version is {version}, and 2 and 3 are read")
    fields: dict[str, Any] = {}
    for _ in range(n_fields):
        name = reader.text()
        fields[name] = reader.value(*reader.numbers("I"))
    tensors: dict[str, StoredTensor] = {}
    step, end, follows = fields.get("general.alignment", 32), 0, 0
    for _ in range(n_tensors):
        name, (n_axes,) = reader.text(), reader.numbers("I")
        shape, (code, begin) = reader.numbers(f"{n_axes}Q"), reader.numbers("IQ")
        kind, n_in_block, block_bytes = sizes[code]
        tensors[name] = StoredTensor(math.prod(shape), kind, 8 * block_bytes / n_in_block)
        if begin != follows:
            raise ValueError(f"{name} begins at byte {begin:,} of the tensors, and the one before ends at {end:,}")
        end = begin + math.prod(shape) // n_in_block * block_bytes
        follows = math.ceil(end / step) * step
    there = max(0, len(reader.data) - math.ceil(reader.at / step) * step)
    if not end <= there <= follows:
        raise ValueError(f"the tensors take {end:,} bytes, and there are {there:,}")
    return GgufContent(fields, tensors)
