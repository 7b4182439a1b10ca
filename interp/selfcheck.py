"""The self-check: on the user's own model, prove that what is captured is what it is called.

A table of checks, run on every load on two short sequences of unlike length. Each gives the largest error seen
and the bound it had to keep; errors are relative to the largest entry of what is compared. A model that fails one is
refused, by the name of the check. Checks of what a model does not have are left out, never passed: one without
attention is checked as a stack of blocks instead.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Literal

import numpy as np
import torch

from interp.attention import Listener, attention_function, claimed, listening
from interp.errors import ModelError
from interp.families import Projection
from interp.hooks import block_hooks
from interp.lens import Lens
from interp.model import Check, Model
from interp.offload import brought_in
from interp.pattern import AttentionCall, pattern_rows, visible_keys

LENGTHS = (12, 7)
"""Tokens of the two sequences; the second is padded on the right when both run together."""

_BOUND = {"float64": 1e-5, "float32": 1e-4, "bfloat16": 6e-2, "float16": 1e-2}
"""Largest relative error allowed, by the precision the model computes in."""


def check_model(model: Model) -> tuple[Check, ...]:
    """Run every check; returns them all. Raises `ModelError` naming the first that fails."""
    checks = tuple(run_checks(model))
    failed = next((c for c in checks if not c.passed), None)
    if failed is not None:
        raise ModelError(
            asked=f"reading {model.name} ({model.info.family})",
            found=f"the self-check {failed.name!r} failed: {failed.meaning}; {failed.detail or 'error'} "
            f"{failed.value:.3g}, at most {failed.bound:.3g} allowed",
            fix="Nothing captured from it could be trusted, so it is refused. "
            "Please report the model and the name of the check.",
        )
    return checks


def run_checks(model: Model) -> Iterator[Check]:
    """The checks one after the other, passed or not."""
    with torch.inference_mode(), claimed(model):
        bench = Bench(model)
        for name, meaning, run, _ in _applying(model):
            value, bound, detail = run(bench)
            yield Check(name, meaning, bool(value <= bound), value, bound, detail=detail)


def left_out(model: Model) -> tuple[str, ...]:
    """The names of the checks that do not apply to this model, since it lacks what they are about."""
    applying = _applying(model)
    return tuple(entry[0] for entry in _CHECKS if entry not in applying and entry[3] != "stack")


class _Recorder(Listener):
    """Keeps every call whole, and the head outputs: for the few tokens of the check only."""

    def __init__(self) -> None:
        self.calls: list[AttentionCall] = []
        self.z: list[torch.Tensor] = []

    def after(self, call: AttentionCall, z: torch.Tensor) -> torch.Tensor:
        self.calls.append(call)
        self.z.append(z)
        return z


@dataclass
class _ScaleValues(Listener):
    """Multiplies the values of one layer by 1 − dose: the simplest edit there is."""

    layer: int
    dose: float

    def before(self, call: AttentionCall) -> None:
        if call.layer == self.layer:
            call.v = call.v * (1.0 - self.dose)


@dataclass
class Bench:
    """One model, two sequences, and what a pass over them gave; each pass is run once, when first asked for."""

    model: Model
    ids: torch.Tensor = field(init=False)
    sites: dict[tuple[str, int], torch.Tensor] = field(default_factory=dict)
    inputs: list[torch.Tensor] = field(default_factory=list)
    outputs: list[torch.Tensor] = field(default_factory=list)
    blocks: list[tuple[int, torch.Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(0)
        longest = min(LENGTHS[0], self.model.info.max_positions or LENGTHS[0])
        ids = rng.integers(0, self.model.info.vocab_size, size=(len(LENGTHS), longest))
        self.ids = torch.from_numpy(ids).to(self.model.input_device)

    @property
    def bound(self) -> float:
        return _BOUND[self.model.info.dtype]

    def logits(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        return self.model.module(input_ids=self.ids if ids is None else ids, use_cache=False).logits.float()

    @cached_property
    def plain(self) -> torch.Tensor:
        """Logits of the model as it was handed in."""
        return self.logits()

    @cached_property
    def heard(self) -> _Recorder:
        """One pass with the seam and all hooks."""
        recorder = _Recorder()
        names = {"resid", "attn_out", "mlp_out", "q_pre", "k_pre"}
        names -= set() if self.model.family.has_attention else {"q_pre", "k_pre"}
        with (
            listening(self.model, recorder),
            block_hooks(self.model, names, lambda site, layer, x: self.sites.__setitem__((site, layer), x)),
            _attention_ends(self),
            _block_ends(self),
        ):
            self.seam_logits = self.logits()
        return recorder

    def edited(self, layer: int, dose: float) -> torch.Tensor:
        with listening(self.model, _ScaleValues(layer, dose)):
            return self.logits()


def _attention_ends(bench: Bench):
    """Hooks that keep the input and the output of every attention module."""
    stack = ExitStack()
    for attention in bench.model.family.attention_modules(bench.model.module):

        def before(module, args, kwargs):
            bench.inputs.append(args[0] if args else kwargs["hidden_states"])

        def after(module, args, out):
            bench.outputs.append(out[0] if isinstance(out, tuple) else out)

        stack.callback(attention.register_forward_pre_hook(before, with_kwargs=True).remove)
        stack.callback(attention.register_forward_hook(after).remove)
    return stack


def _block_ends(bench: Bench):
    """Hooks that keep what every block returns, with its number."""
    stack = ExitStack()
    for layer, block in enumerate(bench.model.family.layer_modules(bench.model.module)):

        def after(module, args, out, layer=layer):
            bench.blocks.append((layer, out[0] if isinstance(out, tuple) else out))

        stack.callback(block.register_forward_hook(after).remove)
    return stack


def relative_error(a: torch.Tensor, b: torch.Tensor) -> float:
    """Largest difference relative to the largest entry; infinite where shapes differ or something is not finite."""
    if a.shape != b.shape:
        return float("inf")
    a, b = a.float(), b.float().to(a.device)
    gap = (a - b).abs().max() / b.abs().max().clamp_min(1e-30)
    return float(gap) if torch.isfinite(gap) else float("inf")


_Outcome = tuple[float, float, str]


def _finite(bench: Bench) -> _Outcome:
    bad = int((~torch.isfinite(bench.plain)).sum())
    return float(bad), 0.0, "logits that are not finite:"


def _heard_once(bench: Bench) -> _Outcome:
    heard = [call.layer for call in bench.heard.calls]
    wrong = sum(heard.count(layer) != 1 for layer in range(bench.model.info.n_layers))
    return float(wrong), 0.0, "layers not heard exactly once:"


def _equals_eager(bench: Bench) -> _Outcome:
    _ = bench.heard
    with attention_function(bench.model, "eager"):
        eager = bench.logits()
    return relative_error(bench.seam_logits, eager), bench.bound, "relative error of the logits"


def _causal(bench: Bench) -> _Outcome:
    worst = 0.0
    for call in bench.heard.calls:
        positions = torch.arange(call.q.shape[2], device=call.q.device).expand(call.q.shape[0], -1)
        pattern = pattern_rows(call, positions)
        unseen = ~visible_keys(call, positions)
        future = torch.ones_like(unseen[0]).triu(1 + call.k.shape[2] - call.q.shape[2])
        leaked = (pattern * (unseen | future)[:, None]).abs().max()
        worst = max(worst, float(leaked), float((pattern.sum(-1) - 1).abs().max()))
    return worst, 1e-5, "weight on the future, or rows off one, by"


def _output(bench: Bench) -> _Outcome:
    """Captured values times the pattern, through W_O, is what the attention module returned."""
    worst = 0.0
    model = bench.model
    shape = model.family.head_shape(model.module.config)
    modules = model.family.attention_modules(model.module)
    for call, z, attention, out in zip(bench.heard.calls, bench.heard.z, modules, bench.outputs, strict=True):
        if call.v.shape[1] != shape.n_kv_heads or call.q.shape[1] != shape.n_heads:
            return float("inf"), bench.bound, "heads counted wrongly: error"
        positions = torch.arange(call.q.shape[2], device=call.q.device).expand(call.q.shape[0], -1)
        v = call.v.float().repeat_interleave(shape.n_heads // shape.n_kv_heads, dim=1)
        mixed = pattern_rows(call, positions) @ v
        with brought_in(attention):
            weight, bias = model.family.output_weight(attention, shape)
            ours = torch.einsum("bhpd,hdm->bpm", mixed, weight.float().to(mixed.device))
            ours = ours if bias is None else ours + bias.float().to(ours.device)
        worst = max(worst, relative_error(mixed.transpose(1, 2), z), relative_error(ours, out))
    return worst, bench.bound, "relative error of the attention output"


def _projections(bench: Bench) -> _Outcome:
    """The attention's input times W_Q, W_K, W_V per head is what stands before rotary embedding, and v."""
    worst = 0.0
    model = bench.model
    shape = model.family.head_shape(model.module.config)
    modules = model.family.attention_modules(model.module)
    for layer, (call, attention, x) in enumerate(zip(bench.heard.calls, modules, bench.inputs, strict=True)):
        captured: dict[Projection, torch.Tensor] = {
            "q": bench.sites["q_pre", layer],
            "k": bench.sites["k_pre", layer],
            "v": call.v.transpose(1, 2),
        }
        for which, theirs in captured.items():
            with brought_in(attention):
                weight, bias = model.family.projection_weight(attention, which, shape)
                ours = torch.einsum("bpm,hmd->bphd", x.float().to(weight.device), weight.float())
                ours = ours if bias is None else ours + bias.float()
            norm = model.family.qk_norm
            normalising = None if norm is None else norm.module(attention, which)
            if norm is not None and normalising is not None:
                ours = norm.to_heads(normalising(norm.from_heads(ours.to(x.dtype))), shape.d_head)
            worst = max(worst, relative_error(ours, theirs))
    return worst, bench.bound, "relative error of a projection"


