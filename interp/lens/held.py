"""Held-out prompts of a lens: the KL between the model's prediction and the lens, by depth."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float

from interp.information import BITS_PER_NAT
from interp.lens.kinds import FittedLens
from interp.model import Model
from interp.need import Need
from interp.prompt import Run
from interp.reading.forward import capture
from interp.reading.lens import Lens


class HeldOut:
    """The residual stream `[depth, row, d_model]` at the scored positions of some prompts.

    `final` are the model's own log-probabilities in nats `[row, vocab]`, `cluster` is that of each row.
    """

    def __init__(self, model: Model, run: Run) -> None:
        need = Need("resid")
        found = capture(model, run.prompts, run.ids, [need])
        self.lens, self.cluster = Lens(model), np.asarray(found.rows["cluster"])
        self.stream = torch.from_numpy(found[need]).to(model.input_device, model.module.dtype)
        with torch.inference_mode():
            self.final = torch.log_softmax(self.lens.logits(self.stream[-1]), dim=-1)

    @torch.inference_mode()
    def kl_bits(self, carried: Callable[[torch.Tensor, int], torch.Tensor]) -> Float[np.ndarray, "depth row"]:
        """KL(final prediction || decoded residual vectors, carried to the end), for all depths but the last."""
        rows = []
        for depth, x in enumerate(self.stream[:-1]):
            decoded = self.lens.decode(carried(x, depth)[None].to(x.dtype), self.final, keep=False)
            rows.append(decoded["lens_kl"][0].clamp_min(0).cpu().numpy().astype(np.float64) * BITS_PER_NAT)
        return np.array(rows)

    def kl_of(self, lens: FittedLens) -> Float[np.ndarray, "depth row"]:
        """`kl_bits` of a fitted lens; NaN at depths that it lacks."""
        known = {*lens.depths} if lens.kind != "logit" else {*range(len(self.stream))}
        found = self.kl_bits(lambda x, depth: lens.carried(x, depth) if depth in known else x)
        return np.where(np.isin(np.arange(len(found)), list(known))[:, None], found, np.nan)
