"""Checks of the model as a stack of blocks: its residual stream, its logits, and that it is left as it was found."""

from typing import Any

import torch

from interp.reading.lens import Lens
from interp.self_check.two_sequences import CheckResult, Observations
from interp.system.fingerprint import each_parameter
from interp.system.offload import brought_in
from interp.system.rounding import error_of_logits, relative_error


def finite(seen: Observations) -> CheckResult:
    """No weight is NaN or infinite, also where these few tokens do not reach it, and no logit.

    But for tokens that the model is never to predict: a vocabulary may be padded by a bias of -inf at the head.
    """
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
    """Read once and without a copy; the numbers of quantised weights are what their package says."""
    if not tensor.is_floating_point() or tensor.element_size() < 2 or not tensor.numel():
        return True
    return bool(torch.isfinite(torch.stack(torch.aminmax(tensor))).all())


def residual(seen: Observations) -> CheckResult:
    """Each block adds exactly its attention and its feed-forward output, as far as it has them, to its input."""
    worst = 0.0
    for layer in range(seen.model.info.n_layers):
        sites = [site for site in ("resid", "attn_out", "mixer_out", "mlp_out") if (site, layer) in seen.heard.sites]
        parts = [seen.heard.sites[site, layer].float().to(seen.ids.device) for site in sites]
        worst = max(worst, relative_error(sum(parts[1:], parts[0]), seen.heard.sites["resid", layer + 1]))
    return worst, seen.bound, "relative error of the sum"


def decoded(seen: Observations) -> CheckResult:
    """The last residual vectors through final norm and head are the logits."""
    last = seen.heard.sites["resid", seen.model.info.n_layers]
    ours = Lens(seen.model).logits(last.flatten(0, 1)).view(seen.heard.logits.shape)
    return error_of_logits(ours, seen.heard.logits), seen.bound, "relative error of the logits"


def batched(seen: Observations) -> CheckResult:
    """A short sequence gives the same logits alone as padded on the right beside a longer one."""
    return seen.of_logits(seen.heard.logits[1:, : seen.short], seen.plain)


def restored(seen: Observations) -> CheckResult:
    """After listening and editing the model gives its first logits again, bit for bit."""
    _ = seen.heard  # it was listened to and edited
    return float(not torch.equal(seen.alone(), seen.plain)), 0.0, "differs from the first pass:"


def blocks_once(seen: Observations) -> CheckResult:
    heard = [layer for layer, _ in seen.heard.blocks]
    wrong = sum(heard.count(layer) != 1 for layer in range(seen.model.info.n_layers))
    return float(wrong), 0.0, "blocks not run exactly once:"


def blocks_join(seen: Observations) -> CheckResult:
    """What a block returns is what the next block, or the final norm, receives."""
    worst = max(relative_error(out, seen.heard.sites["resid", layer + 1]) for layer, out in seen.heard.blocks)
    return worst, 0.0, "relative error"


def blind_ahead(seen: Observations) -> CheckResult:
    """Other tokens in the second half change no logits in the first, and do change those in the second."""
    half = seen.ids.shape[1] // 2
    changed = seen.ids.clone()
    changed[:, half:] = (changed[:, half:] + 1) % seen.model.info.vocab_size
    moved, unmoved = seen.logits(changed), seen.heard.logits
    if torch.equal(moved[:, half:], unmoved[:, half:]):
        return float("inf"), seen.bound, "the tokens change nothing: error"
    error = error_of_logits(moved[:, :half], unmoved[:, :half])
    return error, seen.bound, "relative error of the earlier logits"


def reading_is_harmless(seen: Observations) -> CheckResult:
    same = torch.equal(seen.heard.logits, seen.logits(seen.ids))
    return float(not same), 0.0, "differs from a pass without reading:"
