"""The environment of a run: versions, machine, code revision."""

import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = (
    "interp", "torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy", "scikit-learn",
    "pandas", "pyarrow", "datasets", "accelerate", "plotly", "transformer-lens",
)  # fmt: skip


def environment() -> dict[str, Any]:
    """Versions of the packages that make numbers, the interpreter, threads, devices, and the code's revision."""
    import torch

    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "packages": {name: _version(name) for name in _PACKAGES},
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "code": _revision(Path(__file__).parent.parent),
        "byte_order": sys.byteorder,
    }


def show_versions() -> None:
    """Print the versions of interp and the libraries it uses, and the devices, for bug reports.

    Examples:
        >>> interp.show_versions()  # doctest: +ELLIPSIS
        Python ...
    """
    e = environment()
    packages = ", ".join(f"{name} {version}" for name, version in e["packages"].items() if version)
    print(f"Python {e['python']} on {e['platform']}, {e['threads']} threads, GPUs: {', '.join(e['gpus']) or 'none'}")
    print(packages)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _revision(folder: Path) -> dict[str, Any] | None:
    """The git revision of a source checkout and whether it was changed; None for an installed package."""
    if not (folder.parent / ".git").exists():
        return None
    words = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    revision, _, dirty = done.stdout.strip().partition("-")
    return {"revision": revision, "dirty": bool(dirty)}
