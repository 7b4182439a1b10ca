"""Lenses in files: safetensors, and the torch archives in which Jacobian lenses are published.

An archive holds `J` {layer: [d_model, d_model]}, `n_prompts`, `source_layers`, `d_model` and perhaps `metadata`. Its
layer l is depth l + 1 here. Archives are read weights-only, so that no code in one can run.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from interp.errors import RecordError, UsageError
from interp.lens.kinds import KINDS, FittedLens, Kind
from interp.loading.aliases import MEMORY
from interp.model import Carrying, Model
from interp.system.foreign_files import readable
from interp.system.plain_numbers import path as plain_path
from interp.system.whole_files import telling, writing

FORMAT = 1
ARCHIVES = (".pt", ".pth")
"""The endings of torch archives."""

_OF_HEADER = ("kind", "model", "n_layers", "d_model", "n_prompts", "about")
_FIX = "Give a file that `interp lens fit` wrote, or a published torch archive (.pt) with `J` and `d_model`."


def save_lens(lens: FittedLens, path: str | Path) -> Path:
    """Write a lens to a file.

    Args:
        lens: The lens.
        path: The file. A name that ends in `.pt` or `.pth` gives the torch archive in which lenses are published
            (Jacobian lens only, half precision), any other safetensors.

    Returns:
        The path.

    Raises:
        UsageError: A torch archive cannot hold this kind of lens.
        RecordError: The file cannot be written.

    Examples:
        >>> model = interp.load("tunnel:bijection-gpt-neox")
        >>> lens = interp.fit_lens(model, interp.sampled_prompts(model.task, 20), kind="tuned", seconds=1.0, quiet=True)
        >>> interp.save_lens(lens, "tuned.safetensors").name
        'tuned.safetensors'
    """
    path = Path(path)
    refuse_layout(lens.kind, path)
    with telling(f"writing the lens {path}"), writing(path) as draft:
        if path.suffix in ARCHIVES:
            torch.save(_archive(lens), draft)
        else:
            header = {name: getattr(lens, name) for name in _OF_HEADER} | {"format": FORMAT}
            header |= {"error_bits": {str(depth): error for depth, error in lens.error_bits.items()}}
            tensors = {f"matrix.{depth}": x.contiguous() for depth, x in lens.matrices.items()}
            tensors |= {f"offset.{depth}": x.contiguous() for depth, x in lens.offsets.items()}
            save_file(tensors, draft, {"interp_lens": json.dumps(header)})
    return path


def refuse_layout(kind: Kind, path: Path) -> None:
    """Raise `UsageError` if a file of this name cannot hold this kind of lens."""
    if path.suffix in ARCHIVES and kind != "jacobian":
        raise UsageError(
            asked=f"the {kind} lens as a torch archive",
            found="the published layout holds Jacobian lenses alone",
            fix="Give a name that ends in .safetensors.",
        )


def open_lens(path: str | Path, model: Model | None = None) -> FittedLens:
    """Open a lens from a file.

    Args:
        path: A file of `interp.save_lens`, or a published torch archive (`.pt`, `.pth`).
        model: The lens's model, needed for an archive, which does not state the number of layers.

    Returns:
        The lens.

    Raises:
        RecordError: The file is missing, damaged or no lens.
        UsageError: An archive is opened without its model.

    Examples:
        >>> model = interp.load("tunnel:bijection-gpt-neox")
        >>> interp.open_lens(interp.save_lens(interp.FittedLens.logit(model), "lens.safetensors")).kind
        'logit'
    """
    path = Path(path)
    with readable(f"the lens {path}", _FIX):
        path.open("rb").close()  # safetensors has a misleading message for a folder
        return _of_archive(path, model) if path.suffix in ARCHIVES else _of_tensors(path)


Asked = Carrying | str | Path | None
"""A lens, the file of one, or the logit lens."""


def with_lens(model: Model, lens: Asked) -> Model:
    """The model with a lens or the lens in a file; None is the logit lens."""
    given = _given(lens)
    if given is None:
        return model
    return (given if isinstance(given, FittedLens) else open_lens(given, model)).on(model)


def name_of_lens(lens: Asked) -> str | None:
    """The name of a lens in a record: its file, or that it was in memory."""
    given = _given(lens)
    if isinstance(given, FittedLens):
        return f"{MEMORY}{given.kind}"
    return None if given is None else str(given)


def lens_bytes(lens: Asked) -> int:
    """The bytes of a lens in memory, or of its file."""
    given = _given(lens)
    if given is None:
        return 0
    if isinstance(given, FittedLens):
        return 4 * given.d_model * (given.d_model * len(given.matrices) + len(given.offsets))
    with telling(f"reading the lens {given}", _FIX):
        return given.stat().st_size


def _given(lens: Asked) -> FittedLens | Path | None:
    if lens is None or isinstance(lens, FittedLens):
        return lens
    if isinstance(lens, str | Path):
        return plain_path(lens)
    raise UsageError(
        asked="a run through a lens",
        found=f"a {type(lens).__name__} is none",
        fix="Give what fit_lens returns, or a file.",
    )


def _of_tensors(path: Path) -> FittedLens:
    with safe_open(path, "pt") as file:
        header = json.loads((file.metadata() or {}).get("interp_lens", "{}"))
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if header.get("format") != FORMAT or header.get("kind") not in KINDS:
        raise RecordError(asked=f"the lens {path}", found="its header is not that of a lens of this version", fix=_FIX)

    def by_depth(what: str) -> dict[int, torch.Tensor]:
        return {int(name.partition(".")[2]): x for name, x in tensors.items() if name.startswith(f"{what}.")}

    errors = {int(depth): float(error) for depth, error in header["error_bits"].items()}
    named = {name: header[name] for name in _OF_HEADER}
    return _refuse_misshapen(
        FittedLens(**named, matrices=by_depth("matrix"), offsets=by_depth("offset"), error_bits=errors), path
    )


def _archive(lens: FittedLens) -> dict[str, Any]:
    layers = [depth - 1 for depth in lens.depths if depth]
    return {
        "J": {layer: lens.matrices[layer + 1].half() for layer in layers},
        "n_prompts": lens.n_prompts, "source_layers": layers, "d_model": lens.d_model,
        "metadata": {"model_name": lens.model, **lens.about},
    }  # fmt: skip


def _of_archive(path: Path, model: Model | None) -> FittedLens:
    held = torch.load(path, map_location="cpu", weights_only=True)
    if model is None:
        raise UsageError(
            asked=f"the published lens {path}",
            found="it does not say how many layers its model has",
            fix="Give the model with it: open_lens(path, model).",
        )
    matrices = {int(layer) + 1: matrix.float() for layer, matrix in held["J"].items()}
    about = dict(held.get("metadata", {}))
    name = str(about.pop("model_name", model.name))
    about = about if "held_out" in about else {}  # another program wrote it
    n, d_model = int(held.get("n_prompts", 0)), int(held["d_model"])
    return _refuse_misshapen(FittedLens("jacobian", name, model.info.n_layers, d_model, n, matrices, about=about), path)


def _refuse_misshapen(lens: FittedLens, path: Path) -> FittedLens:
    d = lens.d_model
    strange = [depth for depth, x in lens.matrices.items() if x.shape != (d, d) or not x.isfinite().all()]
    strange += [depth for depth, x in lens.offsets.items() if x.shape != (d,) or not x.isfinite().all()]
    strange += [depth for depth in lens.matrices if not 0 <= depth <= lens.n_layers]
    if strange:
        found = f"what it holds of depth {strange[0]} is not finite, of another width than {d}, or of no such depth"
        raise RecordError(asked=f"the lens {path}", found=found, fix=_FIX)
    return lens
