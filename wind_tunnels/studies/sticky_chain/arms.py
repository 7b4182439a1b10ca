"""The learning rules that are compared: each trains one causal head per seed, without residual stream and norms.

With inputs x, weights W_Q, W_K, W_V, W_O and width d_k of a key (Paper II):

    α_i = softmax_{j ≤ i}((x_i W_Q)·(x_j W_K) / √d_k),   a_i = Σ_j α_ij x_j,   logits_i = a_i W_V W_O
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch.nn import functional as F

from interp.system.progress import Report
from interp.system.threads import side_by_side

from .process import N_FEATURES, StickyChain, Walk

WEIGHTS: tuple[str, ...] = ("w_q", "w_k", "w_v", "w_o")

_WIDTH = 16
"""Queries, keys and values are padded to a multiple of it, at which torch's kernel is several times faster."""

_KEYS, _VALUES, _SPREAD = 10, 15, 0.1
"""Widths of keys and values and the standard deviation of fresh weights, as published."""

_MATRICES = {"w_v": ("w_v",), "w_o": ("w_o",), "w_qk": ("w_q", "w_k"), "w_vo": ("w_v", "w_o"), "all": WEIGHTS}


@dataclass(frozen=True)
class Arm:
    """A learning rule: the rate of every matrix and the update; `m_step` solves for W_V and descends on the rest."""

    name: str
    meaning: str
    rates: Mapping[str, float]
    rule: Literal["descent", "adam", "m_step"] = "descent"


def arms_of(rate: float, factor: float, rates: Sequence[float], adam_rates: Sequence[float]) -> tuple[Arm, ...]:
    """Plain descent first, then `factor` times the rate on some matrices, other rates for all, Adam and the M-step."""
    base = dict.fromkeys(WEIGHTS, rate)
    named = {"w_v": "W_V", "w_o": "W_O", "w_qk": "W_Q and W_K", "w_vo": "W_V and W_O", "all": "all four"}
    faster = [
        Arm(name, f"descent, {factor:g} times the rate on {named[name]}", base | dict.fromkeys(matrices, rate * factor))
        for name, matrices in _MATRICES.items()
    ]
    grid = [Arm(f"sgd_{r:g}", f"descent at {r:g}", dict.fromkeys(WEIGHTS, r)) for r in rates]
    adam = [Arm(f"adam_{r:g}", f"Adam at {r:g}", dict.fromkeys(WEIGHTS, r), "adam") for r in adam_rates]
    solved = Arm("m_step", f"W_V by its closed-form M-step, descent at {rate:g} on the rest", base, "m_step")
    return (Arm("sgd", f"descent at {rate:g}", base), *faster, *grid, *adam, solved)


@dataclass(frozen=True)
class Start:
    """Sequences and fresh weights of each seed, the same for every arm."""

    chain: StickyChain
    seeds: Sequence[int]
    inputs: torch.Tensor
    targets: torch.Tensor
    weights: Mapping[str, torch.Tensor]
    surprise_bits: Float[np.ndarray, " seed"]
    """The loss of the true chain on each training sequence."""
    fresh_inputs: torch.Tensor
    fresh_targets: torch.Tensor
    """A second sequence per seed that no arm is trained on."""


def draw_start(chain: StickyChain, seeds: Sequence[int], n_positions: int) -> Start:
    """Sequences and weights of these seeds, in float32; each depends on its own seed alone."""
    shapes = {
        "w_q": (N_FEATURES, _KEYS), "w_k": (N_FEATURES, _KEYS), "w_v": (N_FEATURES, _VALUES),
        "w_o": (_VALUES, chain.n_symbols),
    }  # fmt: skip
    walks, weights, fresh = [], [], []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        walks.append(chain.sample(rng, n_positions))
        weights.append({name: _SPREAD * rng.standard_normal(shapes[name]) for name in WEIGHTS})
        fresh.append(chain.sample(rng, n_positions))
    surprise = np.concatenate([chain.surprise_bits(symbols) for _, symbols in walks])
    drawn = {name: torch.from_numpy(np.stack([w[name] for w in weights])).float() for name in WEIGHTS}
    return Start(chain, seeds, *_read(walks), drawn, surprise, *_read(fresh))


