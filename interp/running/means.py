"""Mean ablation where prompts are not known beforehand: the means are taken over prompts that are named here."""

from dataclasses import replace

import numpy as np

from interp.edit import Edit
from interp.editing.edit_files import resolve_edits
from interp.editing.editor import needs_outputs, refuse_misfits
from interp.edits import AblateHeads, Edits
from interp.model import Model
from interp.need import Need
from interp.prompt import Prompts
from interp.reading.batches import row_index
from interp.reductions import PromptMean
from interp.running.collect import collect


def with_means(model: Model, prompts: Prompts, *given: Edits, window: int | None = None) -> tuple[Edit, ...]:
    """Fill in the mean outputs of ablated heads over prompts, so that `interp.applied` can use the edits.

    Args:
        model: The model.
        prompts: Prompts as `interp.collect` takes them.
        *given: Edits, or lists of edits. Each mean is over the positions that its edit names.
        window: How many tokens of each prompt are kept, from its end.

    Returns:
        The edits; one that ablates several layers becomes one per layer. Edits without means are returned as they are.

    Raises:
        UsageError: An edit does not fit the model.
        PromptError: A prompt lacks the positions that an edit names, or does not fit the model.

    Examples:
        >>> model = interp.load("tunnel:bijection-gpt-neox")
        >>> by_mean = interp.AblateHeads(layer=0, heads=(1,), by="mean")
        >>> with interp.applied(model, *interp.with_means(model, interp.sampled_prompts(model.task, 20), by_mean)):
        ...     edited = model.module(torch.tensor([[1, 2, 3]])).logits
    """
    edits = [edit for each in given for edit in resolve_edits(each)]
    refuse_misfits(edits, model)
    found: list[Edit] = []
    for edit in edits:
        if not (isinstance(edit, AblateHeads) and edit.by == "mean" and needs_outputs(edit)):
            found.append(edit)
            continue
        layers = edit.layers(model.info)
        need = Need("z", PromptMean(), at=edit.at) if isinstance(edit.at, str) else Need("z", at="all")
        read = collect(model, prompts, [need], layers=layers, window=window)
        if isinstance(edit.at, str):
            _, n_rows = np.unique(read.rows_at(edit.at)["prompt"], return_counts=True)
            means = np.average(read[need], axis=1, weights=n_rows)
        else:
            rows = read.rows_at("all")
            row_index(read.prompts, np.bincount(rows["prompt"]), edit.at)  # refuses positions that a prompt lacks
            means = read[need][:, np.isin(rows["position"], edit.at)].astype(float).mean(axis=1)
        heads = list(edit.each_head)
        found += [replace(edit, layer=i, mean=mean[heads]) for i, mean in zip(layers, means, strict=True)]
    return tuple(found)
