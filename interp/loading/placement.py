"""The device and precision of a model, chosen by its configuration before any weights are read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from transformers import PreTrainedConfig

from interp.errors import ModelError, UsageError
from interp.options import RunOptions
from interp.system.float64 import has_float64
from interp.system.memory import available_bytes
from interp.system.plain_numbers import DTYPES, device_name
from interp.system.processes import local_rank, n_started

HEADROOM = 1.2
"""Free memory, in sizes of the weights, for float32 to be the default on a GPU: activations need room too."""

_SPREADS = ("auto", "balanced", "balanced_low_0", "sequential")
"""Accelerate's ways to spread a model over devices."""

_HAZARDS = {
    "bfloat16": "bfloat16 keeps 8 bits of a number, so each is off by up to 0.4 %; attention entropies moved by up to "
    "2e-3 bits where both were measured. Use float32 for geometry where it fits.",
    "float16": "float16 becomes infinite above 65504, which attention scores and residual streams of large models can "
    "reach, and keeps 11 bits of a number. Use float32 for geometry where it fits.",
}


@dataclass(frozen=True)
class Placement:
    """Precision and device of a model, or the `device_map` that spreads it over several devices."""

    dtype: str
    device: str
    device_map: str | Mapping[str, int | str] | None = None


def hazards(dtype: str, stored_as: str | None = None) -> list[str]:
    """The effects of a precision, and of weights rounded in a file, on the numbers read from a model."""
    rounded = f"rounded weights ({stored_as}): directions, angles and predictions are those of the rounded model"
    return [*filter(None, [_HAZARDS.get(dtype)]), *([rounded] if stored_as else [])]


def choose_placement(
    config: PreTrainedConfig, n_parameters: int, options: RunOptions, *, is_loaded: bool = True
) -> Placement:
    """The requested placement; by default a GPU if there is one, and float32 unless only bfloat16 fits on it.

    Raises `ModelError` for Phi in float16 and, if it `is_loaded`, for weights that do not fit; `UsageError` for an
    unavailable device.
    """
    dtype, device_map = options.dtype, options.device_map
    device = None if options.device is None else str(options.device)
    if device_map is not None and is_loaded and n_started() > 1:
        raise UsageError(
            asked=f"device_map={device_map!r} in each of {n_started()} processes",
            found="every process would spread the model over the same devices",
            fix="Spread it in one process, or load it whole in every process, on its own GPU.",
        )
    if device_map is not None and device is not None:
        raise UsageError(
            asked=f"device={device!r} and device_map={device_map!r}",
            found="both say where to put the model",
            fix="Give one of them.",
        )
    if isinstance(device_map, str) and device_map not in _SPREADS:
        fix = f"Give one of {', '.join(_SPREADS)}, or name one device (--device)."
        raise UsageError(asked=f"device_map={device_map!r}", found="there is no such way to spread a model", fix=fix)
    for place in device_map.values() if isinstance(device_map, Mapping) else ():
        if place != "disk":
            _device(device_name(place))
    placement = Placement("float32", str(_everywhere()[0] if device_map is not None else _device(device)), device_map)
    if dtype is None:
        on_gpu = any(place.type == "cuda" for place in _places(placement))
        is_tight = on_gpu and n_parameters * DTYPES["float32"] * HEADROOM > free_bytes(placement)
        dtype = "bfloat16" if is_tight else "float32"
    dtype = str(dtype)
    refuse_precision(config, dtype)
    if dtype == "float64" and not all(has_float64(place) for place in _places(placement)):
        raise UsageError(
            asked=f"float64 on {placement.device}",
            found="this kind of device has no float64",
            fix="Use float32 there, or device='cpu'.",
        )
    placement = replace(placement, dtype=dtype)
    if is_loaded and getattr(config, "quantization_config", None) is None:  # the size of others is unknown
        _refuse_if_too_big(config, n_parameters, placement, free_bytes(placement))
    return placement


def free_bytes(placement: Placement) -> int:
    """Free memory on the devices of a placement, in bytes."""
    return sum(available_bytes(place) for place in _places(placement))


def _places(placement: Placement) -> list[torch.device]:
    return [torch.device(placement.device)] if placement.device_map is None else _everywhere()


def refuse_precision(config: PreTrainedConfig, dtype: str) -> None:
    """Raise `ModelError` for a precision in which the family's numbers are wrong."""
    if config.model_type == "phi" and dtype == "float16":
        raise ModelError(
            asked="a Phi model in float16",
            found="its attention overflows there: products of queries and keys exceed 65504, the largest float16, "
            "and become infinite",
            fix="Use float32, or bfloat16 where memory is short.",
        )


def _everywhere() -> list[torch.device]:
    gpus = [torch.device("cuda", i) for i in range(torch.cuda.device_count())]
    return [*gpus, torch.device("cpu")]


def _device(name: str | None) -> torch.device:
    """The device of this name, or the default; several processes on a machine get different GPUs."""
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and n_started() > 1 and torch.cuda.device_count():
        name = f"cuda:{local_rank() % torch.cuda.device_count()}"
    device = torch.device(name)
    is_there = {
        "cpu": True,
        "cuda": (device.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not is_there.get(device.type, False):
        shown = [*map(str, reversed(_everywhere())), *(["mps"] if is_there["mps"] else [])]
        found = f"PyTorch {torch.__version__} sees no such device on this machine"
        raise UsageError(asked=f"the device {name!r}", found=found, fix=f"Use {' or '.join(shown)}.")
    return device


def _refuse_if_too_big(config: PreTrainedConfig, n_parameters: int, placement: Placement, available: int) -> None:
    needed = n_parameters * DTYPES[placement.dtype]
    if needed <= available:
        return
    fitting = [name for name in ("float32", "bfloat16") if n_parameters * DTYPES[name] <= available]
    fix = f"Load it with dtype={fitting[0]!r}. " if fitting else ""
    if placement.device_map is None and placement.device != "cpu":
        fix += "Or spread it over all devices with device_map='auto'. "
    raise ModelError(
        asked=f"a {config.model_type} model of {n_parameters:,} parameters in {placement.dtype}",
        found=f"its weights take {needed / 1e9:.1f} GB, and {available / 1e9:.1f} GB are free "
        f"({'all devices' if placement.device_map else placement.device})",
        fix=fix or "Free some memory, use a larger machine, or choose a smaller model.",
    )
