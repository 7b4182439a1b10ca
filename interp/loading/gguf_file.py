"""GGUF files: a model in one file, most often with rounded weights. Its header is read here before a library reads it.

The libraries believe a header: a list that claims 2**60 entries keeps them busy for ever, and a block or a bias that
they have no place for is left out without a word. So every count is compared with the length of the file, and every
number of it has to find a place in the model. Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.

transformers turns the weights back into plain numbers, so whatever reads a model reads those: rounded, as the file
stores them.
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

_FORMS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_PLAIN = ("F64", "F32", "F16", "BF16")
_MOST = 2_000_000
"""More entries than any vocabulary or list of tensors has; the libraries take them one by one."""

_STRETCHED = ("rope_freqs", "rope_factors")
"""Tensors that stretch the rotary embedding for long texts; transformers' reader has no place for them."""


@dataclass(frozen=True)
class StoredTensor:
    """How a tensor is stored: its numbers, the kind by GGUF's name, and the bits that a number of it takes."""

    n: int
    kind: str
    bits: float


@dataclass(frozen=True)
class GgufContent:
    """What a file says of itself: the fields of its header (of a list its length), and its tensors by name."""

    fields: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]

    @property
    def n_numbers(self) -> int:
        return sum(tensor.n for tensor in self.tensors.values())

    @property
    def rounded(self) -> str | None:
        """The kinds that are not plain floating point, in words; None where all are."""
        kinds = Counter((tensor.kind, tensor.bits) for tensor in self.tensors.values())
        if all(kind in _PLAIN for kind, _ in kinds):
            return None
        told = [
            f"{n} {'tensor' if n == 1 else 'tensors'} {kind} ({bits:g} bits)" for (kind, bits), n in kinds.most_common()
        ]
        return f"GGUF: {', '.join(told)}"

    @property
    def in_words(self) -> dict[str, str]:
        """Kind and bits of each tensor."""
        return {name: f"{tensor.kind}, {tensor.bits:g} bits" for name, tensor in self.tensors.items()}

    def of_family(self, field: str) -> Any:
        """A field of the model's architecture, such as `block_count`; None without it."""
        return self.fields.get(f"{self.fields['general.architecture']}.{field}")

    @property
    def stretched(self) -> str | None:
        """What stretches the rotary embedding; None where nothing does."""
        kind, factor = self.of_family("rope.scaling.type"), self.of_family("rope.scaling.factor")
        if kind not in (None, "none") and factor != 1:
            return f"rope.scaling.type {kind}"
        return next((name for name in self.tensors if name.startswith(_STRETCHED)), None)


class _CutOff(Exception):
    """The header goes on beyond the end of the file, or says what no header can say."""


class _Reader:
    """Reads on from a place in the file."""

    def __init__(self, data: mmap.mmap):
        self.data, self.at = data, 0

    def skip(self, n_bytes: int) -> int:
        """Where these bytes begin."""
        begin = self.at
        if n_bytes > len(self.data) - begin:
            raise _CutOff(f"{n_bytes:,} bytes are said to follow at {begin:,}, and the file has {len(self.data):,}")
        self.at = begin + n_bytes
        return begin

    def numbers(self, form: str) -> tuple[Any, ...]:
        return struct.unpack_from(f"<{form}", self.data, self.skip(struct.calcsize(f"<{form}")))

    def count(self, form: str = "Q") -> int:
        (n,) = self.numbers(form)
        if n > _MOST:
            raise _CutOff(f"{n:,} entries are said to follow at {self.at:,}")
        return n

    def text(self) -> str:
        (n_bytes,) = self.numbers("Q")
        begin = self.skip(n_bytes)
        return self.data[begin : self.at].decode()

    def value(self, kind: int) -> Any:
        """The value of a field, of a list its length."""
        if kind == _TEXT:
            return self.text()
        if kind != _LIST:
            return self.numbers(_FORMS[kind])[0]
        (entry,), n = self.numbers("I"), self.count()
        if entry == _TEXT:
            for _ in range(n):
                self.skip(self.numbers("Q")[0])
        else:
            self.skip(n * struct.calcsize(f"<{_FORMS[entry]}"))
        return n


def read_header(path: Path) -> GgufContent:
    """What the file holds, by its header.

    Raises `UsageError` where the package `gguf` is missing, and `ModelError` for a file that is none, is cut off, or
    describes what it cannot hold.
    """
    with optional_part("gguf", f"the model {path.name}"):
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
    sizes = {kind.value: (kind.name, *GGML_QUANT_SIZES[kind]) for kind in GGMLQuantizationType}
    try:
        with path.open("rb") as file:
            head = file.read(24)
            if head[:4] != b"GGUF":
                raise _CutOff(f"it does not begin as a GGUF file does: {head[:11]!r}")
            if len(head) < 24:
                raise _CutOff(f"it has {len(head)} bytes")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _content(_Reader(data), sizes)
    except (_CutOff, OSError, UnicodeDecodeError, KeyError) as error:
        found = f"a kind of entry is {error}" if isinstance(error, KeyError) else str(error)
        raise ModelError(
            asked=f"the model {path}",
            found=f"its header is cut off, damaged or not of a GGUF file: {found}",
            fix="Copy or download the file again (`git lfs pull` where it was cloned).",
        ) from error


def _content(reader: _Reader, sizes: Mapping[int, tuple[str, int, int]]) -> GgufContent:
    """Fields, then the table of tensors, each of which has to lie in the file; `sizes` are name, numbers and bytes."""
    _, version = reader.numbers("II")
    if version not in (2, 3):
        raise _CutOff(f"its version is {version}, and 2 and 3 are read")
    n_tensors, n_fields = reader.count(), reader.count()
    fields: dict[str, Any] = {}
    for _ in range(n_fields):
        name = reader.text()
        if name in fields:
            raise _CutOff(f"it has the field {name!r} twice")
        fields[name] = reader.value(*reader.numbers("I"))
    if not isinstance(fields.get("general.architecture"), str):
        raise _CutOff("it does not name an architecture")
    tensors: dict[str, StoredTensor] = {}
    begins: dict[str, int] = {}
    sizes_in_bytes: dict[str, int] = {}
    for _ in range(n_tensors):
        name, (n_axes,) = reader.text(), reader.numbers("I")
        if name in tensors or n_axes > 4:
            raise _CutOff(f"it has the tensor {name!r} twice, or with {n_axes} axes")
        shape, (code, begin) = reader.numbers(f"{n_axes}Q"), reader.numbers("IQ")
        kind, n_in_block, block_bytes = sizes[code]
        n = math.prod(shape)
        tensors[name] = StoredTensor(n, kind, 8 * block_bytes / n_in_block)
        begins[name], sizes_in_bytes[name] = begin, n // n_in_block * block_bytes
    step = fields.get("general.alignment", 32)
    if not isinstance(step, int) or step < 1:
        raise _CutOff(f"general.alignment is {step!r}")
    end = padded = 0
    for name in sorted(begins, key=begins.__getitem__):  # one behind the other: no byte is in two, or in none
        if begins[name] != padded:
            raise _CutOff(f"{name} begins at byte {begins[name]:,} of the tensors, and the one before ends at {end:,}")
        end = begins[name] + sizes_in_bytes[name]
        padded = math.ceil(end / step) * step
    there = max(0, len(reader.data) - math.ceil(reader.at / step) * step)
    if not end <= there <= padded:
        raise _CutOff(f"the tensors take {end:,} bytes, and there are {there:,}")
    return GgufContent(fields, tensors)
