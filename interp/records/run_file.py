"""The schema of `run.json`; anything else is rejected when a record is opened."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator

from interp.findings import Control
from interp.records.versioned_json import KeptEnvironment, KeptScalar, Known, Strict, knowing

FORMAT = 1
"""Version of `run.json`; when it changes, a file of the old version is kept in tests/records."""

_LONGEST_NAME = 100


class TableFile(Strict):
    """The file of a table and the units of its columns."""

    path: str
    units: dict[str, str]
    caption: str = ""

    @field_validator("path")
    @classmethod
    def _stays_inside(cls, path: str) -> str:
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise ValueError(f"the path {path!r} leaves the record's folder")
        return path


class FindingsFile(Strict):
    """What one probe found."""

    parameters: dict[str, Any]
    scalars: dict[str, KeptScalar]
    tables: dict[str, TableFile]
    notes: list[str] = Field(default=[])
    headline: list[str] = Field(default=[])
    controls: dict[str, list[Control]] = Field(default={})
    facts: dict[str, str] = Field(default={})


class _Asked(Known):
    study: str = ""
    model: str = ""
    probes: dict[str, dict[str, Any]] = Field(default_factory=dict)
    command: str = ""
    seed: int = 0
    edits: list[dict[str, Any]] = Field(default_factory=list)


class _Figure(Known):
    value: float
    unit: str
    low: float
    high: float


class _Card(Known):
    figures: dict[str, _Figure] = Field(default_factory=dict)
    baselines: dict[str, dict[str, float]] = Field(default_factory=dict)
    n_eval: int = 0


class _Model(Known):
    name: str = ""
    family: str | None = None
    fingerprint: str | None = None
    n_layers: int | None = None
    n_parameters: int | None = None
    card: _Card | None = None
    tensor_kinds: dict[str, str] | None = None


class _Clusters(Known):
    n: int
    by: str
    caution: str = ""


class _Prompts(Known):
    name: str = ""
    unit: str = ""
    hash: str | None = None
    n: int | None = None
    draw: dict[str, Any] | None = None
    clusters: _Clusters | None = None
    others: list["_Prompts"] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)


class RunFile(Strict):
    """The content of `run.json`."""

    format: Literal[1] = FORMAT
    status: Literal["done"]
    created: str
    spec: Annotated[dict[str, Any], AfterValidator(knowing(_Asked))]
    spec_hash: str
    model: Annotated[dict[str, Any], AfterValidator(knowing(_Model))]
    prompts: Annotated[dict[str, Any], AfterValidator(knowing(_Prompts))]
    environment: KeptEnvironment
    selfcheck: list[dict[str, Any]]
    timings: dict[str, float | None]
    findings: dict[str, FindingsFile]

    @field_validator("findings")
    @classmethod
    def _names_are_file_names(cls, findings: dict[str, FindingsFile]) -> dict[str, FindingsFile]:
        strange = [name for name in findings if not name or len(name) > _LONGEST_NAME or set(name) & set("/\\\0")]
        if strange:
            raise ValueError(f"{strange[0][:40]!r} cannot be the name of a probe, which names files")
        return findings
