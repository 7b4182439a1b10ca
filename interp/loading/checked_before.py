"""The self-check of the same files is not run again by the same code: what it found is kept in the user's cache.

It is kept for the model classes of transformers as they are. A class from elsewhere, one with another `forward`, and a
family that another package registers are checked on every load.
"""

import inspect
import json
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from huggingface_hub import cached_assets_path

from interp.families import families_of_transformers
from interp.loading.hub_files import ModelFiles
from interp.loading.identity import identity_of
from interp.loading.weights import weight_files
from interp.model import Check, Model
from interp.self_check.selfcheck import check_model
from interp.system.digest import digest_of
from interp.system.foreign_files import read_json
from interp.system.whole_files import writing

_LIBRARIES = ("torch.", "transformers.")


def checked(model: Model, files: Collection[Path], *, again: bool = False) -> tuple[Check, ...]:
    """The self-check of a model that was read from these files: run now, or what it found when it was run before.

    A model without files was made in memory, and is always checked.

    Raises `ModelError` where a check fails.
    """
    try:
        kept = _place(model, files) if files and _is_plain(model) else None
    except (OSError, ValueError):  # there is no folder for caches here
        kept = None
    found = None if kept is None or again else _read(kept)
    if found is None:
        found = check_model(model)
        if kept is not None:
            _keep(kept, found)
    return found


def files_of(files: ModelFiles) -> list[Path]:
    """The configuration and the weights of a model."""
    names = {*weight_files(files), *({"config.json"} & files.names)}
    return [files.folder / name for name in sorted(names)]


def _is_plain(model: Model) -> bool:
    """Whether all code of the model is torch's and transformers', read through a family of ours."""
    kinds = {type(part) for part in model.module.modules()}
    homes = {home for kind in kinds for home in (kind.__module__, inspect.unwrap(kind.forward).__module__)}
    return all(home.startswith(_LIBRARIES) for home in homes) and model.info.family in families_of_transformers()


def _place(model: Model, files: Collection[Path]) -> Path:
    """One file for each set of files and way to load them."""
    name = digest_of([identity_of(files), asdict(model.info)])
    return cached_assets_path("interp", namespace="self-check") / f"{name}.json"


def _code() -> str:
    """A digest of what the result depends on besides the files: versions, and the source of this package."""
    home = Path(__file__).parent.parent
    sources = [(str(p.relative_to(home)), p.stat().st_size, p.stat().st_mtime_ns) for p in sorted(home.rglob("*.py"))]
    return digest_of([sources, *(version(name) for name in ("interp", "torch", "transformers"))])


def _read(kept: Path) -> tuple[Check, ...] | None:
    """What was kept, where it is whole and of this code; every check then says when it was run."""
    try:
        content = read_json(kept)
        said = {name: content[name] for name in ("code", "when", "checks")}
        if content["digest"] != digest_of(said) or said["code"] != _code():
            return None
        found = tuple(replace(Check(**each), when=said["when"]) for each in said["checks"])
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return None
    return found if found and all(each.passed for each in found) else None


def _keep(kept: Path, found: tuple[Check, ...]) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    said = {"code": _code(), "when": now, "checks": [asdict(each) for each in found]}
    with suppress(OSError), writing(kept) as draft:  # where nothing can be kept, the next load checks again
        draft.write_text(json.dumps(said | {"digest": digest_of(said)}), encoding="utf-8")
