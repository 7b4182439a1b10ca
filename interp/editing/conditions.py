"""Captures of the model under edits, for the conditions of causal probes, reduced to their readouts one by one.

Conditions whose edits differ in numbers alone (axes, doses, heads at the same layers, sites and positions) share
passes: every batch of prompts is repeated, each time with the numbers of another condition. Passes start at the first
edited layer or token (interp.editing.restart).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from interp.capture import Capture
from interp.edit import Edit
from interp.editing.change_size import ChangeSizes
from interp.editing.edited_rows import edited_rows
from interp.editing.editor import Editor, editing, needs_outputs, refuse_misfits
from interp.editing.prompt_tensors import HeadOutputs
from interp.editing.proof import EditedBatch
from interp.editing.restart import BeforeTails, Prefixes, Residuals, first_layer, tail_starts, tails, tokens_of_tails
from interp.editing.steps import make_steps, signature
from interp.edits import BypassLayer, PatternsOf
from interp.hooks.attention import claimed, listening
from interp.hooks.ropes import rope_scales
from interp.hooks.window import window_here
from interp.model import Check, Model
from interp.need import Need
from interp.probe import Condition, Readout
from interp.prompt import PromptSet, Run
from interp.reading.batches import Batch, RowIndex, batches_of, make_batch, most_sequences, rows_of
from interp.reading.collector import OF_THE_END, Collector
from interp.reading.forward import TOKENS_PER_BATCH, Share, agrees, as_capture, capture
from interp.reading.packs import each_alone
from interp.reading.readable import refuse_unreadable
from interp.records.unfinished import NOT_KEPT, Name, Unfinished
from interp.system.processes import ALONE, Ranks, here
from interp.system.progress import Report, no_report

TOKENS_PER_PASS = TOKENS_PER_BATCH

_WORTH_TAILS = 4
"""Conditions on ends of prompts from which keeping keys and values of their beginnings saves time."""

_PROVED_ON = 4
"""Prompts on which it is checked that their ends give the logits of the whole."""
_LOG_P = Need("next_log_prob")


Resolve = Callable[[str, int | None], Run]
"""Returns another prompt set, by name and number of prompts, for conditions `on` one."""


def read_conditions(
    model: Model,
    run: Run,
    conditions: Iterable[Condition],
    *,
    resolve: Resolve | None = None,
    tokens_per_pass: int = TOKENS_PER_PASS,
    checks: list[Check] | None = None,
    progress: Report = no_report,
    layers: Sequence[int] | None = None,
    with_entropy: bool = False,
    seed: int = 0,
    unfinished: Unfinished = NOT_KEPT.run,
    name: str = "conditions",
    code: str = "",
) -> dict[str, Readout]:
    """The readout of every condition, by name, in order. `run` and `seed` are those of the base capture.

    Passes end at the last activation that is read, within `layers` if given. The rows of a condition have
    `next_entropy_bits` if one of its needs reads the outputs, or always `with_entropy`. With a list of `checks`, each
    kind of edit is verified first (see interp.editing.proof). Conditions in the `unfinished` work of a run, by this
    `name` and of a probe of this `code`, are not read again. Raises `UsageError` before any pass if an edit does not
    fit the model.
    """
    listed = list(conditions)
    names = [c.name for c in listed]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two conditions are named {twice!r}")
    for c in listed:
        if c.edits:
            refuse_misfits(c.edits, model)
        refuse_unreadable(model, c.needs)
    stage = unfinished.stage(name, model, run.prompts, run.ids, conditions=names, **{"code of the probe": code})
    before = stage.load()
    found: dict[str, Readout] = _readouts(before.arrays) if before else {}
    ranks = here()

    def saved() -> Iterator[tuple[Name, np.ndarray]]:
        for condition, readout in found.items():
            yield (condition,), np.empty(0)  # also marks conditions without arrays as read
            for name, array in readout.items():
                yield (condition, name), np.asarray(array)

    with claimed(model), stage.keeping(len(listed), "conditions", lambda: len(found), saved) as keep:
        for together in _on_the_same_prompts(listed).values():
            first = together[0]
            if first.on is None:
                source = run
            elif resolve is None:
                raise ValueError(f"{first.name!r} is on the prompts {first.on!r}, without a function to resolve them")
            else:
                source = resolve(first.on, first.n_pool)
            mine = source.take(first.prompts)
            shared = _SharedPasses(model, mine, together, tokens_per_pass, layers, with_entropy)
            if checks is not None:
                checks += shared.prove()
            for condition, under in shared.captures(frozenset(found)):
                found[condition.name] = condition.read(replace(under, seed=seed))
                keep()
                progress(min(len(found) * ranks.size, len(listed)), len(listed))
    for theirs in ranks.union(found):
        found |= theirs
    return {name: found[name] for name in names}


def _readouts(saved: Mapping[Name, np.ndarray]) -> dict[str, Readout]:
    found: dict[str, dict[str, np.ndarray]] = {}
    for (condition, *name), array in saved.items():
        found.setdefault(str(condition), {}).update({str(each): array for each in name})
    return dict(found)


def capture_edited(
    model: Model,
    prompts: PromptSet,
    ids: Sequence[Int[np.ndarray, " _pos"]],
    needs: Iterable[Need],
    edits: Sequence[Edit],
    *,
    layers: Sequence[int] | None = None,
    checks: list[Check] | None = None,
    progress: Report = no_report,
    unfinished: Unfinished = NOT_KEPT.run,
    name: str = "pass",
) -> Capture:
    """`interp.reading.forward.capture` of the model under edits; unfinished work is kept without edits only."""
    if not edits:
        return capture(model, prompts, ids, needs, layers=layers, progress=progress, unfinished=unfinished, name=name)
    kept: list[Capture] = []

    def keep(under: Capture) -> Readout:
        kept.append(under)
        return {}

    condition = Condition("edited", tuple(edits), tuple(dict.fromkeys(needs)), keep)
    read_conditions(
        model, Run(prompts, ids), [condition], checks=checks, progress=progress, layers=layers,
        with_entropy=layers is None,
    )  # fmt: skip
    return kept[0]


def _on_the_same_prompts(conditions: Sequence[Condition]) -> dict[tuple[object, ...], list[Condition]]:
    found: dict[tuple[object, ...], list[Condition]] = {}
    for c in conditions:
        chosen = None if c.prompts is None else np.asarray(c.prompts)
        key = None if chosen is None else (chosen.dtype.kind, chosen.tobytes())
        found.setdefault((c.on, c.n_pool, key), []).append(c)
    return found


@dataclass(frozen=True)
class _Group:
    """Conditions whose edits differ in numbers alone, the rows that they edit, and the first edited layer.

    `tails`: the positions at which passes over ends of the prompts start; None if they must be whole.
    """

    conditions: Sequence[Condition]
    rows: Sequence[RowIndex]
    first_layer: int
    tails: Int[np.ndarray, " prompt"] | None

    @classmethod
    def of(cls, conditions: Sequence[Condition], run: Run, model: Model) -> "_Group":
        edits, needs = conditions[0].edits, [n for n in conditions[0].needs if n.described.source != "edit"]
        rows = [edited_rows(edit, run.prompts, run.lengths) for edit in edits]
        read = list(rows_of(run.prompts, run.lengths, needs).values())
        is_of_outputs = all(need.described.source in ("output", "text") for need in needs)
        asks_whole = any(needs_outputs(edit) or isinstance(edit, PatternsOf) for edit in edits)
        starts = tail_starts(rows, read, run.lengths) if is_of_outputs and not asks_whole else None
        return cls(conditions, rows, first_layer(edits, model), starts)


def _unread(conditions: Sequence[Condition], model: Model) -> set[int]:
    """Layers that all conditions bypass at every position, if only outputs are read: their blocks can be skipped."""
    if any(need.described.source not in ("output", "text") for need in conditions[0].needs):
        return set()
    unread: set[int] = set()
    for edits in zip(*(c.edits for c in conditions), strict=True):
        if all(isinstance(edit, BypassLayer) and edit.dose == 1 and edit.at == "all" for edit in edits):
            unread |= set(edits[0].layers(model.info))
    return unread


class _SharedPasses:
    """Conditions on the same prompts, and the tensors of an unedited pass that they share, if any are needed."""

    def __init__(
        self, model: Model, run: Run, conditions: Sequence[Condition], tokens_per_pass: int,
        layers: Sequence[int] | None, with_entropy: bool,
    ) -> None:  # fmt: skip
        self.layers, self.with_entropy = layers, with_entropy
        self.model, self.run, self.conditions, self.tokens_per_pass = model, run, conditions, tokens_per_pass
        self.lengths = run.lengths
        self.residuals = Residuals(model, {first_layer(c.edits, model) for c in conditions}, self.lengths)
        self.groups = self._grouped()
        on_tails = [group for group in self.groups if group.tails is not None and not window_here()]
        depths = [self.residuals.start_of(group.first_layer) for group in on_tails]
        n_on_tails = sum(len(group.conditions) for group in on_tails)
        is_worth_it = n_on_tails >= _WORTH_TAILS and Prefixes.fits(model, min(depths), self.lengths)
        self.prefixes = Prefixes(self.lengths, range(min(depths), model.info.n_layers)) if is_worth_it else None
        mixed = {
            layer for c in conditions for edit in c.edits if needs_outputs(edit) for layer in edit.layers(model.info)
        }
        self.outputs = HeadOutputs(self.lengths, mixed)
        self.kept_depth = max([0, *self.residuals.kept.layers, *(layer + 1 for layer in mixed)])
        if self.prefixes is not None:
            self.kept_depth = model.info.n_layers
        is_read = any(not c.edits or any(need.site == "next_kl" for need in c.needs) for c in conditions)
        self.plain = self._unedited() if is_read or self.kept_depth else None
        if self.prefixes is not None and not self._agrees(self.prefixes, on_tails[0]):
            self.prefixes = None
        if self.prefixes is None:
            self.groups = [replace(group, tails=None) for group in self.groups]

    def _unedited(self) -> Collector:
        needs = {need: None for c in self.conditions for need in c.needs}
        if any(need.site == "next_kl" for need in needs):
            needs[_LOG_P] = None
        collector = self._collector(tuple(needs))
        kept = [self.residuals.kept, self.outputs, *filter(None, [self.prefixes])]
        begins = [tensors.begin for tensors in kept]
        share = Share(self.model, self._batches(self.tokens_per_pass), [collector], begins=begins)
        with torch.inference_mode(), self.residuals.keeping(), listening(self.model, *kept):
            share.run(self.kept_depth)
            for tensors in kept:
                tensors.join(here(), share.prompts)
        return collector

    def _grouped(self) -> list[_Group]:
        found: dict[tuple[object, ...], list[Condition]] = {}
        for c in self.conditions:
            if c.edits:
                key = (c.needs, *(signature(edit, self.model.info) for edit in c.edits))
                found.setdefault(key, []).append(c)
        return [_Group.of(of, self.run, self.model) for of in found.values()]

    def _agrees(self, prefixes: Prefixes, group: _Group) -> bool:
        """Whether ends of prompts give the predictions of whole prompts in this model, on the longest prompts."""
        assert group.tails is not None
        chosen = np.sort(np.argsort(-self.lengths, kind="stable")[:_PROVED_ON])
        ends = Batch(tails(self.run.ids, chosen, group.tails), self.model.input_device)
        for each in (self.residuals.kept, prefixes):
            each.begin(ends)

        @contextmanager
        def of_ends() -> Iterator[None]:
            with self.residuals.restarting(prefixes.layers[0]), listening(self.model, BeforeTails(prefixes)):
                yield

        return agrees(self.model, ends, chosen, self.run.ids, of_ends())

    def _batches(self, n_tokens: int, starts: Int[np.ndarray, " prompt"] | None = None) -> list[Batch]:
        alone = each_alone(self.run.ids, self.run.prompts.cluster_codes)
        packs = alone if starts is None else tails(self.run.ids, np.arange(len(starts)), starts)
        return batches_of(packs, n_tokens, self.model)

    def _collector(self, needs: tuple[Need, ...], **edited: Any) -> Collector:
        return Collector(
            self.model, self.run.prompts, self.lengths.tolist(), needs, layers=self.layers,
            with_entropy=self.with_entropy, **edited,
        )  # fmt: skip

    def captures(self, known: Collection[str] = ()) -> Iterable[tuple[Condition, Capture]]:
        """Every condition with its capture; ranks share the passes, or the batches if there are few passes.

        Passes whose conditions are all `known` are left out; the others stay the same.
        """
        passes: list[_Group] = []
        for c in self.conditions:
            if not c.edits:
                assert self.plain is not None
                yield c, self._capture(self.plain, c)
        for group in self.groups:
            own = self.lengths if group.tails is None else self.lengths - group.tails
            by_tokens = self._tokens(group) // (len(own) * int(own.max()))
            at_once = max(1, min(by_tokens, most_sequences() // len(self.lengths)))
            variants = group.conditions
            parts = [variants[start : start + at_once] for start in range(0, len(variants), at_once)]
            passes += [replace(group, conditions=p) for p in parts if not {c.name for c in p} <= set(known)]
        ranks = here()
        together = len(passes) < ranks.size
        for group in passes if together else passes[ranks.rank :: ranks.size]:
            yield from self._edited(group, ranks if together else ALONE)

    def _tokens(self, group: _Group) -> int:
        n = self.tokens_per_pass
        return n if group.tails is None else tokens_of_tails(n, group.tails, self.lengths)

    def prove(self) -> list[Check]:
        """The checks of the first condition of every kind, on two prompts that can share a pass."""
        scales = rope_scales(self.model.config, self.lengths)
        batch = make_batch(self.run.ids, np.flatnonzero(scales == scales[0])[:2], self.model.input_device)

        def make_editor(edits: Sequence[Edit]) -> Editor:
            rows = [edited_rows(edit, self.run.prompts, self.lengths) for edit in edits]
            return Editor(self.model, make_steps([edits], self.model.info), rows, self.outputs)

        tried = EditedBatch(self.model, batch, make_editor, self.residuals)
        kinds: dict[tuple[str, ...], Condition] = {}
        for c in self.conditions:
            if c.edits:
                kinds.setdefault(tuple(sorted({f"{e.kind} {e.place} {e.at}" for e in c.edits})), c)
        found: list[Check] = []
        for c in kinds.values():
            found += tried.prove(c.edits, self.residuals.start_of(first_layer(c.edits, self.model)))
        return found

    def _edited(self, group: _Group, ranks: Ranks) -> Iterable[tuple[Condition, Capture]]:
        model, variants, n = self.model, group.conditions, len(group.conditions)
        needs = variants[0].needs
        start = self.residuals.start_of(group.first_layer)
        if any(need.site in OF_THE_END for need in needs):
            start = 0
        unedited = None
        if any(need.site == "next_kl" for need in needs):
            assert self.plain is not None
            unedited = self.plain.reduced(_LOG_P)["rows"]
        collectors = [
            self._collector(needs, unedited=unedited, first_layer=start, earlier=self.plain) for _ in variants
        ]
        steps = make_steps([c.edits for c in variants], model.info)
        is_sized = any(need.site == "edit_size" for need in needs)
        sizes = [ChangeSizes(steps, n, len(self.lengths))] if is_sized else []
        edited = [layer + 1 for edit in variants[0].edits for layer in edit.layers(model.info)] if is_sized else [0]
        editor = Editor(model, steps, group.rows, self.outputs)
        editor.observers = [each.see for each in sizes]
        before = None if group.tails is None else self.prefixes
        listeners = [self.residuals.kept, editor, *sizes, *(() if before is None else (before,))]
        batches = self._batches(max(1, self._tokens(group) // n), group.tails)
        begins, ends = [each.begin for each in listeners], [each.end for each in sizes]
        share = Share(model, batches, collectors, ranks, begins, ends)
        with (
            self.residuals.restarting(start, _unread(variants, model)),
            editing(model, editor),
            nullcontext() if before is None else listening(model, BeforeTails(before)),
        ):
            share.run(max(edited))
        for each in sizes:
            each.join(ranks)
        for i, (condition, collector) in enumerate(zip(variants, collectors, strict=True)):
            under = self._capture(collector, condition)
            sized = {need: each.of(i) for each in sizes for need in condition.needs if need.site == "edit_size"}
            yield condition, replace(under, arrays={**under.arrays, **sized})

    def _capture(self, collector: Collector, condition: Condition) -> Capture:
        return as_capture(collector, self.run.prompts, self.run.ids, condition.needs)
