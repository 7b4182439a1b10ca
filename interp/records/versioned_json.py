"""Versioned JSON files: their schemas, and errors that say what is wrong."""

import json
import math
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from interp.errors import InterpError, RecordError
from interp.findings import Scalar
from interp.system.foreign_files import in_words, read_json, readable

Content = TypeVar("Content")

REMOVED_OPTIONS: Mapping[str, Any] = {"splits": None}
REMOVED_REDUCTIONS = ("Mean", "Moments")
REMOVED_COLUMNS: Mapping[str, str] = {"what": "values"}
"""What only earlier versions have: options of a run with their defaults, which still enter the hash, reductions of
captures, and columns of tables with the one value that is still measured."""


def _nan_for_null(raw: Any) -> Any:
    """A scalar of a file, with null replaced by NaN."""
    if not isinstance(raw, Mapping):
        return raw
    pairs = {name: [math.nan if end is None else end for end in raw[name]] for name in ("interval", "band")
             if isinstance(raw.get(name), list)}  # fmt: skip
    value = math.nan if raw.get("value") is None else raw["value"]
    return {**raw, **pairs, "value": value} | ({"null": _nan_for_null(raw["null"])} if "null" in raw else {})


KeptScalar = Annotated[Scalar, BeforeValidator(_nan_for_null)]


class Strict(BaseModel):
    """A frozen part of a file without unknown names."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Known(BaseModel):
    """The entries of a part of a file that pages read; there may be others."""

    model_config = ConfigDict(extra="allow")


def knowing(kind: type[Known]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A validator that returns a part unchanged if it fits `kind`."""

    def check(part: dict[str, Any]) -> dict[str, Any]:
        try:
            kind.model_validate(part)
        except ValidationError as fault:
            raise ValueError(in_words(fault)) from fault
        return part

    return check


class _Environment(Known):
    packages: dict[str, Any] = {}
    code: dict[str, Any] | None = None
    probe_code: dict[str, Any] | None = None


KeptEnvironment = Annotated[dict[str, Any], AfterValidator(knowing(_Environment))]


def scalar_in(raw: Mapping[str, Any]) -> Scalar:
    """A scalar from its content in a file."""
    return _reader(KeptScalar).validate_python(raw)


@cache
def _reader(kind: Any) -> TypeAdapter:
    return TypeAdapter(kind)


def plain_json(value: Any) -> Any:
    """Plain JSON values: numpy numbers become Python's, tuples lists, NaN and infinity null."""
    if isinstance(value, Mapping):
        return {str(k): plain_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain_json(v) for v in value]
    if isinstance(value, np.generic):
        return plain_json(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def as_text(content: BaseModel) -> str:
    """The text of the file."""
    return json.dumps(plain_json(content.model_dump()), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_versioned(
    path: Path,
    kind: type[Content],
    newest: int,
    *,
    asked: str,
    written_by: str,
    again: str,
    error: type[InterpError] = RecordError,
    upgraded: Callable[[dict[str, Any]], dict[str, Any]] = lambda content: content,
) -> Content:
    """The content of a file; raises `error` for a missing, damaged, edited or newer one.

    `asked` describes the file, `written_by` says what to give instead of a missing one, `again` how to repeat it;
    `upgraded` converts older content.
    """
    damaged, changed = "The file is damaged or was edited", "The file was edited or written by another program"
    with readable(asked, f"{damaged}; {again}.", found=f"{path.name} cannot be read", error=error):
        try:
            raw = read_json(path)
        except FileNotFoundError as missing:
            raise error(asked=asked, found=f"there is no {path.name} in it", fix=written_by) from missing
    version = raw.get("format") if isinstance(raw, dict) else None
    if isinstance(raw, dict) and "format" in raw and (type(version) is not int or version < 1):
        raise error(
            asked=asked, found=f"its format is {version!r:.40}, which does not exist", fix=f"{changed}; {again}."
        )
    if isinstance(version, int) and version > newest:
        found = f"it has format {version}, this version reads up to {newest}"
        raise error(asked=asked, found=found, fix="Open it with a newer interp.")
    with readable(asked, f"{changed}; {again}.", found=f"{path.name} does not fit", error=error):
        content = upgraded(raw) if isinstance(raw, dict) else raw
        return _reader(kind).validate_json(json.dumps(content))
