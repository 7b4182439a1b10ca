"""The effect of ablating each head, estimated from gradients: a few backward passes instead of a pass for every head.

The measures are mean cross-entropies −Σ_o t_o log p_o over rows, up to a constant: t is the exact posterior
(`posterior_kl`), the model's own prediction (`next_kl`), or the token that follows (`loss`). With δ the change that the
ablation makes in a head's output z, and G its effect on the logits to first order, the measure changes by

    slope + curvature / 2,    slope = (p − t)·G,    curvature = Var_p(G) = E_{y~p} [(∂ log p_y / ∂z · δ)²]

which is the expansion to second order, logits taken to be linear in z (attribution patching: Nanda 2023; Kramár et al.
2024, arXiv 2403.00745; curvature: Gauss and Newton, Fisher). KL from the model's own prediction has no slope, only
curvature. Outcomes y are drawn from p, independently for every row: products of two rows cancel on average, so that one
backward pass per draw serves all rows of a prompt without bias. Gradients are taken at head outputs alone, of all
layers and prompts of a batch at once.
"""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import torch
from jaxtyping import Float

from interp.editing.edited_rows import edited_rows
from interp.editing.editor import Editor, needs_outputs, refuse_misfits
from interp.editing.prompt_tensors import HeadOutputs
from interp.editing.steps import EditStep, make_steps
from interp.hooks.attention import Listener, listening
from interp.hooks.block_hooks import EnoughRead, at_head, ending
from interp.hooks.layer_gradients import refuse_without_gradients, with_gradients
from interp.hooks.pattern import AttentionCall
from interp.information import BITS_PER_NAT
from interp.model import Model
from interp.probe import Readout, Screen
from interp.prompt import Run
from interp.reading.batches import Batch, BatchRows, batches_of, row_index
from interp.reading.forward import TOKENS_PER_BATCH
from interp.reading.packs import each_alone
from interp.system.float64 import double
from interp.system.processes import here

GRAPH_BYTES = 1 << 30
"""Approximate limit of a pass's graph; a single prompt may exceed it."""

_NUMBERS_KEPT = 24
"""Approximate numbers that a block keeps per token for the backward pass, in widths of the residual stream."""


def token_bytes(model: Model) -> int:
    """The approximate size of a pass's graph, per token."""
    return _NUMBERS_KEPT * model.info.n_layers * model.info.d_model * model.module.dtype.itemsize


