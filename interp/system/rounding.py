"""Differences between two computations of the same numbers that rounding explains."""

import torch

BOUND = {"float64": 1e-5, "float32": 1e-4, "bfloat16": 6e-2, "float16": 1e-2}
"""Largest relative error allowed, by the precision the model computes in."""

NEVER = 104.0
"""A logit so far below the largest (in nats) has a probability of exactly 0 in float32."""


def relative_error(a: torch.Tensor, b: torch.Tensor) -> float:
    """Largest difference relative to the largest entry; infinite if shapes differ or a number is not finite."""
    if a.shape != b.shape:
        return float("inf")
    a, b = a.float(), b.float().to(a.device)
    gap = (a - b).abs().max() / b.abs().max().clamp_min(1e-30)
    return float(gap) if torch.isfinite(gap) else float("inf")


def error_of_logits(a: torch.Tensor, b: torch.Tensor) -> float:
    """`relative_error` over tokens with a probability above 0: padding with a bias of -1e9 would hide any error."""
    if a.shape != b.shape:
        return float("inf")
    a, b = a.float(), b.float().to(a.device)
    # NaN counts as possible
    possible = ~((a <= a.amax(-1, keepdim=True) - NEVER) & (b <= b.amax(-1, keepdim=True) - NEVER))
    return relative_error(a[possible], b[possible]) if possible.any() else float("inf")
