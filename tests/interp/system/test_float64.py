"""Double precision where a device has none: its tensors go to the CPU, and nothing else in the product asks for it."""

import re

import pytest
import torch

from interp.system.float64 import double, has_float64
from tests.paths import ROOT
from tests.pretended_device import DEVICE, pretended_device

BARE = re.compile(r"(?<!\bcpu\(\))\.double\(\)|\.to\([^)]*(?:torch\.float64|torch\.double)\)")
"""`x.double()`, `x.to(device, torch.float64)`: errors where `x` lies on a device without it."""

ON_THE_CPU = {
    "interp/system/float64.py", "interp/hooks/layer_gradients.py", "interp/editing/features.py",
    "wind_tunnels/studies/sticky_chain/single_head.py",
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