def _read(walks: Sequence[Walk]) -> tuple[torch.Tensor, torch.Tensor]:
    inputs, symbols = (np.concatenate(parts) for parts in zip(*walks, strict=True))
    return torch.from_numpy(inputs).float(), torch.from_numpy(symbols[:, 1:])


@dataclass(frozen=True)
class LearningCurve:
    """Figures of one arm after each step, from 0; `fresh_loss_nats` after the `kept_steps`. NaN once it diverged."""

    loss_nats: Float[np.ndarray, "step seed"]
    entropy_nats: Float[np.ndarray, "step seed"]
    accuracy: Float[np.ndarray, "step seed"]
    fresh_loss_nats: Float[np.ndarray, "kept seed"]


Curves = Mapping[str, LearningCurve]
"""By name of the arm."""


def kept_steps(n_steps: int) -> Int[np.ndarray, " kept"]:
    """The tabulated steps: 0, then about evenly on a log scale to the last."""
    return np.unique(np.concatenate([[0], np.round(np.geomspace(1, n_steps, 40)).astype(np.int64)]))


def head_logits(inputs: torch.Tensor, weights: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Logits `[head, pos, class]` of heads `[head, in, out]` on inputs `[head, pos, feature]`."""
    return _attended(inputs, weights, inputs @ weights["w_v"]) @ weights["w_o"]


def losses(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy of each head in nats, `[head]`; `targets` are classes `[head, pos]`."""
    return F.cross_entropy(logits.mT, targets, reduction="none").mean(dim=1)


def _attended(inputs: torch.Tensor, weights: Mapping[str, torch.Tensor], values: torch.Tensor) -> torch.Tensor:
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

    for every D, rows of A being a_i. Its minimum D = −S⁻¹ (Aᵀ e W_Oᵀ) H⁻¹ never raises the loss, like the M-step of EM
    (Dempster, Laird and Rubin 1977). `ridge` times the mean eigenvalue is added to S and to H. Solved in float64.
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


def train_arm(arm: Arm, start: Start, n_steps: int, step_done: Callable[[], None]) -> LearningCurve:
    """Train every seed's head by one rule, the whole sequence in every step."""
    weights = {name: weight.clone().requires_grad_() for name, weight in start.weights.items()}
    rule = torch.optim.Adam if arm.rule == "adam" else torch.optim.SGD
    optimiser = rule([{"params": [weight], "lr": arm.rates[name]} for name, weight in weights.items()])
    found = np.full((3, n_steps + 1, len(start.inputs)), np.nan)  # [loss entropy accuracy, step, seed]
    kept = kept_steps(n_steps)
    fresh = np.full((len(kept), len(start.inputs)), np.nan)  # [kept, seed]
    for step in range(n_steps + 1):
        logits = head_logits(start.inputs, weights)
        loss, log_p = losses(logits, start.targets), logits.detach().log_softmax(dim=-1)
        entropy = -(log_p.exp() * log_p).sum(dim=-1).mean(dim=-1)
        accuracy = (log_p.argmax(dim=-1) == start.targets).float().mean(dim=-1)
        found[:, step] = torch.stack([loss.detach(), entropy, accuracy]).numpy()
        if not np.isfinite(found[0, step]).any():
            break
        with torch.no_grad():
            for place in np.flatnonzero(kept == step):
                fresh[place] = losses(head_logits(start.fresh_inputs, weights), start.fresh_targets).numpy()
        if step < n_steps:
            optimiser.zero_grad()
            loss.sum().backward()
            solved = best_values(start.inputs, start.targets, weights) if arm.rule == "m_step" else None
            optimiser.step()
            if solved is not None:
                weights["w_v"].data.copy_(solved)
        step_done()
    found[:, ~np.isfinite(found[0])] = np.nan
    fresh[~np.isfinite(found[0, kept])] = np.nan
    return LearningCurve(found[0], found[1], found[2], fresh)


def train_all(arms: Sequence[Arm], start: Start, n_steps: int, progress: Report) -> dict[str, LearningCurve]:
    """Train every arm from the same start, in parallel; each on one thread, so that figures do not depend on them."""
    total, done = len(arms) * (n_steps + 1), count(1)  # which threads share

    def trained(arm: Arm) -> LearningCurve:
        return train_arm(arm, start, n_steps, lambda: progress(next(done), total))

    curves = side_by_side(trained, arms, at_once=len(arms))
    return {arm.name: curve for arm, curve in zip(arms, curves, strict=True)}
