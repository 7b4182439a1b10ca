"""The logit lens and direct logit attribution: what the residual stream would predict if the model stopped there.

The lens puts a residual vector through the model's own final norm and output head. Attribution splits the logit of a
token, above the mean over the vocabulary, into what each block adds, with the scale of the final norm held at its
value: the parts then add up to the whole.

Source: nostalgebraist (2020), interpreting GPT: the logit lens; Elhage et al. (2021), A mathematical framework.
"""

from collections.abc import Callable
from functools import cached_property
from operator import attrgetter
from typing import Any

import torch

from interp.model import Model
from interp.system.offload import brought_in

_TOKENS_AT_ONCE = 4096

_AT_ONCE = {True: 1 << 19, False: 1 << 24}
"""Logits that are computed at once, on the CPU (in its cache) and elsewhere."""

_FEWEST_COLUMNS = 1024


class Lens:
    """Final norm and output head of a model, as functions of residual vectors `[row, d_model]`."""

    def __init__(self, model: Model) -> None:
        family, config = model.family, model.config
        self._final_norm: Any = attrgetter(family.final_norm)(model.module)
        self._projection: Any = attrgetter(family.behind_norm)(model.module) if family.behind_norm else None
        self._head: Any = model.module.get_output_embeddings()
        self._softcap, self._times = family.logit_cap(config), family.logit_scale(config)

    @cached_property
    def _mean_token(self) -> torch.Tensor:
        """Mean of the output embeddings `[d_model]`, float32; in parts, so that no copy of all is made."""
        with brought_in(self._head):
            weight: torch.Tensor = self._head.weight
            sums = [part.float().sum(dim=0) for part in weight.split(_TOKENS_AT_ONCE)]
        return torch.stack(sums).sum(dim=0) / len(weight)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Logits `[row, vocab]`, float32, of residual vectors, on their device."""
        with brought_in(self._head):
            return self._logits(self._entering(x), slice(None))

    def _norm(self, x: torch.Tensor) -> torch.Tensor:
        # `forward` rather than a call: hooks on these modules must not see the lens.
        return x if self._final_norm is None else self._final_norm.forward(x).to(x.device)

    def _entering(self, x: torch.Tensor) -> torch.Tensor:
        normed = self._norm(x)
        return normed if self._projection is None else self._projection.forward(normed).to(x.device)

    def _logits(self, normed: torch.Tensor, tokens: slice) -> torch.Tensor:
        weight, bias = self._head.weight[tokens], self._head.bias
        # Finite, so that a token that is never predicted (a bias of -inf) counts 0 in sums, and not NaN.
        bias = None if bias is None else bias[tokens].clamp_min(torch.finfo(bias.dtype).min / 2)
        logits = torch.nn.functional.linear(normed.to(weight.device), weight, bias).float().to(normed.device)
        logits = logits if self._times == 1.0 else logits * self._times
        return logits if self._softcap is None else torch.tanh(logits / self._softcap) * self._softcap

    def decode(self, x: torch.Tensor, final: torch.Tensor, *, keep: bool) -> dict[str, torch.Tensor]:
        """The lens sites of residual vectors `[depth, row, d_model]`, by name, in nats.

        Entropy and KL(final || decoded) are `[depth, row]`, with the rows' `final` log-probabilities. Computed in parts
        of the vocabulary that fit into the cache; log-probabilities `[depth, row, vocab]` are returned with `keep`.
        """
        normed = self._entering(x.flatten(0, 1))  # [depth * row, width of the head]
        log_p = final.new_empty(*x.shape[:2], final.shape[-1]) if keep else None
        sums, reference = _Sums(final.new_zeros(x.shape[:2])), None
        with brought_in(self._head):
            for tokens in self._parts(normed):
                logits = self._logits(normed, tokens).unflatten(0, x.shape[:2])  # [depth, row, token]
                reference = logits.amax(dim=-1, keepdim=True) if reference is None else reference
                logits -= reference
                if log_p is not None:
                    log_p[..., tokens] = logits
                sums.add(logits, final[:, tokens])
        if log_p is not None:
            log_p -= sums.log_total[..., None]
        found = {"lens_entropy": sums.entropy, "lens_kl": sums.kl}
        return found if log_p is None else found | {"lens_log_prob": log_p}

    def surprise(self, normed: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
        """−log p(token) in nats `[row]` of inputs of the output head, in parts of the vocabulary."""
        totals, own = [], torch.zeros(len(normed), device=normed.device)
        with brought_in(self._head):
            for tokens in self._parts(normed):
                logits = self._logits(normed, tokens)  # [row, token]
                totals.append(logits.logsumexp(dim=-1))
                row = ((token >= tokens.start) & (token < tokens.stop)).nonzero()[:, 0]
                own[row] = logits[row, token[row] - tokens.start]
        return torch.stack(totals).logsumexp(dim=0) - own

    def _parts(self, normed: torch.Tensor) -> list[slice]:
        """Parts of the vocabulary whose logits of these rows are computed at once."""
        step = max(_FEWEST_COLUMNS, _AT_ONCE[normed.device.type == "cpu"] // max(1, len(normed)))
        return [slice(start, start + step) for start in range(0, len(self._head.weight), step)]

    def direction(self, x: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
        """Residual directions `[row, d_model]` whose product with a part of `x` is that part's share of the logit.

        The logit is that of `token` `[row]` before any soft-cap, above the mean over the vocabulary; biases belong
        to no part.
        """
        return _FrozenNorm(self._norm, x.shape[-1], x).direction(x, self._unembedding(token, x) * self._times)

    def _unembedding(self, token: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """Rows of the output head above their mean, as vectors behind the final norm `[row, d_model]`."""
        with brought_in(self._head):
            weight = self._head.weight
            own = (weight[token.to(weight.device)].float() - self._mean_token).to(like.device)
        return own if self._projection is None else own @ self._projection.weight.float().to(like.device)

    def token_gram(self, d_model: int, tokens: torch.Tensor | None = None) -> torch.Tensor:
        """Σ over tokens (all of them) of w wᵀ, w being `direction` above their mean but for the scale of the norm."""
        chosen = torch.arange(len(self._head.weight)) if tokens is None else tokens
        like = torch.zeros(1)
        mean = torch.stack([self._unembedding(part, like).sum(dim=0) for part in chosen.split(_TOKENS_AT_ONCE)]).sum(
            dim=0
        )
        total = torch.zeros(d_model, d_model)
        for part in chosen.split(_TOKENS_AT_ONCE):
            w = (self._unembedding(part, like) - mean / len(chosen)) * self._times
            total += w.mT @ w
        norm = _FrozenNorm(self._norm, d_model, self._head.weight.new_zeros(1))
        through = torch.diag(norm.gain.cpu())
        if norm.centres:
            through = through - through.mean(dim=-1, keepdim=True)
        return through.mT @ total @ through

    def constant(self, x: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
        """What biases alone add to the same logits `[row]`: those of the final norm and of the output head."""
        with brought_in(self._head):
            bias = self._head.bias
            own = 0.0 if bias is None else (bias[token.to(bias.device)].float() - bias.float().mean()).to(x.device)
        shift = _FrozenNorm(self._norm, x.shape[-1], x).shift
        return ((self._unembedding(token, x) * shift).sum(-1) + own) * self._times


class _Sums:
    """Running sums over the vocabulary for entropy and KL, `[depth, row]`.

    Logits are relative to the largest of the first part, so that a common offset costs no precision, and exponentials
    are relative to the largest so far, `top`.
    """

    def __init__(self, zero: torch.Tensor) -> None:
        self.top = self.total = self.weighted = self.cross = zero

    @property
    def log_total(self) -> torch.Tensor:
        """Logarithm of the sum of all exponentials."""
        return self.top + self.total.log()

    @property
    def entropy(self) -> torch.Tensor:
        return (self.total.log() - self.weighted / self.total).clamp_min(0.0)

    @property
    def kl(self) -> torch.Tensor:
        return self.cross + self.log_total

    def add(self, logits: torch.Tensor, final: torch.Tensor) -> None:
        """Add a part `[depth, row, token]`, which is overwritten; `final` are its tokens' final log-probabilities."""
        p = final.exp()
        self.cross = self.cross + (p * final).sum(dim=-1) - (p * logits).sum(dim=-1)
        top = torch.maximum(self.top, logits.amax(dim=-1))
        lower = self.top - top
        shrunk = lower.exp()
        logits -= top[..., None]
        e = logits.exp()
        self.weighted = shrunk * (self.weighted + lower * self.total) + logits.mul_(e).sum(dim=-1)
        self.total = shrunk * self.total + e.sum(dim=-1)
        self.top = top


