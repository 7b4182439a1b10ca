"""The editor applies the steps of edits while a model runs.

At q, k, v and z it is a listener of the attention hook; elsewhere it is a set of forward hooks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch

from interp.edit import Edit
from interp.editing.donor_patterns import DonorPatterns, refuse_unlike
from interp.editing.edit_files import resolve_edits
from interp.editing.edited_rows import CallsOfTexts, rows_in_batch, rows_without_prompts
from interp.editing.prompt_tensors import HeadOutputs
from interp.editing.steps import EditedRows, EditStep, SeenStep, make_steps
from interp.edits import AblateHeads, BypassLayer, Edits, PatternsOf, ReplaceCoordinates
from interp.errors import UsageError
from interp.hooks.attention import (
    Listener,
    Ours,
    claimed,
    in_own_thread,
    listening,
    this_thread,
    this_thread_and_new_ones,
)
from interp.hooks.block_hooks import block_hooks, hidden_states
from interp.hooks.pattern import AttentionCall
from interp.model import Model
from interp.reading.batches import Batch, RowIndex

ATTENTION_SITES = frozenset({"q", "k", "v", "z"})
"""Sites of the attention hook; all others have forward hooks."""

_APPLIED: WeakKeyDictionary[torch.nn.Module, list[list[Edit]]] = WeakKeyDictionary()
"""By model, the edits of every block of `applied` that it is in."""


class Editor(Listener):
    """Applies steps, for variants of the edits whose rows follow one another in every batch.

    `rows` (one index per edit) are the edited positions of a run's prompts, whose batches `begin` announces; without
    them edits act on any pass, at the positions of each call. Passes are those of threads that are `ours`, by default
    of the one that makes the editor.
    """

    def __init__(
        self,
        model: Model,
        steps: Sequence[EditStep],
        rows: Sequence[RowIndex] | None = None,
        outputs: HeadOutputs | None = None,
        ours: Ours | None = None,
    ) -> None:
        self.model, self.rows, self.outputs = model, rows, outputs
        self.ours = ours or this_thread()
        self._steps: dict[tuple[str, int], list[EditStep]] = {}
        for step in steps:
            self._steps.setdefault((step.place, step.layer), []).append(step)
        self._donors = {
            step.index: DonorPatterns(step.edit.donor, step.edit.layers(model.info))
            for step in steps
            if isinstance(step.edit, PatternsOf)
        }
        self._batch: Batch | None = None
        self._edited_rows: Mapping[int, EditedRows] = {}
        self._calls = CallsOfTexts(WeakKeyDictionary())
        self.observers: Sequence[Callable[[SeenStep], None]] = ()

    def begin(self, batch: Batch) -> None:
        """Set the prompts of the next pass, which every variant runs."""
        assert self.rows is not None
        self._batch = batch
        self._edited_rows = {index: rows_in_batch(rows, batch) for index, rows in enumerate(self.rows)}

    def before(self, call: AttentionCall) -> None:
        for site in ("q", "k", "v"):
            if (site, call.layer) in self._steps:
                x = getattr(call, site).transpose(1, 2)
                setattr(call, site, self._apply(site, call.layer, x.flatten(2)).view(x.shape).transpose(1, 2))

    def after(self, call: AttentionCall, z: torch.Tensor) -> torch.Tensor:
        if ("z", call.layer) not in self._steps:
            return z
        return self._apply("z", call.layer, z.flatten(2)).view(z.shape)

    @contextmanager
    def hooks(self) -> Iterator[None]:
        """Forward hooks for the other sites, and for donors of patterns."""
        module, calls = self.model.module, self._calls
        blocks = self.model.family.layer_modules(module)
        places = [(place, layer) for place, layer in self._steps if place not in ATTENTION_SITES]
        sites, layers = {place for place, _ in places}, {layer for _, layer in places}
        counted = any(isinstance(step.edit.at, tuple) for steps in self._steps.values() for step in steps)
        with ExitStack() as stack:
            if self.rows is None and counted:
                begin, end = in_own_thread(self.ours, calls.begin), in_own_thread(self.ours, calls.end)
                stack.enter_context(module.register_forward_pre_hook(begin, with_kwargs=True))
                stack.enter_context(module.register_forward_hook(end, with_kwargs=True, always_call=True))
            for donor in self._donors.values():
                stack.enter_context(donor.following(self.model, self.ours))
            for layer in (layer for place, layer in places if place == "block"):
                # after the block, because editors of inner blocks may have changed its input
                def keep(block: object, args: Any, kwargs: Any, out: object, layer: int = layer) -> None:
                    calls.entered[layer] = hidden_states(args, kwargs)

                hook = in_own_thread(self.ours, keep)
                stack.enter_context(blocks[layer].register_forward_hook(hook, with_kwargs=True))
            with block_hooks(self.model, sites, self._at_site, layers=layers, ours=self.ours, scaled=False):
                yield

    def _at_site(self, place: str, layer: int, x: torch.Tensor) -> torch.Tensor | None:
        return self._apply(place, layer, x) if (place, layer) in self._steps else None

    def _apply(self, place: str, layer: int, x: torch.Tensor) -> torch.Tensor:
        shape = x.shape[:2] if self._batch is None else self._batch.ids.shape
        x = x.view(-1, *shape, x.shape[-1])  # [variant, prompt, pos, feature]
        for step in self._steps[place, layer]:
            seen = self.step(step, x)
            for observe in self.observers:
                observe(seen)
            x = seen.after
        return x.flatten(0, 1)

    def step(self, step: EditStep, x: torch.Tensor) -> SeenStep:
        """One step applied to `x` `[variant, prompt, pos, feature]` of the current batch."""
        rows = self._edited_rows.get(step.index)
        if rows is None:
            rows = rows_without_prompts(step.edit, x, self._calls.now)
        rows = rows.to(x.device)
        others = self._others(step)
        return SeenStep(step, x, step.apply(x, rows, others), rows, others)

    def _others(self, step: EditStep) -> torch.Tensor | None:
        """The tensor that an edit puts in place, if it comes from the model or a donor."""
        if isinstance(step.edit, BypassLayer):
            entered, last = self._calls.entered[step.layer], self.model.info.n_layers - 1
            lens = self.model.lens if step.edit.lens and step.layer == last else None
            return entered if lens is None else lens.carried(entered, min(step.edit.layers(self.model.info)))
        if step.index in self._donors:
            return self._donors[step.index].take(step.place, step.layer)
        if not needs_outputs(step.edit):
            return None
        assert self.outputs is not None and self.rows is not None and self._batch is not None
        if "seed" not in step.numbers:
            return self.outputs.mean(step.layer, self.rows[step.index])
        seeds = step.numbers["seed"].long().tolist()
        donated = [self.outputs.donated(step.layer, seed, self._batch) for seed in seeds]
        return torch.stack(donated).flatten(1, 2)  # [variant, row, feature]


def needs_outputs(edit: Edit) -> bool:
    """Whether the edit needs the head outputs of the unedited model first."""
    return isinstance(edit, AblateHeads) and edit.by != "zero" and edit.mean is None


@contextmanager
def editing(model: Model, editor: Editor) -> Iterator[None]:
    """Apply the editor to every pass inside the block."""
    with claimed(model), editor.hooks(), listening(model, editor, ours=editor.ours):
        yield


@contextmanager
def applied(model: Model, *given: Edits) -> Iterator[None]:
    """Edit every forward pass of a model inside a `with` block.

    Edits act at all positions, or at positions of each text counted from 0. They follow the call's `position_ids`, its
    attention mask (padding on either side is left alone) and its cache: `generate` gives what it would give without a
    cache. A cache holds unedited keys and values, which are edited again in every pass.

    Edited are the passes of this thread and of threads that start inside the block, not of threads that ran before.

    Args:
        model: The model to edit.
        *given: Edits, or lists of edits, which act in this order. For ablation by the mean, fill in the means with
            `interp.with_means`. For other positions, and for ablation by other prompts, use `interp.collect(...,
            edits=[...])`.

    Yields:
        Nothing; `model.module` is edited until the block is left.

    Raises:
        UsageError: An edit does not fit the model, or needs prompts that are not known here. Raised before any pass.

    Examples:
        >>> model = interp.load("tunnel:bijection-gpt-neox")
        >>> tokens = torch.tensor([[1, 2, 3]])
        >>> with interp.applied(model, interp.AttentionOff(layer=0)):
        ...     edited = model.module(tokens).logits
        >>> bool((edited == model.module(tokens).logits).all())
        False
    """
    edits = [edit for each in given for edit in resolve_edits(each)]
    refuse_unknown_prompts(edits, model)
    mine = _APPLIED.setdefault(model.module, [])
    with editing(model, Editor(model, make_steps([edits], model.info), ours=this_thread_and_new_ones())):
        mine.append(edits)
        try:
            yield
        finally:
            mine.pop()


def refuse_unknown_prompts(edits: Sequence[Edit], model: Model) -> None:
    """Raise `UsageError` if an edit does not fit, or needs to know the prompts of passes."""
    refuse_misfits(edits, model)
    for edit in edits:
        asked, found, other = edit.where, "the prompts of the forward passes are not known here", ""
        if isinstance(edit, ReplaceCoordinates) and edit.values.ndim == 2 and len(edit.values) > 1:
            asked, other = f"{edit.where} with {len(edit.values)} rows of values", "give one row for all"
            found = "it is not known here which row belongs to which prompt"
        elif needs_outputs(edit):
            other = "means from interp.with_means"
        elif isinstance(edit.at, str) and edit.at != "all":
            asked, other = f"{edit.where} at {edit.at!r}", "positions counted from 0"
        if other:
            fix = f"Use interp.collect(model, prompts, needs, edits=[...]), or {other}."
            raise UsageError(asked=asked, found=found, fix=fix)


def edits_applied(model: Model) -> list[Edit]:
    """The edits of all `applied` blocks that the model is in, in order."""
    return [edit for edits in _APPLIED.get(model.module, ()) for edit in edits]


def name_with_edits(model: Model, edits: Sequence[Edit] = ()) -> str:
    """The model's name and its edits: those of `applied` blocks, then these."""
    acting = ", ".join(map(str, (*edits_applied(model), *edits)))
    return f"{model.name} edited: {acting}" if acting else model.name


def refuse_applied(model: Model, what: str) -> None:
    """Raise `UsageError` inside a block of `applied`, whose edits a result would not name."""
    if outside := edits_applied(model):
        raise UsageError(
            asked=f"{what} of {model.name} inside a block of interp.applied",
            found=f"it would be of the edited model ({outside[0]}), and not say so",
            fix="Leave the block, and give the edits here: edits=[...].",
        )


def refuse_misfits(edits: Sequence[Edit], model: Model) -> None:
    """Raise `UsageError` if there is no edit, or one does not fit the model."""
    if not edits:
        raise UsageError(asked=f"editing {model.name}", found="no edit is named", fix="Name at least one.")
    for edit in edits:
        edit.refuse_misfit(model.info)
        if isinstance(edit, PatternsOf):
            refuse_unlike(edit, model)
        if edit.place == "mlp_out" and model.family.mlp is None:
            found = f"{model.name} has no feed-forward block"
            raise UsageError(asked=str(edit), found=found, fix="Bypass the layer, or edit resid.")
