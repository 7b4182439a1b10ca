"""The files that the name of a model stands for: an alias, a hub repository, a folder, a tunnel or a program."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from interp.capture import Mechanism
from interp.errors import ModelError, UnknownName, UsageError, named
from interp.loading.aliases import ALIASES, MEMORY
from interp.loading.hub_files import CONFIG, ModelFiles, cached_files, files_in_folder, files_on_hub
from interp.options import RunOptions
from interp.records.tunnel_card import CARD_NAME, read_card
from interp.registry import entries, load_entry
from interp.system.foreign_files import is_file, is_folder, read_json, readable
from interp.tunnel import Task, make_task

TUNNEL = "tunnel:"
PROGRAM = "program:"
PROGRAM_CARD = "program.json"
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class ModelSource:
    """A model that was found: `name` loads it again, `origin` is its source; a tunnel has task and card."""

    name: str
    origin: str
    files: ModelFiles
    task: Task | None = None
    card: Mapping[str, Any] | None = None
    mechanism: Mechanism | None = None


GGUF = ".gguf"


def source_of(options: RunOptions) -> ModelSource:
    """The files of a run's model, with what the user allows."""
    source = locate(options.model, options.revision, options.gguf)  # pyrefly: ignore[bad-argument-type]
    allowed = {name: getattr(options, name) for name in ("trust_remote_code", "allow_pickle", "allow_quantised")}
    return replace(source, files=replace(source.files, **allowed))


def locate(name: str | Path, revision: str | None = None, gguf: str | None = None) -> ModelSource:
    """Find the files of a model by name, without reading any weights.

    `gguf` names a file in a folder or a repository of the hub; a name that ends in `.gguf` is such a file. An alias
    wins over a folder of the same name (write `./name` for the folder). A `revision` can also follow the name
    (`pythia-410m@step1000`). Errors on unknown names list the nearest.
    """
    if not isinstance(name, str | Path):
        raise UsageError(
            asked="the model",
            found=f"it is a {type(name).__name__}",
            fix="Name it or its folder (interp.run takes what interp.load returned, interp.run_many takes names).",
        )
    text = str(name)
    base, _, at = text.partition("@")
    is_alias = isinstance(name, str) and base in ALIASES
    if text.startswith(MEMORY):
        raise UsageError(
            asked=f"the model {text!r}",
            found="it was a model in memory, which cannot be loaded by name",
            fix="Create it again and pass the object to `interp.load`.",
        )
    is_shipped = text.startswith((TUNNEL, PROGRAM))
    if is_shipped or text.endswith(GGUF) or (not is_alias and (isinstance(name, Path) or _is_path(text))):
        if revision is not None:
            raise UsageError(
                asked=f"the model {text!r} at the revision {revision!r}",
                found="only models of the hub have revisions",
                fix="Leave the revision out, or name the folder "
                "(for a tunnel: tunnel:<task>-<arch>[-<variant>]@<step>).",
            )
        folder = _shipped(text) if is_shipped else Path(text).expanduser()
        if text.endswith(GGUF):
            if gguf is not None or not is_file(folder):
                raise ModelError(
                    asked=f"the model {text}" + (f" with --gguf {gguf}" if gguf else ""),
                    found="two files are given" if gguf else "there is no such file",
                    fix="Give the path of one GGUF file; of a repository on the hub, its id and --gguf FILE.",
                )
            folder, gguf = folder.parent, folder.name
        files = files_in_folder(folder, gguf or CONFIG)
        return ModelSource(text, text, files, *(_kept_beside(files) if gguf is None else ()))
    if at and revision and at != revision:
        raise UsageError(
            asked=f"the model {text!r} at the revision {revision!r}",
            found="two revisions are given",
            fix="Keep the one you mean.",
        )
    if is_alias or _HUB_ID.fullmatch(base):
        at, hub_id = at or revision, ALIASES[base].hub_id if is_alias else base
        return ModelSource(f"{base}@{at}" if at else base, hub_id, files_on_hub(hub_id, at, gguf or CONFIG))
    hint = "It is a file: those of prompts follow --prompts, several with commas." if is_file(text) else ""
    raise UnknownName("model", text, [*ALIASES, *(TUNNEL + tunnel for tunnel in shipped_tunnels()),
                                       *(PROGRAM + program for program in shipped_programs())], hint)  # fmt: skip


