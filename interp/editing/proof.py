"""Checks, on two prompts of every run with edits, that edits do what they should; listed in `MEANINGS`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import torch

from interp.edit import Edit
from interp.editing.editor import ATTENTION_SITES, Editor, editing
from interp.editing.restart import Residuals, first_layer
from interp.editing.steps import SeenStep
from interp.edits import PatternsOf
from interp.errors import ModelError
from interp.hooks.attention import Listener, listening
from interp.hooks.pattern import AttentionCall, pattern_rows
from interp.hooks.window import window_here
from interp.model import Check, Model
from interp.reading.batches import Batch
from interp.reading.forward import threads_of_pass
from interp.system.float64 import double
from interp.system.rounding import BOUND, error_of_logits

MEANINGS = {
    "edit read-back": "the edited component is what the edit says, and nothing else of the tensor changed",
    "edit reached": "attention received exactly what the edits left",
    "edit donor": "attention rows equal those of the source model in its own forward pass on the same tokens",
    "edit pattern": "edits of values and head outputs leave the attention rows of their layer untouched",
    "edit dose 0": "edits of dose 0 change no bit of the logits",
    "edit restored": "after edits, and after an interruption, no hook is left and no bit of the logits changed",
    "edit restart": "a pass from the first edited layer on gives the logits of a whole pass",
}


@dataclass
class _Witness(Listener):
    """Keeps calls and head outputs as they are at its place among the listeners."""

    calls: dict[int, AttentionCall] = field(default_factory=dict)
    z: dict[int, torch.Tensor] = field(default_factory=dict)

    def before(self, call: AttentionCall) -> None:
        self.calls[call.layer] = replace(call)

    def after(self, call: AttentionCall, z: torch.Tensor) -> torch.Tensor:
        self.z[call.layer] = z
        return z


@dataclass
class EditedBatch:
    """The model, one batch of the run's prompts, and a function that makes an editor for it."""

    model: Model
    batch: Batch
    make_editor: Callable[[Sequence[Edit]], Editor]
    residuals: Residuals

    def prove(self, edits: Sequence[Edit], start: int) -> tuple[Check, ...]:
        """The checks of one list of edits; raises `ModelError` for the first that fails."""
        with torch.inference_mode():
            values = dict(self._errors(edits, start))
        words = "; ".join(dict.fromkeys(_in_words(edit) for edit in edits))
        bound = BOUND[self.model.info.dtype]
        checks = []
        for name, value in values.items():
            allowed = bound if name in ("edit read-back", "edit restart") else 0.0
            checks.append(Check(name, MEANINGS[name], bool(value <= allowed), value, allowed, detail=words))
            if not checks[-1].passed:
                raise ModelError(
                    asked=f"editing {self.model.name} ({words})",
                    found=f"the check {name!r} failed: {MEANINGS[name]}; {value:.3g}, at most {allowed:.3g} allowed",
                    fix="The run stops, because the effects of these edits cannot be trusted. Please report it.",
                )
        return tuple(checks)

    def _errors(self, edits: Sequence[Edit], start: int) -> Iterator[tuple[str, float]]:
        hooks = self._count_hooks()
        unedited, _, plain = self._pass()
        editor, seen = self.make_editor(edits), list[SeenStep]()
        editor.observers = [seen.append]
        edited, entering, leaving = self._pass(editor)
        last_of_each = {(s.step.place, s.step.layer): s for s in seen if s.step.place in ATTENTION_SITES}
        yield "edit read-back", max((_read_back(s) for s in seen), default=0.0)
        yield "edit reached", float(sum(not _reached(s, leaving) for s in last_of_each.values()))
        if any(isinstance(edit, PatternsOf) for edit in edits):
            yield "edit donor", float(self._patterns_not_donated(edits, leaving))
        if any(edit.place in ("v", "z") for edit in edits):
            yield "edit pattern", float(_patterns_moved(edits, self.model, plain, entering, leaving))
        nothing = self._pass(self.make_editor([replace(edit, dose=0.0) for edit in edits]))[0]
        yield "edit dose 0", float(not torch.equal(nothing, unedited))
        yield "edit restored", float(self._restored(editor, unedited, hooks))
        if start:
            with self.residuals.restarting(start):
                restarted = self._pass(editor)[0]
            # without padding: no token sees it, and the stream was kept from batches padded to other lengths
            yield "edit restart", error_of_logits(restarted[self._is_token], edited[self._is_token])

    def _pass(self, editor: Editor | None = None) -> tuple[torch.Tensor, _Witness, _Witness]:
        """The logits of a forward pass, and witnesses before and after the editor."""
        entering, leaving = _Witness(), _Witness()
        self.residuals.kept.begin(self.batch)
        if editor is not None:
            editor.begin(self.batch)
        edited = nullcontext() if editor is None else editing(self.model, editor)
        threads = threads_of_pass(self.model, self.batch.ids)
        with threads, listening(self.model, entering), edited, listening(self.model, leaving):
            return self.model.module(input_ids=self.batch.ids, use_cache=False).logits, entering, leaving

    @property
    def _is_token(self) -> torch.Tensor:
        """Where the batch has tokens, not padding, `[prompt, pos]`."""
        lengths = torch.from_numpy(self.residuals.lengths[self.batch.prompts])
        return torch.arange(self.batch.ids.shape[1])[None] < lengths[:, None]

    def _patterns_not_donated(self, edits: Sequence[Edit], leaving: _Witness) -> int:
        """How many layers have attention rows unlike the donor's, for edits at dose 1 with no later edit."""
        info, wrong = self.model.info, 0
        for i, edit in enumerate(edits):
            if not isinstance(edit, PatternsOf) or edit.dose != 1:
                continue
            later = {n for e in edits[i + 1 :] if e.place in ("q", "k", "qk") for n in e.layers(info)}
            alone = _Witness()
            with listening(edit.donor, *window_here(), alone):
                edit.donor.module(input_ids=self.batch.ids.to(edit.donor.input_device), use_cache=False)
            for layer in set(edit.layers(info)) - later:
                rows = (_rows_of(calls[layer], self._is_token) for calls in (leaving.calls, alone.calls))
                wrong += not torch.equal(*rows)
        return wrong

    def _restored(self, editor: Editor, unedited: torch.Tensor, hooks: int) -> int:
        """How many of three faults occur: hooks left, hooks left by an interruption, logits that differ."""
        wrong = int(self._count_hooks() != hooks)
        try:
            with editing(self.model, editor):
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            wrong += int(self._count_hooks() != hooks)
        return wrong + int(not torch.equal(self._pass()[0], unedited))

    def _count_hooks(self) -> int:
        return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in self.model.module.modules())


