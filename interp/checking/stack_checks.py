"""Checks of the model as a stack of blocks: its residual stream, its logits, and that it is left as it was found."""

import torch

from interp.checking.two_sequences import Bench, Outcome, relative_error
from interp.reading.lens import Lens
from interp.system.fingerprint import each_parameter


def finite(bench: Bench) -> Outcome:
    """No weight is NaN or infinite, also where these few tokens do not reach it, and no logit."""
    bad = sum(not _is_finite(tensor) for _, tensor in each_parameter(bench.model.module))
    if bad:
        return float(bad), 0.0, "tensors of weights that hold NaN or infinity:"
    return float((~torch.isfinite(bench.plain)).sum()), 0.0, "logits that are not finite:"


def _is_finite(tensor: torch.Tensor) -> bool:
    """Read once and without a copy; the numbers of quantised weights are what their package says."""
    if not tensor.is_floating_point() or tensor.element_size() < 2 or not tensor.numel():
        return True
    return bool(torch.isfinite(torch.stack(torch.aminmax(tensor))).all())


def residual(bench: Bench) -> Outcome:
    """Each block adds exactly its attention and its feed-forward output, as far as it has them, to its input."""
    _ = bench.heard
    worst = 0.0
    for layer in range(bench.model.info.n_layers):
        sites = [site for site in ("resid", "attn_out", "mlp_out") if (site, layer) in bench.sites]
        parts = [bench.sites[site, layer].float().to(bench.ids.device) for site in sites]
        worst = max(worst, relative_error(sum(parts[1:], parts[0]), bench.sites["resid", layer + 1]))
    return worst, bench.bound, "relative error of the sum"


def decoded(bench: Bench) -> Outcome:
    """The last residual vectors through final norm and head are the logits."""
    _ = bench.heard
    last = bench.sites["resid", bench.model.info.n_layers]
    ours = Lens(bench.model).logits(last.flatten(0, 1)).view(bench.seam_logits.shape)
    return relative_error(ours, bench.seam_logits), bench.bound, "relative error of the logits"


def batched(bench: Bench) -> Outcome:
    """A short sequence gives the same logits alone as padded on the right beside a longer one."""
    _ = bench.heard
    return (
        relative_error(bench.seam_logits[1:, : bench.short], bench.plain),
        bench.bound,
        "relative error of the logits",
    )


def restored(bench: Bench) -> Outcome:
    """After listening and editing the model gives its first logits again, bit for bit."""
    before = bench.plain
    _ = bench.heard
    return float(not torch.equal(bench.alone(), before)), 0.0, "differs from the first pass:"


def blocks_once(bench: Bench) -> Outcome:
    _ = bench.heard
    heard = [layer for layer, _ in bench.blocks]
    wrong = sum(heard.count(layer) != 1 for layer in range(bench.model.info.n_layers))
    return float(wrong), 0.0, "blocks not run exactly once:"


def blocks_join(bench: Bench) -> Outcome:
    """What a block returns is what the next block, or the final norm, receives."""
    _ = bench.heard
    worst = max(relative_error(out, bench.sites["resid", layer + 1]) for layer, out in bench.blocks)
    return worst, 0.0, "relative error"


def blind_ahead(bench: Bench) -> Outcome:
    """Other tokens in the second half change no logits in the first, and do change those in the second."""
    _ = bench.heard
    half = bench.ids.shape[1] // 2
    changed = bench.ids.clone()
    changed[:, half:] = (changed[:, half:] + 1) % bench.model.info.vocab_size
    moved, unmoved = bench.logits(changed), bench.seam_logits
    if torch.equal(moved[:, half:], unmoved[:, half:]):
        return float("inf"), bench.bound, "the tokens change nothing: error"
    return relative_error(moved[:, :half], unmoved[:, :half]), bench.bound, "relative error of the earlier logits"


def reading_is_harmless(bench: Bench) -> Outcome:
    _ = bench.heard
    return (
        float(not torch.equal(bench.seam_logits, bench.logits(bench.ids))),
        0.0,
        "differs from a pass without reading:",
    )
