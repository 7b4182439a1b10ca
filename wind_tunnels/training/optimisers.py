"""Muon for the hidden matrices, AdamW for everything else.

Muon (Jordan and others, 2024) takes the momentum of a matrix, replaces its singular values by ones with a few
Newton-Schulz steps, and moves along that: every direction of the matrix learns at one rate, so the rare ones that carry
recall are not left behind. The matrices of experts are stacked, and each is taken
by itself. Embeddings, the output head, routers, norms and biases are no maps between hidden spaces and keep
AdamW; so do the rates of a state space and the weights of an LSTM, which are four maps in one matrix. Both are torch
optimisers with ordinary state dictionaries.
"""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import nn
from transformers import PreTrainedModel

from .plan import Recipe

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the odd quintic; they carry singular values from (0, 1] near 1, not exactly onto it."""


class Muon(torch.optim.Optimizer):
    """Orthogonalised momentum in float32; matrices of one shape are taken together.

    An update has root-mean-square 0.2 a parameter, as AdamW's roughly has (Liu and others, 2025), so one learning rate
    means the same for matrices of every shape.
    """

    def __init__(self, params: Iterable[nn.Parameter], *, lr: float, momentum: float = 0.95) -> None:
        super().__init__(list(params), {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyrefly: ignore[bad-override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    by_shape.setdefault(p.shape, []).append(p)
            for alike in by_shape.values():
                self._step(alike, group["lr"], group["momentum"])

    def _step(self, alike: list[nn.Parameter], lr: float, momentum: float) -> None:
        ahead = torch.stack([self._nesterov(p, momentum) for p in alike])
        scale = 0.2 * max(ahead.shape[-2:]) ** 0.5
        for p, update in zip(alike, orthogonalise(ahead), strict=True):
            p.add_(update, alpha=-lr * scale)

    def _nesterov(self, p: nn.Parameter, momentum: float) -> torch.Tensor:
        """The running mean of the gradients, one step on."""
        assert p.grad is not None
        running = self.state[p].setdefault("momentum", torch.zeros_like(p))
        running.lerp_(p.grad, 1 - momentum)
        return p.grad.lerp(running, momentum)


def orthogonalise(
    matrices: Float[torch.Tensor, "*matrix out into"], n_steps: int = 5
) -> Float[torch.Tensor, "*matrix out into"]:
    """The nearest orthogonal matrix to each, approximately: singular values between about 0.7 and 1.2."""
    a, b, c = NEWTON_SCHULZ
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = (matrices.mT if is_tall else matrices).flatten(0, -3)
    norms = torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True)
    x = x / norms.clamp_min(torch.finfo(x.dtype).tiny)  # a matrix without a gradient stays at zero
    for _ in range(n_steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if is_tall else x).reshape(matrices.shape)


def make_optimisers(model: PreTrainedModel, recipe: Recipe) -> tuple[torch.optim.Optimizer, ...]:
    """Muon over the linear maps between hidden spaces and AdamW over the rest, or AdamW over all; no weight decay."""
    head = model.get_output_embeddings()
    maps = [module for module in model.modules() if isinstance(module, nn.Linear) and module is not head]
    experts = [p for name, p in model.named_parameters() if ".experts." in name]  # [expert, out, into]
    inside = {id(p) for p in (*(module.weight for module in maps), *experts) if recipe.optimiser == "muon"}
    matrices = [p for p in model.parameters() if id(p) in inside]
    rest = [p for p in model.parameters() if id(p) not in inside]
    adamw = torch.optim.AdamW(rest, lr=recipe.lr_adamw, betas=(0.9, 0.98), weight_decay=0.0, foreach=True)
    return (Muon(matrices, lr=recipe.lr_muon), adamw) if matrices else (adamw,)


def set_rates(optimisers: Iterable[torch.optim.Optimizer], factor: float) -> None:
    """Set every learning rate to `factor` of its peak, the rate that its optimiser was made with."""
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["lr"] = group.setdefault("peak", group["lr"]) * factor
