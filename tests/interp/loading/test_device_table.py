"""The table of devices in the documentation, row by row; and double precision where a device has none."""

import re
from typing import get_args, get_type_hints

import pytest
import torch
from interp.wind_tunnels.training.plan import Recipe

from interp.errors import UsageError
from interp.loading import placement
from interp.loading.placement import choose_placement
from interp.options import RunOptions
from interp.system.float64 import double, has_float64
from tests.paths import ROOT
from tests.pretended_device import DEVICE, pretended_device
from tests.tiny_models import tiny_config

PAGE = (ROOT / "docs/reference/devices.md").read_text(encoding="utf-8")


def rows() -> dict[str, list[str]]:
    """What the table says of CPU, CUDA and MPS."""
    table = PAGE.split("## CPU, CUDA, MPS")[1].split("\n##")[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")
    ]
    return {name: said for name, *said in cells}


@pytest.fixture
def machine(monkeypatch):
    """A machine with a CUDA GPU, an Apple one, or neither, and memory for so many bytes."""

    def pretend(n_gpus: int = 0, has_mps: bool = False, n_bytes: int = 1 << 40) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: n_gpus > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: has_mps)
        monkeypatch.setattr(placement, "available_bytes", lambda device: n_bytes)

    return pretend


def put(**asked):
    found = choose_placement(tiny_config("llama"), 1_000_000, RunOptions(**asked), is_loaded=False)
    return found.device, found.dtype


def test_the_rows_of_what_is_chosen_and_of_dtypes(machine):
    assert rows()["chosen"] == ["where there is no CUDA GPU", "where there is one", "only by `--device mps`"]
    machine()
    assert put()[0] == "cpu"
    machine(n_gpus=1, has_mps=True)
    assert put()[0] == "cuda"
    machine(has_mps=True)
    assert put()[0] == "cpu" and put(device="mps")[0] == "mps"
    assert rows()["dtype"] == ["float32, or `--dtype`", "float32; bfloat16 if only that fits", "float32, or `--dtype`"]
    assert "refused" in rows()["float64"][2]
    for n_bytes, of_cuda in ((1 << 40, "float32"), (3_000_000, "bfloat16")):
        machine(n_gpus=1, has_mps=True, n_bytes=n_bytes)
        assert [put(device=device)[1] for device in ("cpu", "cuda", "mps")] == ["float32", of_cuda, "float32"]
        assert put(device="mps", dtype="float16") == ("mps", "float16")
    assert put(device="cpu", dtype="float64")[1] == put(device="cuda", dtype="float64")[1] == "float64"
    with pytest.raises(UsageError, match="no float64"):
        put(device="mps", dtype="float64")


def test_the_rows_of_tf32_and_of_trainings():
    assert rows()["TF32"][1].startswith("off")
    assert torch.get_float32_matmul_precision() == "highest" and not torch.backends.cuda.matmul.allow_tf32
    assert rows()["`interp tunnel train`"] == ["yes, the default", "`--device cuda`", "refused"]
    assert Recipe().device == "cpu"
    assert get_args(get_type_hints(Recipe)["device"]) == ("cpu", "cuda"), "what the command takes"


BARE = re.compile(r"(?<!\bcpu\(\))\.double\(\)|\.to\([^)]*(?:torch\.float64|torch\.double)\)")
"""`x.double()`, `x.to(device, torch.float64)`: errors where `x` lies on a device without it."""

ON_THE_CPU = {
    "interp/system/float64.py", "interp/hooks/layer_gradients.py", "interp/editing/features.py",
    "wind_tunnels/studies/sticky_chain/arms.py",
}  # fmt: skip
"""`double` itself, a model that `in_float64` has moved, arrays read from a file, a study of the CPU alone."""


def test_float64_is_asked_for_in_one_place_on_devices_that_have_it():
    found = set()
    for package in ("interp", "probes", "prompts", "wind_tunnels", "reports"):
        for path in (ROOT / package).rglob("*.py"):
            if BARE.search(path.read_text(encoding="utf-8")):
                found.add(path.relative_to(ROOT).as_posix())
    assert found == ON_THE_CPU
    assert BARE.search("y = x[0].double()") and not BARE.search("x.cpu().double()")
    assert [kind for kind in ("cpu", "cuda:1", "mps", "mps:0") if has_float64(kind)] == ["cpu", "cuda:1"]
    x = torch.arange(3, dtype=torch.bfloat16)
    assert double(x).dtype == torch.float64
    with pretended_device():
        there = x.to(DEVICE)
        with pytest.raises(TypeError, match="has no torch"):
            there.double()
        moved = double(there)
        assert (moved.device.type, moved.dtype, moved.tolist()) == ("cpu", torch.float64, [0.0, 1.0, 2.0])
