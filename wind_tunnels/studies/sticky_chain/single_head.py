"""One causal attention head without residual stream or norms, and its gradients written out by hand (Paper II).

With inputs x, weights W_Q, W_K, W_V, W_O, width d_k of a key and T positions:

    s_ij = (x_i W_Q)·(x_j W_K) / √d_k,   α_i = softmax_{j ≤ i}(s_ij),   a_i = Σ_j α_ij x_j,   g_i = a_i W_V
    L = −(1/T) Σ_i log softmax(g_i W_O)[y_i],   u_i = ∂L/∂g_i = (p_i − e_{y_i}) W_Oᵀ / T,   b_ij = u_i·v_j

    ∂L/∂s_ij = α_ij (b_ij − u_i·g_i)                       the score gradient: advantage times responsibility
    ∂L/∂W_V  = Σ_j x_j (Σ_i α_ij u_i)ᵀ = Σ_i a_i u_iᵀ      the value law, carried on to the weights
    ∂L/∂W_Q  = C W_K / √d_k,   ∂L/∂W_K = Cᵀ W_Q / √d_k,    C = Σ_ij ∂L/∂s_ij x_i x_jᵀ

Many heads, each on a sequence of its own, are computed at once, in blocks of queries: a row of α is used for its a_i
and its part of C while it lies in the cache, and the T × T matrix is never kept. Losses are in nats here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from interp.information import BITS_PER_NAT

WEIGHTS: tuple[str, ...] = ("w_q", "w_k", "w_v", "w_o")

_QUERIES = 64
"""Queries of a block; at 2,000 keys and five heads two blocks of rows are 5 MB."""

_SAFE_SCORE = 60.0
"""exp of it, summed over many keys, is far from float32's largest; beyond, rows are shifted by their maximum."""


@dataclass(frozen=True)
class HeadPass:
    """What one pass gives: losses and entropies in nats, fractions right, gradients; the first axis counts heads."""

    loss: torch.Tensor
    entropy: torch.Tensor
    accuracy: torch.Tensor
    mixed: torch.Tensor
    """a_i: inputs weighted by the responsibilities, `[head, pos, feature]`."""
    error: torch.Tensor
    """(p_i − e_{y_i}) / T, the gradient at the logits, `[head, pos, class]`."""
    gradients: Mapping[str, torch.Tensor]


