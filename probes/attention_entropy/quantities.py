"""The numbers of the attention entropy, of scored rows and of all positions; each without the first position too."""

from interp.statistics.quantities import Quantities, Quantity

from ..measures.depth_curve import DEPTH, depth_quantity
from ..measures.sign_flips import MEAN_METHOD, gain
from ..measures.sinks import with_variants

SITES = {
    "entropy": ("pattern_entropy", "bits"),
    "normalised": ("pattern_entropy_normalised", "1"),
    "normalised_no_first": ("pattern_entropy_normalised_no_first", "1"),
    "no_first": ("pattern_entropy_no_first", "bits"),
    "uniform": ("pattern_entropy_uniform", "bits"),
    "uniform_no_first": ("pattern_entropy_uniform_no_first", "bits"),
    "other_keys": ("pattern_entropy_null", "bits"),
    "other_keys_no_first": ("pattern_entropy_no_first_null", "bits"),
    "sink_mass": ("sink_mass", "fraction"),
}
"""What is averaged: the site it is read at, and its unit."""

SHARPENING = {"sharpening": ("other_keys", "entropy"), "sharpening_no_first": ("other_keys_no_first", "no_first")}
"""The decrease of entropy relative to shuffled keys: the difference of these two."""

SUFFIX = {"scored": "", "all": "_all_positions"}
CURVES = {"entropy": "", "normalised": "_normalised", "no_first": "_no_first",
          "normalised_no_first": "_normalised_no_first"}  # fmt: skip
"""The curves over depth, and what the names of their numbers end in."""

_MEANINGS = {
    "reduction": "decrease of {} from the first to the last layer, as a share of the first; negative if it increases",
    "correlation": "Spearman's ρ of {} with depth; −1 if it falls from every layer to the next",
    "area": "area under the curve of {} over relative depth, relative to its first layer; 1 if it stays constant",
    "largest_drop": "largest decrease of {} from one layer to the next",
}


def _over_depth(name: str, curve: str, *, is_headline: bool = False) -> Quantity:
    of = "attention entropy over log2 of the visible keys" if "normalised" in curve else "attention entropy"
    unit = SITES[curve][1] if name == "largest_drop" else "1"
    fact = "attention narrows with depth" * (is_headline and name == "reduction")
    return depth_quantity(name, _MEANINGS[name].format(of), unit, is_headline=is_headline, fact=fact)


def quantities(*places: str) -> Quantities:
    """The numbers of rows read at these places, the headlines of the first."""
    found: dict[str, Quantity] = {}
    for where in places:
        end, is_first = SUFFIX[where], where == places[0]
        whole = {
            f"{name}{end}": _over_depth(name, "entropy", is_headline=is_first and name in ("reduction", "correlation"))
            for name in DEPTH
        }
        whole[f"content_sharpening{end}"] = gain(
            "bits",
            "decrease of attention entropy relative to shuffled keys (another prompt's of equal length), mean over "
            "layers and heads; 0 if attention depends on position and token alone",
            is_headline=is_first, fact="attention depends on this prompt's content" * is_first,
        )  # fmt: skip
        normalised = {f"{name}_normalised{end}": _over_depth(name, "normalised") for name in DEPTH}
        found |= with_variants(whole, end) | with_variants(normalised, end)
        found[f"sink_mass{end}"] = Quantity(
            "fraction", "attention weight on the first position, mean over layers and heads",
            "a uniform row over as many keys", MEAN_METHOD, "no row has a weight", is_headline=is_first,
        )  # fmt: skip
    return Quantities(found, {name: unit for name, (_, unit) in SITES.items()} | dict.fromkeys(SHARPENING, "bits"))
