"""The checks: captured activations are what their names say, an edit acts, and nothing else changes.

Weights are compared through their products with activations. Every head of every layer is compared; of its features (of
the residual stream's, for the output projection) every eighth, different ones in each layer: a wrong layout moves all.
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from interp.family import Projection
from interp.hooks.pattern import pattern_rows, reduce_rows, visible_keys
from interp.hooks.ropes import resetting_ropes, rope_scales
from interp.model import Model
from interp.reading.lens import Lens
from interp.self_check.two_sequences import CheckResult, Observations
from interp.system.fingerprint import each_parameter
from interp.system.offload import brought_in
from interp.system.rounding import error_of_logits, relative_error


def finite(seen: Observations) -> CheckResult:
    """No weight and no logit is NaN or infinite, except for tokens that a bias of -inf at the head excludes."""
    head: Any = seen.model.module.get_output_embeddings()
    bias = getattr(head, "bias", None)
    with brought_in(head):
        never = torch.zeros((), dtype=torch.bool) if bias is None else torch.isneginf(head.bias)
    is_padded = bool(never.any() and not never.all())
    of_head = {name for name, own in seen.model.module.named_parameters() if is_padded and own is bias}
    bad = sum(
        not _is_finite(tensor[~never] if name in of_head else tensor)
        for name, tensor in each_parameter(seen.model.module)
    )
    if bad:
        return float(bad), 0.0, "tensors of weights that hold NaN or infinity:"
    bad = ~torch.isfinite(seen.plain) & ~(torch.isneginf(seen.plain) & never.to(seen.plain.device))
    return float(bad.sum()), 0.0, "logits that are not finite:"


def _is_finite(tensor: torch.Tensor) -> bool:
    """Read once, without a copy; quantised weights pass."""
    if not tensor.is_floating_point() or tensor.element_size() < 2 or not tensor.numel():
        return True
    return bool(torch.isfinite(torch.stack(torch.aminmax(tensor))).all())


def residual(seen: Observations) -> CheckResult:
    worst = 0.0
    for layer in range(seen.model.info.n_layers):
        sites = [site for site in ("resid", "attn_out", "mixer_out", "mlp_out") if (site, layer) in seen.captured.sites]
        parts = [seen.captured.sites[site, layer].float().to(seen.ids.device) for site in sites]
        worst = max(worst, relative_error(sum(parts[1:], parts[0]), seen.captured.sites["resid", layer + 1]))
    return worst, seen.bound, "relative error of the sum"


def decoded(seen: Observations) -> CheckResult:
    last = seen.captured.sites["resid", seen.model.info.n_layers]
    ours = Lens(seen.model).logits(last.flatten(0, 1)).view(seen.captured.logits.shape)
    return error_of_logits(ours, seen.captured.logits), seen.bound, "relative error of the logits"


def batched(seen: Observations) -> CheckResult:
    return seen.of_logits(seen.captured.logits[1:, : seen.short], seen.plain)


def restored(seen: Observations) -> CheckResult:
    _ = seen.captured  # runs the hooks and edits
    return float(not torch.equal(seen.alone(), seen.plain)), 0.0, "differs from the first pass:"


def blocks_once(seen: Observations) -> CheckResult:
    return _not_once([layer for layer, _ in seen.captured.blocks], range(seen.model.info.n_layers))


def captured_once(seen: Observations) -> CheckResult:
    return _not_once([call.layer for call in seen.captured.calls], seen.model.info.layers_with_attention)


def _not_once(captured: list[int], expected: Iterable[int]) -> CheckResult:
    wrong = sum(captured.count(layer) != 1 for layer in {*captured, *expected})
    return float(wrong), 0.0, "layers not captured exactly once:"


def blocks_join(seen: Observations) -> CheckResult:
    worst = max(relative_error(out, seen.captured.sites["resid", layer + 1]) for layer, out in seen.captured.blocks)
    return worst, 0.0, "relative error"


def blind_ahead(seen: Observations) -> CheckResult:
    """Other tokens in the second half change no logits in the first, and do change those in the second."""
    half = seen.ids.shape[1] // 2
    changed = seen.ids.clone()
    changed[:, half:] = (changed[:, half:] + 1) % seen.model.info.vocab_size
    moved, unmoved = seen.logits(changed), seen.captured.logits
    if torch.equal(moved[:, half:], unmoved[:, half:]):
        return float("inf"), seen.bound, "the tokens change nothing: error"
    error = error_of_logits(moved[:, :half], unmoved[:, :half])
    return error, seen.bound, "relative error of the earlier logits"


def reading_is_harmless(seen: Observations) -> CheckResult:
    same = torch.equal(seen.captured.logits, seen.logits(seen.ids))
    return float(not same), 0.0, "differs from a pass without reading:"


STEP = 8
"""Every eighth feature is compared."""

LENGTHS = np.array([length for power in range(1, 21) for length in (2**power, 2**power + 1)])
"""Lengths of passes whose rotations are compared: known limits of ropes are powers of two."""


def _some(layer: int, size: int) -> slice:
    """The features of this layer that are compared; at least one."""
    step = min(STEP, size)
    return slice(layer % step, None, step)


def equals_eager(seen: Observations) -> CheckResult:
    return seen.of_logits(seen.captured.logits, seen.eager)


def causal(seen: Observations) -> CheckResult:
    worst = 0.0
    for call in seen.captured.calls:
        pattern = pattern_rows(call, call.positions)
        unseen = ~visible_keys(call, call.positions)
        future = torch.ones_like(unseen[0]).triu(1 + call.k.shape[2] - call.q.shape[2])
        leaked = (pattern * (unseen | future)[:, None]).abs().max()
        held = pattern.sum(-1)
        if call.sink is not None:
            held = held + reduce_rows(call, call.positions)["learnt_sink_mass"]
        worst = max(worst, float(leaked), float((held - 1).abs().max()))
    return worst, 1e-5, "weight on the future, or rows off one, by"


def output(seen: Observations) -> CheckResult:
    worst = 0.0
    model = seen.model
    shape = model.family.head_shape(model.config)
    modules = model.family.attention_modules(model.module)
    for call, z, attention, out in zip(
        seen.captured.calls, seen.captured.z, modules, seen.captured.outputs, strict=True
    ):
        if call.v.shape[1] != shape.n_kv_heads or call.q.shape[1] != shape.n_heads:
            return float("inf"), seen.bound, "heads counted wrongly: error"
        v = call.v.float().repeat_interleave(shape.n_heads // shape.n_kv_heads, dim=1)
        mixed = pattern_rows(call, call.positions) @ v  # [batch, head, pos, d_head]
        mixed = mixed if call.gate is None else mixed * call.gate.transpose(1, 2)
        some = _some(call.layer, out.shape[-1])
        with brought_in(attention):
            weight, bias = model.family.output_weight(attention, shape)
            ours = torch.einsum("bhpd,hdm->bpm", mixed, weight[..., some].float().to(mixed.device))
            ours = ours if bias is None else ours + bias[some].float().to(ours.device)
        worst = max(worst, relative_error(mixed.transpose(1, 2), z), relative_error(ours, out[..., some]))
    return worst, seen.bound, "relative error of the attention output"


def projections(seen: Observations) -> CheckResult:
    worst = 0.0
    modules = seen.model.family.attention_modules(seen.model.module)
    for call, attention, x in zip(seen.captured.calls, modules, seen.captured.inputs, strict=True):
        layer = call.layer
        captured: dict[Projection, torch.Tensor] = {
            "q": seen.captured.sites["q_pre", layer],
            "k": seen.captured.sites["k_pre", layer],
            "v": call.v.transpose(1, 2),
        }
        for which, theirs in captured.items():
            worst = max(worst, _projection_error(seen, layer, attention, which, x, theirs))
    return worst, seen.bound, "relative error of a projection"


def _projection_error(
    seen: Observations, layer: int, attention: torch.nn.Module, which: Projection, x: torch.Tensor, theirs: torch.Tensor
) -> float:
    """The error over some features of every head; over all if a norm mixes them before the capture."""
    family = seen.model.family
    shape = family.head_shape(seen.model.config)
    norm = family.qk_norm
    normalising = None if norm is None else norm.module(attention, which)
    some = _some(layer, shape.d_head) if normalising is None else slice(None)
    with brought_in(attention):
        weight, bias = family.projection_weight(attention, which, shape)
        ours = torch.einsum("bpm,hmd->bphd", x.float().to(weight.device), weight[..., some].float())
        ours = ours if bias is None else ours + bias[..., some].float()
    if norm is not None and normalising is not None:
        ours = norm.normalised(normalising, ours.to(x.dtype))
    return relative_error(family.clipped(ours, seen.model.config), theirs[..., some])


def rotary(seen: Observations) -> CheckResult:
    """Rotary embedding keeps lengths and is the identity at position 0, times the model's attention factor if any."""
    worst = 0.0
    factors = _attention_factors(seen.model)
    root = seen.model.info.d_head**-0.5 if seen.model.family.scales_queries else 1.0
    for call in seen.captured.calls:
        for site, after, scale in (("q_pre", call.q, root), ("k_pre", call.k, 1.0)):
            before, after = seen.captured.sites[site, call.layer].float() * scale, after.transpose(1, 2).float()
            if before.shape != after.shape:
                return float("inf"), seen.bound, "heads counted wrongly: error"
            worst = max(worst, min(_rotary_error(before, after, seen.model, factor) for factor in factors))
    return worst, seen.bound, "relative error before against after rotary embedding"


