"""The logit lens and direct logit attribution: what the residual stream would predict if the model stopped there.

The lens puts a residual vector through the model's own final norm and output head. Attribution splits the logit of a
token, above the mean over the vocabulary, into what each block adds, with the scale of the final norm held at its
value: the parts then add up to the whole.

Source: nostalgebraist (2020), interpreting GPT: the logit lens; Elhage et al. (2021), A mathematical framework.
"""

from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

import torch

from interp.model import Model
from interp.offload import brought_in

_TOKENS_AT_ONCE = 4096


class Lens:
    """Final norm and output head of a model, as functions of residual vectors `[row, d_model]`."""

    def __init__(self, model: Model) -> None:
        # `forward` rather than a call: the pass has hooks on these modules that must not hear the lens.
        self._forward_norm: Any = attrgetter(model.family.final_norm)(model.module).forward
        self._head: Any = model.module.get_output_embeddings()
        self._softcap: float | None = getattr(model.module.config, "final_logit_softcapping", None)

    @cached_property
    def _mean_token(self) -> torch.Tensor:
        """Mean of the output embeddings `[d_model]`, float32; converted in parts, or half precision is copied whole."""
        with brought_in(self._head):
            weight: torch.Tensor = self._head.weight
            sums = [part.float().sum(dim=0) for part in weight.split(_TOKENS_AT_ONCE)]
        return torch.stack(sums).sum(dim=0) / len(weight)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Logits `[row, vocab]`, float32, of residual vectors, on their device."""
        return self.head(self._norm(x))

    def _norm(self, x: torch.Tensor) -> torch.Tensor:
        return self._forward_norm(x).to(x.device)

    def head(self, normed: torch.Tensor) -> torch.Tensor:
        """Logits `[row, vocab]`, float32, of residual vectors that have passed the final norm."""
        with brought_in(self._head):
            weight, bias = self._head.weight, self._head.bias
            logits = torch.nn.functional.linear(normed.to(weight.device), weight, bias).float().to(normed.device)
        return logits if self._softcap is None else torch.tanh(logits / self._softcap) * self._softcap

    def direction(self, x: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
        """Residual directions `[row, d_model]` whose product with a part of `x` is that part's share of the logit.

        The logit is that of `token` `[row]` before any soft-cap, above the mean over the vocabulary; biases belong
        to no part.
        """
        with brought_in(self._head):
            weight = self._head.weight
            unembedding = (weight[token.to(weight.device)].float() - self._mean_token).to(x.device)
        return _FrozenNorm.of(self._norm, x.shape[-1], x).direction(x, unembedding)


@dataclass(frozen=True)
class _FrozenNorm:
    """A final norm as gain · (x − mean) / scale + shift, its parts measured rather than assumed.

    On ±1 alternating, whose mean is 0 and whose mean square is 1, both layer norm and RMS norm return ± gain + shift;
    the norm centres if a constant added to its input changes nothing.
    """

    norm: Any
    gain: torch.Tensor
    shift: torch.Tensor
    centres: bool

    @classmethod
    def of(cls, norm: Any, d_model: int, like: torch.Tensor) -> "_FrozenNorm":
        signs = torch.ones(d_model, dtype=like.dtype, device=like.device)
        signs[1::2] = -1
        up, down = norm(signs).float(), norm(-signs).float()
        centres = bool(torch.allclose(norm(signs + 3).float(), up, rtol=1e-3, atol=1e-3 * float(up.abs().max())))
        return cls(norm, (up - down) / 2 * signs.float(), (up + down) / 2, centres)

    def direction(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """Gradient of w · norm(x) in x with the scale held fixed."""
        ours = self.gain * (x.float() - x.float().mean(-1, keepdim=True) if self.centres else x.float())
        theirs = self.norm(x).float() - self.shift
        scale = (ours * theirs).sum(-1, keepdim=True) / theirs.square().sum(-1, keepdim=True)
        g = self.gain * w / scale
        return g - g.mean(-1, keepdim=True) if self.centres else g