@with_gradients()
def read_screen(model: Model, run: Run, screen: Screen, *, graph_bytes: int = GRAPH_BYTES) -> dict[str, Readout]:
    """`slope` and `curvature` in bits, `[prompt, layer, head]`, by the names of the screen's edits; 0 in other layers.

    Raises `UsageError` if an edit does not fit the model, `ModelError` if gradients cannot be computed.
    """
    edits = [edit for each in screen.edits.values() for edit in each]
    refuse_misfits(edits, model)
    refuse_without_gradients(model, of_weights=False)
    run = run.take(screen.prompts)
    outputs = HeadOutputs(run.lengths, {n for e in edits if needs_outputs(e) for n in e.layers(model.info)})
    if outputs.layers:
        _keep_outputs(model, run, outputs)
    rows = [edited_rows(edit, run.prompts, run.lengths) for edit in edits]
    steps = make_steps([edits], model.info)
    editor = Editor(model, steps, rows, outputs)
    names = [name for name, each in screen.edits.items() for _ in each]
    batches = batches_of(each_alone(run.ids), max(1, graph_bytes // token_bytes(model)), model)
    mine = [_read_batch(model, run, screen, batches[n], editor, steps) for n in here().share(len(batches))]
    shape = (len(run.ids), model.info.n_layers, model.info.n_heads)
    found = {name: {"slope": np.zeros(shape), "curvature": np.zeros(shape)} for name in screen.edits}
    for prompts, by_step in (read for theirs in here().union(mine) for read in theirs):
        for step, (slope, curvature) in zip(steps, by_step, strict=True):
            found[names[step.index]]["slope"][prompts, step.layer] = slope
            found[names[step.index]]["curvature"][prompts, step.layer] = curvature
    return dict(found)


def _keep_outputs(model: Model, run: Run, outputs: HeadOutputs) -> None:
    with torch.inference_mode(), listening(model, outputs), ending(model, max(outputs.layers) + 1):
        for batch in batches_of(each_alone(run.ids), TOKENS_PER_BATCH, model):
            outputs.begin(batch)
            with suppress(EnoughRead):
                model.module(input_ids=batch.ids, use_cache=False)


class _Heads(Listener):
    """Makes the head outputs of every layer part of a graph that starts at the first of them."""

    def __init__(self) -> None:
        self.z: dict[int, torch.Tensor] = {}

    def after(self, call: AttentionCall, z: torch.Tensor) -> torch.Tensor:
        z = z if z.requires_grad else z.detach().requires_grad_()
        self.z[call.layer] = z  # [prompt, pos, head, d_head]
        return z


def _read_batch(
    model: Model, run: Run, screen: Screen, batch: Batch, editor: Editor, steps: Sequence[EditStep]
) -> tuple[np.ndarray, list[Float[np.ndarray, "slope_curvature prompt head"]]]:  # fmt: skip
    """The batch's prompts, and slope and curvature of each step in bits."""
    at = "followed" if screen.measure == "loss" else "scored"
    index = row_index(run.prompts, run.lengths, at)
    rows, heads = batch.rows(index), _Heads()

    def pick(entering: torch.Tensor) -> torch.Tensor:
        mine = rows.to(entering.device)
        return entering[mine.item, mine.position]

    with listening(model, heads), at_head(model, pick):
        logits = model.module(input_ids=batch.ids, use_cache=False).logits[0]  # [row, vocab]
        if screen.measure == "posterior_kl":
            logits = logits.gather(1, torch.tensor(run.prompts.outcomes_of(rows.prompt)).to(logits.device))
        log_p = torch.log_softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    n_rows = np.bincount(index.prompt, minlength=len(run.ids))[batch.prompts]
    editor.begin(batch)
    with torch.no_grad():
        seen = [editor.step(step, heads.z[step.layer].detach().flatten(2)[None]) for step in steps]
    deltas = [(double(s.after) - double(s.before))[0].view(heads.z[s.step.layer].shape) for s in seen]

    def along(scalar: torch.Tensor, is_last: bool) -> list[Float[np.ndarray, "prompt head"]]:
        """The derivative of the scalar along every head's change, by prompt."""
        found = torch.autograd.grad(scalar, list(heads.z.values()), retain_graph=not is_last)
        g = dict(zip(heads.z, found, strict=True))
        by_step = zip(steps, deltas, strict=True)
        return [(double(g[step.layer]) * delta).sum(dim=(1, 3)).cpu().numpy() for step, delta in by_step]

    each = 1 / np.maximum(n_rows, 1)[:, None]
    drawn = _draws(log_p.detach(), rows, screen)
    curvature = [np.zeros((len(batch.prompts), model.info.n_heads)) for _ in steps]
    for n, labels in enumerate(drawn):
        is_last = n + 1 == len(drawn) and screen.measure == "next_kl"
        scores = along(log_p.gather(1, labels[:, None]).sum(), is_last)
        curvature = [c + each * np.square(s) / len(drawn) for c, s in zip(curvature, scores, strict=True)]
    slope = [np.zeros_like(c) for c in curvature]
    if screen.measure != "next_kl":
        slope = [-each * s for s in along((_targets(run, batch, rows, screen.measure, log_p) * log_p).sum(), True)]
    return batch.prompts, [BITS_PER_NAT * np.stack(both) for both in zip(slope, curvature, strict=True)]


def _targets(run: Run, batch: Batch, rows: BatchRows, measure: str, log_p: torch.Tensor) -> torch.Tensor:
    """The target distribution of the cross-entropy of each row, `[row, outcome]`."""
    if measure == "posterior_kl":
        assert run.prompts.posterior is not None
        return torch.from_numpy(np.asarray(run.prompts.posterior)[rows.row]).to(log_p)
    following = batch.ids.to(log_p.device)[rows.item, rows.position + 1]
    return torch.zeros_like(log_p).scatter_(1, following[:, None], 1.0)


def _draws(log_p: torch.Tensor, rows: BatchRows, screen: Screen) -> list[torch.Tensor]:
    """Outcomes drawn from each row's prediction, independent of its batch; one tensor `[row]` per draw.

    Quantiles are drawn one from each of `n_draws` equal parts, in random order: less variance, and no bias.
    """
    n = screen.n_draws
    quantiles = np.empty((len(rows.row), n))
    for i, row in enumerate(rows.row.tolist()):
        rng = np.random.default_rng([screen.seed, row])
        quantiles[i] = (rng.permutation(n) + rng.random(n)) / n
    below = double(log_p).exp().cumsum(dim=-1)
    below = below / below[:, -1:]
    found = torch.searchsorted(below, torch.from_numpy(quantiles).to(below)).clamp_max(log_p.shape[-1] - 1)
    return list(found.to(log_p.device).unbind(dim=1))