class _FrozenNorm:
    """A final norm as gain · (x − mean) / scale + shift, its parts measured rather than assumed.

    The norm centres if a constant added to its input changes nothing. On ±1 alternating, centred if the norm does and
    over its scale, both layer norm and RMS norm return gain times that + shift.
    """

    def __init__(self, norm: Callable[[torch.Tensor], torch.Tensor], d_model: int, like: torch.Tensor) -> None:
        signs = torch.ones(d_model, dtype=like.dtype, device=like.device)
        signs[1::2] = -1
        up, down = norm(signs).float(), norm(-signs).float()
        self.norm, self.shift = norm, (up + down) / 2
        self.centres = torch.allclose(norm(signs + 3).float(), up, rtol=1e-3, atol=1e-3 * float(up.abs().max()))
        shape = signs.float() - signs.float().mean() if self.centres else signs.float()
        self.gain = (up - down) / 2 / (shape / shape.square().mean().sqrt())

    def direction(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """Gradient of w · norm(x) in x with the scale held fixed."""
        ours = self.gain * (x.float() - x.float().mean(-1, keepdim=True) if self.centres else x.float())
        theirs = self.norm(x).float() - self.shift
        scale = (ours * theirs).sum(-1, keepdim=True) / theirs.square().sum(-1, keepdim=True)
        g = self.gain * w / scale
        return g - g.mean(-1, keepdim=True) if self.centres else g
