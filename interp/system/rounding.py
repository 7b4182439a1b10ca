"""How far two ways of computing the same thing may differ: by rounding alone."""

import torch

BOUND = {"float64": 1e-5, "float32": 1e-4, "bfloat16": 6e-2, "float16": 1e-2}
"""Largest relative error allowed, by the precision the model computes in."""


def relative_error(a: torch.Tensor, b: torch.Tensor) -> float:
    """Largest difference relative to the largest entry; infinite where shapes differ or something is not finite."""
    if a.shape != b.shape:
        return float("inf")
    a, b = a.float(), b.float().to(a.device)
    gap = (a - b).abs().max() / b.abs().max().clamp_min(1e-30)
    return float(gap) if torch.isfinite(gap) else float("inf")
