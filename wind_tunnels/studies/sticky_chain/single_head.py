"""One causal attention head without residual stream or norms (Paper II); many heads, each on a sequence of its own.

With inputs x, weights W_Q, W_K, W_V, W_O and width d_k of a key:

    α_i = softmax_{j ≤ i}((x_i W_Q)·(x_j W_K) / √d_k),   a_i = Σ_j α_ij x_j,   logits_i = a_i W_V W_O
"""

from collections.abc import Mapping

import torch
from torch.nn import functional as F

WEIGHTS: tuple[str, ...] = ("w_q", "w_k", "w_v", "w_o")

_WIDTH = 16
"""Queries, keys and values are filled up to a multiple of it: other widths take torch's kernel several times longer."""


def head_logits(inputs: torch.Tensor, weights: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Logits `[head, pos, class]` of heads `[head, in, out]` on inputs `[head, pos, feature]`."""
    return _attended(inputs, weights, inputs @ weights["w_v"]) @ weights["w_o"]


def losses(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy of each head in nats, `[head]`; `targets` are classes `[head, pos]`."""
    return F.cross_entropy(logits.mT, targets, reduction="none").mean(dim=1)


def _attended(inputs: torch.Tensor, weights: Mapping[str, torch.Tensor], values: torch.Tensor) -> torch.Tensor:
    """Values `[head, pos, d]` weighted by the responsibilities."""
    q, k = inputs @ weights["w_q"], inputs @ weights["w_k"]
    widest = max(q.shape[-1], values.shape[-1])
    q_, k_, v_ = (F.pad(x, (0, widest + -widest % _WIDTH - x.shape[-1]))[:, None] for x in (q, k, values))
    found = F.scaled_dot_product_attention(q_, k_, v_, is_causal=True, scale=q.shape[-1] ** -0.5)
    return found[:, 0, :, : values.shape[-1]]


@torch.no_grad()
def best_values(
    inputs: torch.Tensor, targets: torch.Tensor, weights: Mapping[str, torch.Tensor], ridge: float = 1e-6
) -> torch.Tensor:
    """The closed-form M-step: the W_V that minimises a quadratic bound of the loss, responsibilities and W_O held.

    The Hessian of a log-softmax over C classes nowhere exceeds B = ½ (I − 11ᵀ/C) (Böhning 1992), so with e_i the errors
    (p_i − e_{y_i}) / T at the logits

        L(W_V + D) ≤ L(W_V) + ⟨D, Aᵀ e W_Oᵀ⟩ + ½ tr(Dᵀ S D H),      S = AᵀA / T,   H = W_O B W_Oᵀ

    for every D, rows of A being a_i. Its minimum D = −S⁻¹ (Aᵀ e W_Oᵀ) H⁻¹ is a responsibility-weighted least squares,
    and like the M-step of EM (Dempster, Laird and Rubin 1977) it never raises the loss. `ridge` times its mean
    eigenvalue is added to S and to H, which keeps the bound a bound. Solved in float64.
    """
    mixed, w_v, out = _attended(inputs, weights, inputs), weights["w_v"], weights["w_o"].double()
    p = (mixed @ w_v @ weights["w_o"]).softmax(dim=-1)
    n_pos, n_classes = p.shape[1:]
    a, e = mixed.double(), ((p - F.one_hot(targets, n_classes)) / n_pos).double()
    bound = 0.5 * (torch.eye(n_classes, dtype=torch.float64) - 1 / n_classes)
    left, right = _ridged(a.mT @ a / n_pos, ridge), _ridged(out @ bound @ out.mT, ridge)
    step = torch.linalg.solve(right, torch.linalg.solve(left, a.mT @ e @ out.mT).mT).mT
    return w_v - step.to(w_v.dtype)


def _ridged(matrix: torch.Tensor, ridge: float) -> torch.Tensor:
    mean = matrix.diagonal(dim1=-2, dim2=-1).mean(dim=-1)[:, None, None]
    return matrix + ridge * mean * torch.eye(matrix.shape[-1], dtype=matrix.dtype)
