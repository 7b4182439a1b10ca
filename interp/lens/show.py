"""Lenses side by side: how far each reads from the final prediction, and what it reads of a prompt, by depth."""

from collections.abc import Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True)
class DepthKl:
    """Mean KL(final prediction || lens) over clusters at one depth, in bits, with its 95 % t interval.

    `other_depth` is the mean with the map of the depth that lies furthest away, as the null of a map that knows nothing
    of its depth; NaN for the logit lens, which has one map.
    """

    lens: str
    depth: int
    mean: TMean
    other_depth: float


def kl_by_depth(lenses: Mapping[str, FittedLens], held: HeldOut) -> list[DepthKl]:
    """Every lens at every depth before the last, on prompts that it was not fitted on."""
    found, n = [], len(held.stream) - 1
    clusters = [held.cluster == name for name in np.unique(held.cluster)]
    for name, lens in lenses.items():
        kl, exchanged = held.kl_of(lens), np.full(n, np.nan)
        if lens.depths:
            furthest = [max(lens.depths, key=lambda other, depth=depth: abs(other - depth)) for depth in range(n)]
            exchanged = held.kl_bits(lambda x, depth, of=lens, at=furthest: of.carried(x, at[depth])).mean(axis=1)
        for depth in range(n):
            mean = t_mean([kl[depth, rows].mean() for rows in clusters])
            found.append(DepthKl(name, depth, mean, float(exchanged[depth])))
    return found


@dataclass(frozen=True)
class Writer:
    """The block that adds most to the logit of the predicted token, as one lens carries what it adds.

    `mean`: its logits above the mean of the vocabulary, over clusters with the 95 % t interval; `share`: the clusters
    in which no other block adds more.
    """

    lens: str
    block: str
    mean: TMean
    share: float


def writers(model: Model, lenses: Mapping[str, FittedLens], run: Run) -> list[Writer]:
    """The block that writes the prediction by every lens: where they differ, it is the lens that decides."""
    needs, found = [Need("attn_logit"), Need("mlp_logit")], []
    for name, lens in lenses.items():
        read = capture(lens.on(model), run.prompts, run.ids, needs)
        added, cluster = np.concatenate([read[need] for need in needs]), np.asarray(read.rows["cluster"])
        means = np.array([added[:, cluster == each].mean(axis=1) for each in np.unique(cluster)])  # [cluster, block]
        best = int(means.mean(axis=0).argmax())
        kind, layer = divmod(best, model.info.n_layers)
        share = float((means.argmax(axis=1) == best).mean())
        found.append(Writer(name, f"{('attention', 'feed-forward')[kind]} {layer}", t_mean(means[:, best]), share))
    return found


@dataclass(frozen=True)
class DepthStrip:
    """One prompt through a lens: the likeliest token of every depth at every position, and its probability."""

    tokens: tuple[str, ...]
    read: tuple[tuple[str, ...], ...]
    probability: Float[np.ndarray, "depth pos"]


@torch.inference_mode()
def depth_strip(model: Model, lens: FittedLens, ids: Ids) -> DepthStrip:
    """What a lens reads of a prompt at the depths that it has, and at last the model's own prediction."""
    resid = Need("resid")
    whole = PromptSet("strip", [Prompt(token_ids=tuple(ids.tolist()), scored=tuple(range(len(ids))))])
    stream = torch.from_numpy(capture(model, whole, [ids], [resid])[resid])
    depths = range(lens.n_layers) if lens.kind == "logit" else lens.depths
    best = [
        lens.log_probabilities(model, stream[depth].to(model.input_device, model.module.dtype), depth).max(dim=-1)
        for depth in (*depths, lens.n_layers)
    ]
    read = tuple(words_of(model, each.indices.cpu().numpy()) for each in best)
    return DepthStrip(words_of(model, ids), read, np.array([each.values.exp2().cpu().numpy() for each in best]))
