"""Which sites can be read from a model."""

from collections.abc import Iterable

from interp.errors import UsageError
from interp.model import Model
from interp.need import Need
from interp.sites import ROUTED

_OF_SUMS = {"attn_out", "mlp_out", "attn_logit", "mlp_logit"}
_OF_FEED_FORWARD = {"mlp_out", "mlp_logit"}
EVERYWHERE = "resid"
"""The site that every model has."""


def _lacking(model: Model, need: Need, everywhere: bool) -> str | None:
    """What a model lacks for this need, or None; with `everywhere`, what it lacks in some layer."""
    family, site, having = model.family, need.described, model.info.attention_layers
    if model.info.quantisation is not None and site.source == "weights":
        return "plain weights: they are quantised"
    if site.name in _OF_SUMS and not family.adds(model.config):
        return "blocks that add to the residual stream: it is normalised again behind every sum"
    if not family.has_attention and site.is_of_attention:
        return "attention"
    if site.name == "readout_gram" and getattr(model.lens, "kind", "") != "jacobian":
        return "Jacobian lens: fit one (`interp lens fit`), and name it (--lens FILE)"
    if site.name in ROUTED and family.router is None:
        return "router of experts that is known to us"
    if site.name in ROUTED and not model.info.n_experts:
        return "experts in every layer"
    if site.name in _OF_FEED_FORWARD and family.mlp is None:
        return "feed-forward"
    if everywhere and having is not None and site.is_of_attention:
        return f"attention in every layer (only in {', '.join(map(str, having))})"
    if everywhere and family.mixer is not None and site.name in _OF_SUMS:
        return "blocks of attention and feed-forward alone: a state-space model adds to the stream beside them"
    return None


def refuse_unreadable(model: Model, needs: Iterable[Need]) -> None:
    """Raise `UsageError` if a need names a site that the model lacks."""
    found = first_lacking(model, needs)
    if found is not None:
        raise UsageError(
            asked=f"reading {model.name}",
            found=f"{found[0]} is requested, and this model has no {found[1]}",
            fix=f"The residual stream (site {EVERYWHERE!r}) and the next-token distribution can be read from it.",
        )


def first_lacking(model: Model, needs: Iterable[Need], *, everywhere: bool = False) -> tuple[str, str] | None:
    """The first site that a model lacks, with its meaning, and what it lacks for it (`everywhere`: in some layer)."""
    each = ((f"{need.site} ({need.described.meaning})", _lacking(model, need, everywhere)) for need in needs)
    return next(((site, lacked) for site, lacked in each if lacked is not None), None)
