"""The numbers of the query-key alignment; those of attention rows without the first position too."""

from interp.findings import ALPHA
from interp.statistics.quantities import Quantities, Quantity

from ..measures.depth_curve import depth_quantity
from ..measures.sign_flips import gain
from ..measures.sinks import with_variants, without_first

_CONTRASTS = {
    "logit": ("qk_logit", "bits", "log2 weight of attended minus other keys"),
    "cosine": ("qk_cosine", "1", "cosine of query and key, attended minus other keys"),
    "max_weight": ("pattern_max", "fraction", "largest attention weight"),
    "entropy": ("pattern_entropy", "bits", "attention entropy"),
}
CONTRASTS = {named(name): named(site) for name, (site, *_) in _CONTRASTS.items() for named in (str, without_first)}
"""What is compared with shuffled keys, and the site it is read at."""

MASSES = {
    "mass_self": "mass_self",
    "mass_previous": "mass_previous",
    "mass_first": "sink_mass",
    "mass_self_no_first": "mass_self_no_first",
    "mass_previous_no_first": "mass_previous_no_first",
}
SIDES = {"matching_heads": ("exceeds", 1), "avoiding_heads": ("falls below", -1)}
_FACTS = {"logit": "attention depends on this prompt's content"}
_OTHER = "; own keys minus shuffled keys (another prompt of equal length), mean over layers and heads"
_HELD = ("percentile bootstrap over {drawn}s, the head held fixed", "no row can be compared")
_RENAMED = "previous tokens renamed at random in every sequence"


def _heads(side: str) -> Quantity:
    return Quantity(
        "heads",
        f"heads of {{n_heads}} whose {_CONTRASTS['logit'][2]} {side} that with shuffled keys at p < "
        f"{ALPHA:.2f}, corrected over layers and heads",
        "at most this many by chance, 95 % of the time", "a count of tests",
    )  # fmt: skip


_ROWS = {
    name: gain(unit, what + _OTHER, is_headline=name == "logit", fact=_FACTS.get(name, ""))
    for name, (_, unit, what) in _CONTRASTS.items()
}
_ROWS |= {
    f"{name}_correlation": depth_quantity(
        "correlation", f"Spearman's ρ with depth of the {what}, mean over heads", is_headline=name == "max_weight"
    )
    for name, (*_, what) in _CONTRASTS.items()
}
_ROWS |= {name: _heads(side) for name, (side, _) in SIDES.items()}
QUANTITIES = Quantities(
    {
        **with_variants(_ROWS),
        "posterior_kl": Quantity(
            "bits",
            "KL(exact posterior ‖ attention) over the items in the context, in the head where it is smallest "
            "(layer {layer}, head {head})",
            "items relabelled within each row, the best head each time", *_HELD, "below", "layers and heads",
            is_headline=True,
        ),
        "feasible_mass": Quantity(
            "fraction", "attention weight of layer {layer}, head {head} on outcomes that are still possible",
            "a uniform row", *_HELD,
        ),
        "binding": Quantity(
            "1",
            "share of the variance of keys at value positions that the previous token explains, at the layer where it "
            "is largest ({layer})",
            f"{_RENAMED}, the best layer each time", "jackknife over {n_groups} groups of sequences, logit scale",
            "the previous token explains all or nothing", p_over="layers", is_headline=True,
        ),
        "binding_cosine": Quantity(
            "1",
            "mean |cos| between the mean keys after different tokens, layer {layer}; random vectors in {width} "
            "dimensions have {random}",
            _RENAMED, "an average over pairs of group means: see binding", asks="either",
        ),
    },
    columns={
        **{f"{named(name)}_gain": unit for name, (_, unit, _) in _CONTRASTS.items() for named in (str, without_first)},
        "posterior_kl_uniform": "bits", "feasible_mass_uniform": "fraction", "mass_on_bound_token": "fraction",
    },
)  # fmt: skip
