"""Muon for the hidden matrices, AdamW for everything else.

Muon (Jordan and others, 2024) replaces the singular values of a matrix's momentum by ones with a few Newton-Schulz
steps, so all directions learn at one rate, the rare ones that carry recall too. Embeddings, output head, routers,
norms, biases, rates of a state space and the weights of an LSTM (four maps in one matrix) keep AdamW.
"""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import nn
from transformers import PreTrainedModel

from .plan import Recipe

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the odd quintic that takes singular values from (0, 1] near 1."""


class Muon(torch.optim.Optimizer):
    """Orthogonalised momentum in float32; matrices of one shape are updated together.

    An update has root-mean-square 0.2, roughly as AdamW's has (Liu and others, 2025), whatever the shape.
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
            for same_shape in by_shape.values():
                ahead = torch.stack([self._nesterov(p, group["momentum"]) for p in same_shape])
                scale = 0.2 * max(ahead.shape[-2:]) ** 0.5
                for p, update in zip(same_shape, orthogonalise(ahead), strict=True):
                    p.add_(update, alpha=-group["lr"] * scale)

    def _nesterov(self, p: nn.Parameter, momentum: float) -> torch.Tensor:
        assert p.grad is not None
        running = self.state[p].setdefault("momentum", torch.zeros_like(p))
        running.lerp_(p.grad, 1 - momentum)
        return p.grad.lerp(running, momentum)


def orthogonalise(
    matrices: Float[torch.Tensor, "*matrix out into"], n_steps: int = 5
) -> Float[torch.Tensor, "*matrix out into"]:
    """Approximately the nearest orthogonal matrix to each, with singular values between about 0.7 and 1.2."""
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
    """Muon for linear maps between hidden spaces and AdamW for the rest, or AdamW for all; no weight decay."""
    head = model.get_output_embeddings()
    maps = [module for module in model.modules() if isinstance(module, nn.Linear) and module is not head]
    experts = [p for name, p in model.named_parameters() if ".experts." in name]  # [expert, out, into]
    inside = {id(p) for p in (*(module.weight for module in maps), *experts) if recipe.optimiser == "muon"}
    matrices = [p for p in model.parameters() if id(p) in inside]
    rest = [p for p in model.parameters() if id(p) not in inside]
    adamw = torch.optim.AdamW(rest, lr=recipe.lr_adamw, betas=(0.9, 0.98), weight_decay=0.0, foreach=True)
    return (Muon(matrices, lr=recipe.lr_muon), adamw) if matrices else (adamw,)


def set_rates(optimisers: Iterable[torch.optim.Optimizer], factor: float) -> None:
    """Set every learning rate to `factor` times its initial value."""
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["lr"] = group.setdefault("peak", group["lr"]) * factor