def head_pass(inputs: torch.Tensor, targets: torch.Tensor, weights: Mapping[str, torch.Tensor]) -> HeadPass:
    """Losses and gradients of heads `[head, in, out]` on inputs `[head, pos, feature]` and classes `[head, pos]`."""
    n_heads, n_pos, n_features = inputs.shape
    w_q, w_k, w_v, w_o = (weights[name] for name in WEIGHTS)
    scale = w_q.shape[-1] ** -0.5
    q, k = inputs @ w_q * scale, inputs @ w_k  # [head, pos, d_key]
    ones = inputs.new_ones(n_heads, n_pos, 1)
    keys = k.mT.contiguous()  # [head, d_key, pos]
    values = torch.cat([inputs @ w_v, ones], dim=-1).mT.contiguous()  # [head, d_value + 1, pos]
    counted = torch.cat([inputs, ones], dim=-1)  # [head, pos, feature + 1]
    is_large = bool((q.norm(dim=-1).amax(-1) * k.norm(dim=-1).amax(-1)).amax() > _SAFE_SCORE)
    q_bits = q * BITS_PER_NAT  # powers of two: the exponential is slow where the result is zero
    later = torch.full((_QUERIES, _QUERIES), -1e30, dtype=inputs.dtype).triu(1)
    rows, changes = (inputs.new_empty(n_heads * _QUERIES * n_pos) for _ in range(2))
    answers = torch.nn.functional.one_hot(targets, w_o.shape[-1]).to(inputs.dtype)
    mixed, log_p = torch.empty_like(inputs), torch.empty_like(answers)
    error, outer = torch.empty_like(answers), inputs.new_zeros(n_heads, n_features, n_features)
    w_o_back = w_o.mT.contiguous()
    for start in range(0, n_pos, _QUERIES):
        stop = min(start + _QUERIES, n_pos)
        n, shape = stop - start, (n_heads, stop - start, stop)  # [head, query, key]
        weight = rows[: n_heads * n * stop].view(shape)
        torch.bmm(q_bits[:, start:stop], keys[..., :stop], out=weight)
        weight[..., start:] += later[:n, :n]
        if is_large:
            weight -= weight.amax(dim=-1, keepdim=True)
        weight.exp2_()
        sums = weight @ counted[:, :stop]  # [head, query, feature + 1], the last one counts
        total = sums[..., -1:]
        mixed[:, start:stop] = sums[..., :-1] / total
        g = mixed[:, start:stop] @ w_v  # [head, query, d_value]
        logits = g @ w_o  # [head, query, class]
        logits -= logits.amax(dim=-1, keepdim=True)
        p = logits.exp()
        normaliser = p.sum(dim=-1, keepdim=True)
        log_p[:, start:stop] = logits - normaliser.log()
        wrong = (p / normaliser - answers[:, start:stop]) / n_pos
        error[:, start:stop] = wrong
        u = wrong @ w_o_back  # [head, query, d_value]
        expected = (u * g).sum(dim=-1, keepdim=True)
        change = changes[: n_heads * n * stop].view(shape)
        torch.bmm(torch.cat([u, -expected], dim=-1) / total, values[..., :stop], out=change)
        change *= weight
        outer += inputs[:, start:stop].mT @ (change @ inputs[:, :stop])  # [head, feature, feature]
    u = error @ w_o_back
    gradients = {
        "w_q": outer @ w_k * scale,
        "w_k": outer.mT @ w_q * scale,
        "w_v": mixed.mT @ u,
        "w_o": (mixed @ w_v).mT @ error,
    }
    right = (log_p * answers).sum(dim=-1)
    return HeadPass(
        loss=-right.mean(dim=-1),
        entropy=-(log_p.exp() * log_p).sum(dim=(-2, -1)) / n_pos,
        accuracy=(right == log_p.amax(dim=-1)).to(inputs.dtype).mean(dim=-1),
        mixed=mixed,
        error=error,
        gradients=gradients,
    )


def best_values(found: HeadPass, w_v: torch.Tensor, w_o: torch.Tensor, ridge: float = 1e-6) -> torch.Tensor:
    """The closed-form M-step: the W_V that minimises a quadratic bound of the loss, responsibilities and W_O held.

    The Hessian of a log-softmax over C classes nowhere exceeds B = ½ (I − 11ᵀ/C) (Böhning 1992), so with e_i the errors
    at the logits

        L(W_V + D) ≤ L(W_V) + ⟨D, Aᵀ e W_Oᵀ⟩ + ½ tr(Dᵀ S D H),      S = AᵀA / T,   H = W_O B W_Oᵀ

    for every D, rows of A being a_i. Its minimum D = −S⁻¹ (Aᵀ e W_Oᵀ) H⁻¹ is a responsibility-weighted least squares,
    and like the M-step of EM (Dempster, Laird and Rubin 1977) it never raises the loss. `ridge` times its mean
    eigenvalue is added to S and to H, which keeps the bound a bound. Solved in float64.
    """
    a, e, out = found.mixed.double(), found.error.double(), w_o.double()
    n_classes = out.shape[-1]
    bound = 0.5 * (torch.eye(n_classes, dtype=torch.float64) - 1 / n_classes)
    left, right = _ridged(a.mT @ a / a.shape[1], ridge), _ridged(out @ bound @ out.mT, ridge)
    gradient = a.mT @ e @ out.mT
    step = torch.linalg.solve(right, torch.linalg.solve(left, gradient).mT).mT
    return w_v - step.to(w_v.dtype)


def _ridged(matrix: torch.Tensor, ridge: float) -> torch.Tensor:
    mean = matrix.diagonal(dim1=-2, dim2=-1).mean(dim=-1)[:, None, None]
    return matrix + ridge * mean * torch.eye(matrix.shape[-1], dtype=matrix.dtype)
