"""Comparison of lenses: their KL from the final prediction, and their predictions for a prompt, by depth."""

import numpy as np
import torch
from jaxtyping import Float

from interp.lens.held import HeldOut
from interp.lens.kinds import FittedLens
from interp.model import Model
from interp.need import Need
from interp.prompt import Prompt, PromptSet, Run
from interp.prompting.tokens import Ids, words_of
from interp.reading.forward import capture
from interp.statistics.intervals import TMean, t_mean


def kl_by_depth(lens: FittedLens, held: HeldOut) -> tuple[list[TMean], Float[np.ndarray, " depth"]]:
    """Mean KL(final prediction || lens) over clusters, in bits, at every depth before the last, on held-out prompts.

    Its null is the mean KL with the map of the most distant depth; NaN for a lens with fewer than two maps.
    """
    n, kl = len(held.stream) - 1, held.kl_of(lens)
    other_depth = np.full(n, np.nan)
    if len(lens.depths) > 1:
        furthest = [max(lens.depths, key=lambda other, depth=depth: abs(other - depth)) for depth in range(n)]
        other_depth = held.kl_bits(lambda x, depth: lens.carried(x, furthest[depth])).mean(axis=1)
    clusters = [held.cluster == name for name in np.unique(held.cluster)]
    return [t_mean([of_depth[rows].mean() for rows in clusters]) for of_depth in kl], other_depth


def writer(model: Model, lens: FittedLens, run: Run) -> tuple[str, TMean, float]:
    """The block that adds most to the logit of the predicted token through a lens.

    With its logits above the mean of the vocabulary, over clusters, and the share of clusters in which it adds most.
    """
    needs = [Need("attn_logit"), Need("mlp_logit")]
    read = capture(lens.on(model), run.prompts, run.ids, needs)
    added, cluster = np.concatenate([read[need] for need in needs]), np.asarray(read.rows["cluster"])
    means = np.array([added[:, cluster == each].mean(axis=1) for each in np.unique(cluster)])  # [cluster, block]
    best = int(means.mean(axis=0).argmax())
    kind, layer = divmod(best, model.info.n_layers)
    share = float((means.argmax(axis=1) == best).mean())
    return f"{('attention', 'feed-forward')[kind]} {layer}", t_mean(means[:, best]), share


@torch.inference_mode()
def depth_strip(model: Model, lens: FittedLens, ids: Ids) -> dict[str, tuple[str, ...]]:
    """The likeliest token at every position of a prompt, by depth of the lens; `final` is the model's prediction."""
    resid = Need("resid")
    whole = PromptSet("strip", [Prompt(token_ids=tuple(ids.tolist()), scored=tuple(range(len(ids))))])
    stream = torch.from_numpy(capture(model, whole, [ids], [resid])[resid])
    found = {}
    for depth in (*(range(lens.n_layers) if lens.kind == "logit" else lens.depths), lens.n_layers):
        x = stream[depth].to(model.input_device, model.module.dtype)
        best = lens.log_probabilities(model, x, depth).argmax(dim=-1).cpu().numpy()
        found["final" if depth == lens.n_layers else str(depth)] = words_of(model, best)
    return found
