"""Mean ablation where prompts are not known beforehand: the means are taken over prompts that are named here."""

from dataclasses import replace

import numpy as np

from interp.editing.editor import needs_outputs, refuse_misfits
from interp.edits import AblateHeads, Edit
from interp.errors import PromptError, UsageError
from interp.folds import Mean
from interp.model import Model
from interp.need import Need
from interp.prompt import Prompts
from interp.running.collect import collect


def with_means(model: Model, prompts: Prompts, *edits: Edit) -> tuple[Edit, ...]:
    """The edits with the mean outputs of ablated heads over `prompts` filled in, so that `interp.applied` takes them.

    Means are over the positions that an edit names, all or some counted from 0. An edit of several layers becomes one
    a layer; edits that want no means stay as they are.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> by_mean = interp.AblateHeads(layer=0, heads=(1,), by="mean")
    >>> with interp.applied(model, *interp.with_means(model, interp.sampled_prompts(model.task, 20), by_mean)):
    ...     edited = model.module(torch.tensor([[1, 2, 3]])).logits
    """
    refuse_misfits(edits, model)
    found: list[Edit] = []
    for edit in edits:
        if isinstance(edit, AblateHeads) and edit.by == "mean" and needs_outputs(edit):
            means = _means(model, prompts, edit)
            layers = edit.layers(model.info)
            found += [
                replace(edit, layer=layer, mean=mean[list(edit.each_head)])
                for layer, mean in zip(layers, means, strict=True)
            ]
        else:
            found.append(edit)
    return tuple(found)


def _means(model: Model, prompts: Prompts, edit: AblateHeads) -> np.ndarray:
    """Mean outputs of all heads, `[layer, head, d_head]`, at the positions of the edit."""
    layers = edit.layers(model.info)
    if edit.at == "all":
        need = Need("z", Mean(), at="all")
        return collect(model, prompts, [need], layers=layers).folded(need)["mean"]
    if isinstance(edit.at, str):
        raise UsageError(
            asked=f"{edit} at {edit.at!r}",
            found="the prompts of the passes are not known in interp.applied",
            fix="Use interp.collect(model, prompts, needs, edits=[...]), or positions counted from 0.",
        )
    need = Need("z", at="all")
    read = collect(model, prompts, [need], layers=layers)
    positions = read.rows_at("all")["position"]
    missing = sorted(set(edit.at) - set(positions.tolist()))
    if missing:
        raise PromptError(
            asked=f"the mean of {edit} at position {missing[0]}",
            found=f"the longest prompt has {positions.max() + 1} tokens",
            fix="Positions count tokens from 0.",
        )
    return read[need][:, np.isin(positions, edit.at)].astype(float).mean(axis=1)