def _in_words(edit: Edit) -> str:
    """The name of an edit in checks; a donor has the fingerprint of its weights."""
    of = f" of {edit.donor_name} (weights {edit.donor.fingerprint[:16]})" if isinstance(edit, PatternsOf) else ""
    return f"{edit.kind} {edit.place}{of}"


def merged(checks: Sequence[Check]) -> tuple[Check, ...]:
    """The worst check of every name, with all edits that it was made on."""
    found = []
    for name in dict.fromkeys(check.name for check in checks):
        mine = [check for check in checks if check.name == name]
        worst = max(mine, key=lambda check: check.value)
        on = "; ".join(dict.fromkeys(check.detail for check in mine))
        found.append(replace(worst, passed=all(check.passed for check in mine), detail=on))
    return tuple(found)


def _read_back(s: SeenStep) -> float:
    """The largest error of a change against its formula, relative to the tensor, in float64."""
    step, rows = s.step, s.rows
    if not torch.equal(s.after[:, ~rows.mask], s.before[:, ~rows.mask]):
        return float("inf")
    whole = double(s.before)
    rows = rows.to(whole.device)
    mask = rows.mask
    before, after = whole[:, mask], double(s.after)[:, mask]  # [1, row, feature]
    if not before.numel():
        return 0.0
    dose = float(step.dose[0])
    change = after - before
    numbers = {name: value.to(whole) for name, value in step.numbers.items()}
    if "covectors" not in numbers:
        others = None if s.others is None else double(s.others)
        put = step.edited(whole, rows, others)[:, mask]
        error = after - (before + dose * (put - before))
    else:
        covectors, displacements = numbers["covectors"], numbers["displacements"]
        read = change @ covectors.mT  # [1, row, axis]
        wanted = _coordinate_change(step.edit.kind, numbers, before @ covectors.mT, rows.number[mask])
        rest = change - read @ displacements
        if step.edit.kind == "keep":
            own = before * (1 - numbers["kept"]) - (before @ covectors.mT) @ displacements
            rest = rest + dose * own
        error = torch.cat([(read - dose * wanted) @ displacements, rest], dim=-1)
    return float(error.abs().max() / before.abs().max().clamp_min(1e-30))


def _coordinate_change(
    kind: str, numbers: Mapping[str, torch.Tensor], c: torch.Tensor, rows: torch.Tensor
) -> torch.Tensor:
    """The change of the coordinates `[1, row, axis]` at dose 1, by definition."""
    if kind == "remove":
        return -c
    if kind == "keep":
        return torch.zeros_like(c)
    if kind == "shift":
        return numbers["shift"].expand_as(c)
    if kind == "rotate":
        return torch.einsum("vij,vrj->vri", numbers["rotation"], c) - c
    values = numbers["values"]
    return (values[:, None] if values.ndim == 2 else values[:, rows]) - c


def _reached(s: SeenStep, leaving: _Witness) -> bool:
    layer = s.step.layer
    found = leaving.z[layer] if s.step.place == "z" else getattr(leaving.calls[layer], s.step.place).transpose(1, 2)
    return torch.equal(found.flatten(2)[None], s.after)


def _patterns_moved(edits: Sequence[Edit], model: Model, plain: _Witness, entering: _Witness, leaving: _Witness) -> int:
    """How many layers with edited values or head outputs have attention rows that differ from those without the edit.

    The first edited layer is compared with the unedited model; later ones, which also follow other edits, with the
    calls before the editor in that layer.
    """
    mixed = [e for e in edits if e.place in ("v", "z")]
    others = [e for e in edits if e.place not in ("v", "z")]
    compared = {n for e in others if e.place in ("q", "k", "qk") for n in e.layers(model.info)}
    first = first_layer(mixed, model)
    is_first = not others or first_layer(others, model) > first
    moved = 0
    for layer in {n for e in mixed for n in e.layers(model.info)} - compared:
        without = plain if layer == first and is_first else entering
        calls = without.calls[layer], leaving.calls[layer]
        moved += not torch.equal(*(pattern_rows(call, call.positions) for call in calls))
    return moved


def _rows_of(call: AttentionCall, is_token: torch.Tensor) -> torch.Tensor:
    """The attention rows of tokens, from contiguous copies, because rounding depends on the layout in memory."""
    copied = replace(call, q=call.q.contiguous(), k=call.k.contiguous())
    return pattern_rows(copied, call.positions).cpu().transpose(1, 2)[is_token]
