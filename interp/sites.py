"""The sites: every tensor that can be requested, its meaning, and the axes of one row.

`layers` says what the leading axis of a captured array counts: decoder blocks (`layer`, 0 .. n_layers − 1), residual
depths (`depth`, 0 .. n_layers; 0 is the embedding, n_layers the input of the final norm) or nothing (`once`).
Keys and values of grouped-query models have `kv_head`, never the repeated count.
"""

from dataclasses import dataclass
from typing import Literal

from interp.errors import UnknownName
from interp.system.habits import site_of


@dataclass(frozen=True)
class Site:
    """One tensor of the forward pass (or of the weights)."""

    name: str
    meaning: str
    axes: tuple[str, ...]
    unit: str
    layers: Literal["layer", "depth", "once"] = "layer"
    source: Literal["attention", "pattern", "block", "output", "text", "lens", "edit", "weights"] = "attention"

    @property
    def is_of_attention(self) -> bool:
        """Whether only layers with attention have it."""
        is_weight = self.source == "weights" and self.layers == "layer"
        return is_weight or self.source in ("attention", "pattern") or self.name in _OF_ATTENTION


_OF_ATTENTION = {"q_pre", "k_pre", "attn_out", "attn_logit"}
"""Sites of attention that the attention hook does not read."""


def _row(name: str, meaning: str, unit: str) -> Site:
    return Site(name, meaning, ("head",), unit, source="pattern")