def _rotary(bench: Bench) -> _Outcome:
    """Rotary embedding is the identity at position 0 and keeps lengths everywhere (up to one scale)."""
    worst = 0.0
    root = bench.model.info.d_head**-0.5 if bench.model.family.scales_queries else 1.0
    for layer, call in enumerate(bench.heard.calls):
        for site, after, scale in (("q_pre", call.q, root), ("k_pre", call.k, 1.0)):
            before, after = bench.sites[site, layer].float() * scale, after.transpose(1, 2).float()
            if before.shape != after.shape:
                return float("inf"), bench.bound, "heads counted wrongly: error"
            worst = max(
                worst,
                relative_error(after[:, 0], before[:, 0]),
                relative_error(after.norm(dim=-1), before.norm(dim=-1)),
            )
    return worst, bench.bound, "relative error before against after rotary embedding"


def _residual(bench: Bench) -> _Outcome:
    """Each block adds exactly its attention and its feed-forward output, as far as it has them, to its input."""
    _ = bench.heard
    worst = 0.0
    for layer in range(bench.model.info.n_layers):
        sites = [site for site in ("resid", "attn_out", "mlp_out") if (site, layer) in bench.sites]
        parts = [bench.sites[site, layer].float().to(bench.ids.device) for site in sites]
        worst = max(worst, relative_error(sum(parts[1:], parts[0]), bench.sites["resid", layer + 1]))
    return worst, bench.bound, "relative error of the sum"