def _rotary_error(before: torch.Tensor, after: torch.Tensor, model: Model, factor: float) -> float:
    n_rotary = model.info.n_rotary or 0
    scaled = torch.cat([before[..., :n_rotary] * factor, before[..., n_rotary:]], dim=-1)
    same = relative_error(after[:, 0], scaled[:, 0])
    return max(same, relative_error(after.norm(dim=-1), scaled.norm(dim=-1)))


def _attention_factors(model: Model) -> set[float]:
    """The possible factors of rotary embeddings (yarn, longrope, Phi-3.5-MoE), and 1."""
    named = (vars(part).items() for part in model.module.modules())
    scaling = {float(value) for items in named for name, value in items if name.endswith("attention_scaling")}
    rope = getattr(model.config, "rope_parameters", None) or {}
    return {1.0} | scaling | {float(rope[name]) for name in ("short_mscale", "long_mscale") if name in rope}


def rotates_alike(seen: Observations) -> CheckResult:
    """A position is rotated the same way in passes of all lengths that may be batched together."""
    lengths = LENGTHS[(seen.model.info.max_positions or LENGTHS[-1]) >= LENGTHS]
    scales, worst = rope_scales(seen.model.config, lengths), 0.0
    with resetting_ropes(seen.model):
        for rotation in seen.captured.rotations:
            for scale in np.unique(scales):
                first, *others = (rotation(n) for n in lengths[scales == scale].tolist())
                worst = max([worst, *(relative_error(other, first) for other in others)])
    return worst, seen.bound, "relative error of a rotation"