_TABLE = (
    Site("q", "queries after rotary embedding, as attention compares them", ("head", "d_head"), "activation"),
    Site("k", "keys after rotary embedding, as attention compares them", ("kv_head", "d_head"), "activation"),
    Site("v", "values, before the attention mixes them", ("kv_head", "d_head"), "activation"),
    Site("z", "head outputs: values mixed by attention, before W_O", ("head", "d_head"), "activation"),
    Site("q_pre", "queries before rotary embedding", ("head", "d_head"), "activation", source="block"),
    Site("k_pre", "keys before rotary embedding", ("kv_head", "d_head"), "activation", source="block"),
    Site("attn_out", "what attention adds to the residual stream", ("d_model",), "activation", source="block"),
    Site("mlp_out", "what the feed-forward adds to the residual stream", ("d_model",), "activation", source="block"),
    Site("router_log_prob", "log2 of the router's softmax over the experts, chosen or not", ("expert",), "bits",
         source="block"),
    Site("router_weight", "the weight that each expert's output enters with; 0 of those not chosen", ("expert",), "1",
         source="block"),
    Site("resid", "the residual stream before each block and after the last", ("d_model",), "activation",
         "depth", "block"),
    _row("pattern_entropy", "entropy of the attention row over the keys; 0 over a single key", "bits"),
    _row("pattern_entropy_normalised", "the same divided by log2 of the visible keys; 0 over a single key", "1"),
    _row("pattern_entropy_no_first", "entropy with the first position removed and the rest renormalised", "bits"),
    _row("pattern_entropy_uniform", "log2 of the visible keys: the entropy of a uniform row", "bits"),
    _row("pattern_entropy_normalised_no_first", "the same divided by log2 of the visible keys but the first", "1"),
    _row("pattern_entropy_uniform_no_first", "log2 of the visible keys but the first", "bits"),
    _row("sink_mass", "attention weight on the first position", "fraction"),
    _row("learnt_sink_mass", "attention weight on the head's learnt sink (gpt-oss), which no key gets; 0 without one",
         "fraction"),
    _row("pattern_entropy_with_learnt_sink", "entropy of the attention row over the keys and the learnt sink", "bits"),
    _row("mass_self", "attention weight on the position itself", "fraction"),
    _row("mass_self_no_first", "the same with the first position removed and the rest renormalised", "fraction"),
    _row("mass_previous", "attention weight on the position before; 0 at the first", "fraction"),
    _row("mass_previous_no_first", "the same with the first position removed and the rest renormalised", "fraction"),
    _row("pattern_max", "the largest attention weight", "fraction"),
    _row("pattern_max_no_first", "the same with the first position removed and the rest renormalised", "fraction"),
    _row("qk_cosine", "cosine of query and key: attended minus unattended keys", "1"),
    _row("qk_cosine_no_first", "the same chosen among the keys but the first", "1"),
    _row("qk_logit", "log2 weight: attended minus unattended keys", "bits"),
    _row("qk_logit_no_first", "the same chosen among the keys but the first", "bits"),
    *(
        _row(f"{name}{variant}_null", f"{what}{without} where the keys are another prompt's, of the same length", unit)
        for name, what, unit in (
            ("pattern_entropy", "entropy", "bits"), ("pattern_max", "the largest attention weight", "fraction"),
            ("qk_cosine", "cosine of query and key, attended minus unattended,", "1"),
            ("qk_logit", "log2 weight, attended minus unattended,", "bits"),
        )
        for variant, without in (("", ""), ("_no_first", " without the first position"))
    ),
    Site("pattern_log_weight", "log2 of the attention row, NaN at unseen keys; in short wind tunnels, else no keys",
         ("head", "key"), "bits", source="pattern"),
    Site("pattern_row", "log2 of the attention row at any length, NaN at unseen keys; as wide as the longest prompt",
         ("head", "key"), "bits", source="pattern"),
    Site("next_log_prob", "log2 probability of every next token", ("vocab",), "bits", "once", "output"),
    Site("outcome_log_prob", "log2 probability of every outcome of the prompt's exact posterior", ("outcome",), "bits",
         "once", "output"),
    Site("next_kl", "KL(unedited || edited) of the next token; 0 where nothing is edited", (), "bits", "once",
         "output"),
    Site("next_loss", "surprise -log2 p at the token that follows", (), "bits", "once", "text"),
    Site("edit_size", "norm of an edit's change over the norm of what it edits, by edit and layer", ("prompt",),
         "fraction", "once", "edit"),
    Site("lens_log_prob", "log2 probabilities decoded from the residual stream", ("vocab",), "bits", "depth", "lens"),
    Site("lens_entropy", "entropy of what is decoded from the residual stream", (), "bits", "depth", "lens"),
    Site("lens_kl", "KL(final prediction || decoded from the residual stream)", (), "bits", "depth", "lens"),
    Site("attn_logit", "what attention adds to the predicted token's logit above the mean", (), "logits",
         source="lens"),
    Site("mlp_logit", "what the feed-forward adds to the predicted token's logit above the mean", (), "logits",
         source="lens"),
    Site("W_Q", "query projection per head: x @ W", ("head", "d_model", "d_head"), "weight", source="weights"),
    Site("W_K", "key projection per head: x @ W", ("kv_head", "d_model", "d_head"), "weight", source="weights"),
    Site("W_V", "value projection per head: x @ W", ("kv_head", "d_model", "d_head"), "weight", source="weights"),
    Site("W_O", "output projection per head: z @ W", ("head", "d_head", "d_model"), "weight", source="weights"),
    Site("readout_gram", "Gram matrix of the directions that move the outcomes' logits, by the Jacobian lens",
         ("d_model", "other_d_model"), "weight", "depth", "weights"),
    Site("outcome_embedding", "input embeddings of the outcomes of the prompts' exact posterior",
         ("outcome", "d_model"), "weight", "once", "weights"),
)  # fmt: skip

SITES: dict[str, Site] = {site.name: site for site in _TABLE}

ROUTED = {"router_log_prob", "router_weight"}
"""The sites of a router, which only a mixture of experts has."""


_GROUPS: dict[str, tuple[str, ...]] = {
    "heads": ("attention",), "residual stream": ("block",), "attention": ("pattern",),
    "predictions": ("output", "text", "lens"), "weights": ("weights",),
}  # fmt: skip


def overview() -> str:
    """The sites in five groups, a line each."""
    groups = (
        f"{group}: {', '.join(site.name for site in _TABLE if site.source in sources)}"
        for group, sources in _GROUPS.items()
    )
    return "\n  ".join(groups)


def site(name: str) -> Site:
    """The site of this name; `UnknownName` for an unknown one."""
    if str(name) not in SITES:
        raise UnknownName("site", str(name), SITES, site_of(str(name)))
    return SITES[name]
