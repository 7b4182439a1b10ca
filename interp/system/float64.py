"""Double precision: on the CPU for devices without it, such as Apple's MPS."""

import torch

WITHOUT_FLOAT64 = frozenset({"mps"})
"""Kinds of device on which PyTorch has no float64."""


def has_float64(device: torch.device | str) -> bool:
    """Whether tensors on this device can be float64."""
    return torch.device(device).type not in WITHOUT_FLOAT64


def double(x: torch.Tensor) -> torch.Tensor:
    """`x` in float64, on the CPU if its device has none."""
    return (x if has_float64(x.device) else x.cpu()).double()