def edit_acts(seen: Observations) -> CheckResult:
    """Removing the values of a layer (first, middle, last) changes the logits, unless its attention adds nothing."""
    wrong = 0
    for edit in seen.edits:
        move = error_of_logits(seen.captured.edited[edit], seen.captured.logits[0])
        if not _is_switched_off(seen, edit[0]):
            wrong += move <= 1e-6
        elif move > 0:
            # rows of one batch may be rounded differently; passes of one shape are not
            wrong += not torch.equal(*seen.edited_alone(edit))
    return float(wrong), 0.0, "layers whose edit moves nothing (or something, with attention switched off):"


def _is_switched_off(seen: Observations, layer: int) -> bool:
    """Whether values or output projection are exactly zero, so that attention adds nothing."""
    if not any(call.v[:1].any() for call in seen.captured.calls if call.layer == layer):
        return True
    family = seen.model.family
    assert family.out is not None
    projection = attrgetter(family.out)(family.attention_by_layer(seen.model.module)[layer])
    with brought_in(projection):
        return not projection.weight.any()


def dose_zero(seen: Observations) -> CheckResult:
    # as above: a difference inside the batch is tested again in passes of one shape
    same = torch.equal(seen.captured.edited[seen.nothing], seen.captured.logits[0])
    same = same or torch.equal(*seen.edited_alone(seen.nothing))
    return float(not same), 0.0, "differs from the unedited pass:"
