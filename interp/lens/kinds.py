"""Lenses: maps from the residual stream of a depth to the final one, which final norm and output head then decode.

    logit       h                    nothing is fitted
    tuned       A h + b              an affine map of each depth, fitted to the model's own final prediction
    jacobian    J h                  J: the mean derivative of the final residual stream by that of this depth

Depth 0 is the embedding; at the last depth every lens is the identity.

Source: nostalgebraist (2020); Belrose et al. (2023), arXiv 2303.08112; Gurnee et al. (2026), "Verbalizable
Representations Form a Global Workspace in Language Models".
"""

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import torch

from interp.capture import FOREIGN
from interp.errors import UsageError
from interp.information import BITS_PER_NAT
from interp.model import Model
from interp.reading.lens import Lens

Kind = Literal["logit", "tuned", "jacobian"]
KINDS: tuple[Kind, ...] = ("logit", "tuned", "jacobian")


@dataclass(frozen=True, eq=False)
class FittedLens:
    """A lens of one model, for `interp.run(model, lens=...)`, `log_probabilities` and `interp.save_lens`.

    `matrices` `[d_model, d_model]` and `offsets` `[d_model]` are by depth, in float32; the logit lens has none. It was
    fitted on `n_prompts` prompts. For a Jacobian lens, `error_bits` is by depth the standard error of its mean KL from
    the final prediction, on held-out prompts.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> lens = interp.fit_lens(model, interp.sampled_prompts(model.task, 40), kind="jacobian", quiet=True)
    >>> lens.depths, lens.kind
    ((0, 1, 2), 'jacobian')
    """

    kind: Kind
    model: str
    n_layers: int
    d_model: int
    n_prompts: int = 0
    matrices: Mapping[int, torch.Tensor] = field(default_factory=dict, repr=False)
    offsets: Mapping[int, torch.Tensor] = field(default_factory=dict, repr=False)
    error_bits: Mapping[int, float] = field(default_factory=dict, repr=False)
    about: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """How it was fitted."""

    @classmethod
    def logit(cls, model: Model) -> "FittedLens":
        """The logit lens of a model, which has no parameters."""
        return cls("logit", model.name, model.info.n_layers, model.info.d_model)

    @property
    def depths(self) -> tuple[int, ...]:
        """The depths with a fitted map."""
        return tuple(sorted(self.matrices))

    def on(self, model: Model) -> Model:
        """The same model, decoding its residual stream with this lens; `UsageError` if its shape differs.

        If it was fitted on other weights than the model has now, a warning and `info.lens` say so.
        """
        self._refuse_other_shape(model)
        if self.kind == "logit":
            return replace(model, lens=None, info=replace(model.info, lens=None))
        name = f"{self.kind} {self.digest}"
        if "weights" in self.about and self.about["weights"] != model.fingerprint:
            name += f", {FOREIGN} ({self.model})"
            warnings.warn(f"a lens on {model.name}: {name}; it may not decode what this model computes", stacklevel=2)
        return replace(model, lens=self, info=replace(model.info, lens=name))

    def _refuse_other_shape(self, model: Model) -> None:
        if (self.n_layers, self.d_model) != (model.info.n_layers, model.info.d_model):
            raise UsageError(
                asked=f"the {self.kind} lens of {self.model} on {model.name}",
                found=f"it is of {self.n_layers} layers and width {self.d_model}, the model of {model.info.n_layers} "
                f"and {model.info.d_model}",
                fix="Fit one on this model: `interp lens fit`.",
            )

    @cached_property
    def digest(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of its numbers."""
        found = hashlib.sha256()
        for depth, x in [*sorted(self.matrices.items()), *sorted(self.offsets.items())]:
            found.update(f"{depth}".encode() + x.contiguous().numpy().tobytes())
        return found.hexdigest()[:16]

    def carried(self, x: torch.Tensor, depth: int) -> torch.Tensor:
        """Residual vectors `[..., d_model]` of a depth, mapped to the final one; `UsageError` for one without a fit."""
        if depth == self.n_layers or self.kind == "logit":
            return x
        if depth not in self.matrices:
            raise UsageError(
                asked=f"the {self.kind} lens of {self.model} at depth {depth}",
                found=f"it was fitted at the depths {', '.join(map(str, self.depths))}",
                fix="Fit one at all depths (`interp lens fit`), or read these depths alone.",
            )
        found = x.float() @ self.matrices[depth].to(x.device).mT
        offset = self.offsets.get(depth)
        return (found if offset is None else found + offset.to(x.device)).to(x.dtype)

    def log_probabilities(self, model: Model, x: torch.Tensor, depth: int) -> torch.Tensor:
        """The log2 probabilities `[row, vocab]` that residual vectors `[row, d_model]` of a depth decode to."""
        self._refuse_other_shape(model)
        logits = Lens(model).logits(self.carried(x, depth))
        return torch.log_softmax(logits, dim=-1) * BITS_PER_NAT
