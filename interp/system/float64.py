"""Double precision on whatever device a tensor lies: Apple's MPS has none, and what needs it goes to the CPU."""

import torch

WITHOUT_FLOAT64 = frozenset({"mps"})
"""Kinds of device on which PyTorch has no float64 and says so by a TypeError."""


def has_float64(device: torch.device | str) -> bool:
    """Whether tensors on this device can be float64."""
    return torch.device(device).type not in WITHOUT_FLOAT64


def double(x: torch.Tensor) -> torch.Tensor:
    """`x` in float64: on its own device, on the CPU where that device has none."""
    return (x if has_float64(x.device) else x.cpu()).double()
