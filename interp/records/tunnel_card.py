"""The card of a trained network: task, recipe, cost, and distance from the exact posterior."""

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interp.errors import ModelError, UsageError
from interp.system.array_files import digest_of_file
from interp.system.digest import digest_of

CARD_FORMAT = 4
_AS_WRITTEN: Mapping[str, Any] = {"extra": "forbid", "allow_inf_nan": False, "strict": True}
"""Pydantic settings: only what this version would write is accepted."""
CARD_NAME = "tunnel.json"
_WEIGHTS, _CONFIG = "model.safetensors", "config.json"
_VARIANT = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass(frozen=True)
class Figure:
    """A measured number with its 95 % interval over sequences; `limit` is its upper bound, if any."""

    value: float
    unit: str
    low: float
    high: float
    limit: float | None = None

    __pydantic_config__ = _AS_WRITTEN

    @property
    def is_met(self) -> bool:
        """Whether the value is within its limit; without a limit it always is."""
        return self.limit is None or self.value <= self.limit


@dataclass(frozen=True)
class TunnelCard:
    """Everything known about a trained tunnel, and enough to train it again: `tunnel.json` in its folder.

    `figures` were measured on `n_eval` fresh sequences; a rebuild has to come within a factor `1 +
    tolerance` of each that has a limit. `baselines` are the errors of predictors that do not look at the
    sequence, by predictor and figure. `core_seconds` is processor time of the training alone, at one
    thread. `step` counts the updates the weights have seen; it is below the recipe's where a card describes
    a checkpoint taken on the way. `variant` tells apart tunnels of one task and architecture. `init` is
    {`tunnel`: name, `fingerprint`: of its weights} of the checkpoint that training started from, None where
    it started from fresh weights; up to format 2 it has `weights`, the SHA-256 of their file, in its place. `files` are
    digests of its weights and configurations, those of steps taken on the way too; up to format 3 there are none.
    """

    task: str
    parameters: Mapping[str, Any]
    arch: str
    network: Mapping[str, Any]
    n_parameters: int
    recipe: Mapping[str, Any]
    seed: int
    step: int
    figures: Mapping[str, Figure]
    n_eval: int
    eval_seed: int
    tolerance: float
    core_seconds: float
    environment: Mapping[str, str]
    variant: str = ""
    init: Mapping[str, str] | None = None
    baselines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    format: int = field(default=CARD_FORMAT)

    __pydantic_config__ = _AS_WRITTEN

    @property
    def name(self) -> str:
        """`<task>-<arch>[-<variant>]`, as after `tunnel:`."""
        return tunnel_name(self.task, self.arch, self.variant)


def tunnel_name(task: str, arch: str, variant: str = "") -> str:
    """The name of a trained network; `UsageError` for a variant with other characters."""
    if variant and not _VARIANT.fullmatch(variant):
        raise UsageError(
            asked=f"the variant {variant!r} of a tunnel",
            found="it cannot be part of a model name and a folder name",
            fix="Use letters, digits, '.', '_' and '-', beginning and ending with a letter or digit.",
        )
    return f"{task}-{arch}-{variant}" if variant else f"{task}-{arch}"


def write_card(card: TunnelCard, folder: Path) -> Path:
    """Write the card into a checkpoint folder and return its path."""
    path = Path(folder) / CARD_NAME
    path.write_text(json.dumps(dataclasses.asdict(card), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return path


def read_card(folder: Path) -> TunnelCard:
    """The card of a checkpoint folder; `ModelError` if it is missing, newer, or damaged."""
    from interp.records.versioned_json import read_versioned

    return read_versioned(
        Path(folder) / CARD_NAME, TunnelCard, CARD_FORMAT, asked=f"the tunnel in {folder}",
        written_by="Give the folder that `interp tunnel train` wrote, the one with config.json in it.",
        again="restore it, or train the tunnel again: `interp tunnel train`", error=ModelError, upgraded=_upgraded,
    )  # fmt: skip


def _upgraded(content: dict[str, Any]) -> dict[str, Any]:
    """Format 1 had no variants, fine-tuning and baselines, 2 hashed weights differently, 3 had no files."""
    added = {"variant": "", "init": None, "baselines": {}} if content.get("format") == 1 else {}
    return {**content, **added, "format": CARD_FORMAT} if content.get("format") in range(1, CARD_FORMAT) else content


def digests_of(folder: Path) -> dict[str, str]:
    """The digests of weights and configurations in a folder, for its card."""
    found = {}
    for home in (folder, *sorted((folder / "steps").glob("*"))):
        for path in (home / _WEIGHTS, home / _CONFIG):
            if path.is_file():
                found[path.relative_to(folder).as_posix()] = _digest(path)
    return found


def refuse_changed(folder: Path) -> bool:
    """Raise `ModelError` if weights or configuration are not those of the card; False without a card or its digests.

    The folder may be of a tunnel, of a step of its training, or of another model, which has no card.
    """
    home = folder if (folder / CARD_NAME).is_file() else folder.resolve().parent.parent
    files = read_card(home).files if (home / CARD_NAME).is_file() else {}
    inside = "" if home == folder else f"steps/{folder.resolve().name}/"
    named = [name for name in (_WEIGHTS, _CONFIG) if inside + name in files]
    for name in named:
        is_there = (folder / name).is_file()
        if not is_there or _digest(folder / name) != files[inside + name]:
            raise ModelError(
                asked=f"the tunnel in {folder}",
                found=f"{name} is not the one that {CARD_NAME} was written for" if is_there else f"there is no {name}",
                fix="Restore the folder, or train the tunnel again: `interp tunnel train`.",
            )
    return bool(named)


def _digest(path: Path) -> str:
    """Of a configuration the digest of its text, whatever its line endings."""
    is_text = path.name == _CONFIG
    return digest_of(path.read_text(encoding="utf-8", errors="replace")) if is_text else digest_of_file(path)