def _decoded(bench: Bench) -> _Outcome:
    """The last residual vectors through final norm and head are the logits."""
    _ = bench.heard
    last = bench.sites["resid", bench.model.info.n_layers]
    decoded = Lens(bench.model).logits(last.flatten(0, 1)).view(bench.plain.shape)
    return relative_error(decoded, bench.plain), bench.bound, "relative error of the logits"


def _batched(bench: Bench) -> _Outcome:
    """A short sequence gives the same logits alone as padded on the right beside a longer one."""
    short = min(LENGTHS[1], bench.ids.shape[1])
    alone = bench.logits(bench.ids[1:, :short])
    return relative_error(bench.plain[1:, :short], alone), bench.bound, "relative error of the logits"


def _edit_acts(bench: Bench) -> _Outcome:
    """Removing the values of a layer (first, middle, last) moves the logits; not where attention is switched off."""
    n = bench.model.info.n_layers
    _ = bench.heard
    scale = bench.plain.abs().max()
    wrong = 0
    for layer in {0, n // 2, n - 1}:
        move = float((bench.edited(layer, 1.0) - bench.seam_logits).abs().max() / scale)
        wrong += move > 0 if _is_switched_off(bench, layer) else move <= 1e-6
    return float(wrong), 0.0, "layers whose edit moves nothing (or something, with attention switched off):"


def _is_switched_off(bench: Bench, layer: int) -> bool:
    """Whether the output projection is exactly zero, so that attention adds nothing there."""
    family = bench.model.family
    assert family.out is not None
    projection = attrgetter(family.out)(family.attention_modules(bench.model.module)[layer])
    with brought_in(projection):
        return not projection.weight.any()


def _dose_zero(bench: Bench) -> _Outcome:
    """An edit of dose 0 changes no bit of the logits under the seam."""
    _ = bench.heard
    same = torch.equal(bench.edited(bench.model.info.n_layers // 2, 0.0), bench.seam_logits)
    return float(not same), 0.0, "differs from the unedited pass:"


def _restored(bench: Bench) -> _Outcome:
    """After listening and editing the model gives its first logits again, bit for bit."""
    before = bench.plain
    _ = bench.heard
    return float(not torch.equal(bench.logits(), before)), 0.0, "differs from the first pass:"


def _blocks_once(bench: Bench) -> _Outcome:
    _ = bench.heard
    heard = [layer for layer, _ in bench.blocks]
    wrong = sum(heard.count(layer) != 1 for layer in range(bench.model.info.n_layers))
    return float(wrong), 0.0, "blocks not run exactly once:"


def _blocks_join(bench: Bench) -> _Outcome:
    """What a block returns is what the next block, or the final norm, receives."""
    _ = bench.heard
    worst = max(relative_error(out, bench.sites["resid", layer + 1]) for layer, out in bench.blocks)
    return worst, 0.0, "relative error"


def _blind_ahead(bench: Bench) -> _Outcome:
    """Other tokens in the second half change no logits in the first, and do change those in the second."""
    half = bench.ids.shape[1] // 2
    changed = bench.ids.clone()
    changed[:, half:] = (changed[:, half:] + 1) % bench.model.info.vocab_size
    moved = bench.logits(changed)
    if torch.equal(moved[:, half:], bench.plain[:, half:]):
        return float("inf"), bench.bound, "the tokens change nothing: error"
    return relative_error(moved[:, :half], bench.plain[:, :half]), bench.bound, "relative error of the earlier logits"


def _reading_is_harmless(bench: Bench) -> _Outcome:
    _ = bench.heard
    return float(not torch.equal(bench.seam_logits, bench.plain)), 0.0, "differs from a pass without reading:"


def _applying(model: Model) -> tuple["_Entry", ...]:
    """The checks of what this model has, in the order of the table."""
    family = model.family
    has = {"model": True, "attention": family.has_attention, "stack": not family.has_attention}
    has["sums"] = family.has_attention or family.mlp is not None
    has["weights"] = family.has_attention and model.info.quantisation is None
    return tuple(entry for entry in _CHECKS if has[entry[3]])


_About = Literal["model", "attention", "weights", "stack", "sums"]
"""What a check is about: any model; attention; the plain weights of attention, which a quantised model does not have;
blocks without attention; parts added to the residual stream."""

_Entry = tuple[str, str, Callable[[Bench], _Outcome], _About]

_CHECKS: tuple[_Entry, ...] = (
    ("finite", "logits are finite", _finite, "model"),
    ("heard", "every layer is heard exactly once", _heard_once, "attention"),
    ("blocks", "every block runs exactly once", _blocks_once, "stack"),
    ("eager", "logits under the seam equal eager attention", _equals_eager, "attention"),
    ("causal", "attention rows are distributions over the past", _causal, "attention"),
    ("blind ahead", "later tokens change no earlier logit", _blind_ahead, "stack"),
    ("output", "captured values times the pattern, through W_O, are the attention's output", _output, "weights"),
    (
        "projections",
        "the attention's input times W_Q, W_K, W_V per head are the captured q, k, v",
        _projections,
        "weights",
    ),
    ("rotary", "keys and queries before and after rotary embedding belong together", _rotary, "attention"),
    ("stream", "what a block returns is what the next one receives", _blocks_join, "stack"),
    ("residual", "block outputs add up to the residual stream", _residual, "sums"),
    ("head", "the residual stream through final norm and head gives the logits", _decoded, "model"),
    ("batched", "right-padded in a batch equals alone", _batched, "model"),
    ("edit", "an edit of the values moves the logits", _edit_acts, "attention"),
    ("dose 0", "an edit of dose 0 changes nothing", _dose_zero, "attention"),
    ("reading", "reading changes no bit of the logits", _reading_is_harmless, "stack"),
    ("restored", "leaving restores the model bit for bit", _restored, "model"),
)