def refuse_wrong_models(names: Iterable[str], revision: str | None = None, gguf: str | None = None) -> None:
    """Raise the errors of loading these models that need neither torch nor the hub."""
    for name in names:
        base = str(name).partition("@")[0]
        is_on_hub = base in ALIASES or (_HUB_ID.fullmatch(base) is not None and not _is_path(name))
        if not is_on_hub:
            locate(name, revision, gguf)


def files_behind(path: str) -> ModelFiles | None:
    """The files on this machine that a model in memory was loaded from, or None."""
    if path and (Path(path) / CONFIG).exists():
        return files_in_folder(Path(path))
    return cached_files(path) if _HUB_ID.fullmatch(path) else None


def _is_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name or is_folder(name)


def _kept_beside(files: ModelFiles) -> tuple[Any, ...]:
    """Task, card and mechanism of a tunnel, of a checkpoint of its training, or of a program; else nothing."""
    if CARD_NAME in files.names:
        return _read_tunnel(files.folder)
    if PROGRAM_CARD in files.names:
        return _read_program(files.folder)
    folder, home = files.folder.resolve(), files.folder.resolve().parent.parent
    if (home / CARD_NAME).is_file() and folder in kept_steps(home).values():
        task, card = _read_tunnel(home)
        # the figures of the card are of the last step
        return task, {**card, "step": int(folder.name), "figures": {}}
    return ()


def _shipped(name: str) -> Path:
    kind, _, rest = name.partition(":")
    if kind == "program":
        wanted, step, homes = rest, "", shipped_programs()
    else:
        (wanted, _, step), homes = rest.partition("@"), shipped_tunnels()
    home = named(kind, wanted, homes)
    if not step:
        return home
    steps = {str(number): path for number, path in kept_steps(home).items()}
    if step not in steps:
        raise UsageError(
            asked=f"the tunnel {wanted!r} at step {step}",
            found=f"it has the steps {[*steps]}" if steps else "only its last step was kept",
            fix=f"Name one of them, or use {TUNNEL}{wanted}.",
        )
    return steps[step]


def shipped_programs() -> dict[str, Path]:
    """The folder of every compiled program, by name."""
    homes = [load_entry("program", name).checkpoints for name in entries("program")]
    return {path.parent.name: path.parent for home in homes for path in sorted(home.glob(f"*/{PROGRAM_CARD}"))}


def _read_program(folder: Path) -> tuple[Task, dict[str, Any], Mechanism | None]:
    fix = "Restore the file, or compile it again: `interp programs rebuild`."
    with readable(f"the card of the program {folder / PROGRAM_CARD}", fix, error=ModelError):
        card = read_json(folder / PROGRAM_CARD)
        task = make_task(load_entry("program", "program"), {"program": str(card["program"])})
        return task, card, task.mechanism(folder)


def shipped_tunnels() -> dict[str, Path]:
    """The folder of every trained tunnel, by its name `<task>-<arch>[-<variant>]`."""
    tasks = {name: load_entry("tunnel", name).checkpoints for name in entries("tunnel")}
    found: dict[str, Path] = {}
    for home in dict.fromkeys(tasks.values()):
        for folder in sorted(path.parent for path in home.glob(f"*/{CARD_NAME}")):
            if tasks.get(read_card(folder).task) == home:
                found[folder.name] = folder
    return found


def kept_steps(folder: Path) -> dict[int, Path]:
    """The folders of a tunnel's checkpoints during training, by step."""
    kept = {int(path.name): path for path in (folder / "steps").glob("*") if path.is_dir() and path.name.isdigit()}
    return dict(sorted(kept.items()))


def _read_tunnel(folder: Path) -> tuple[Task, dict[str, Any]]:
    card = read_card(folder)
    kind = load_entry("tunnel", card.task)
    asked, found = f"the task of the tunnel card {folder / CARD_NAME}", f"{card.task} cannot have these parameters"
    fix = "Restore the file, or train the tunnel again: `interp tunnel train`."
    with readable(asked, fix, found=found, error=ModelError):  # of another type than the task's own checks expect
        return make_task(kind, card.parameters), asdict(card)
