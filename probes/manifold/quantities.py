"""The numbers of the manifold probe: what each means, what it is compared with, and which the page puts first.

Slots: those of `Cloud.slots`, `{gaussian}` for the null of a cloud, `{among}` for what labels are permuted between.
"""

from typing import Any

from interp.findings import Control
from interp.statistics.quantities import Quantities, Quantity

from ..measures.target import EXACT_ENTROPY, Target

_AXIS = "Rank correlation of the first principal component with {target}."
_CURVE = "Rank correlation of the position along a curve through the points with {target}."
_WITHIN_TOKEN = " Ranks are taken among {unit}s with the same last token, so that token alone explains nothing."
_DRAWN = " On the subsample with evenly spread entropies, which inflates correlations with entropy."
_DROPPED = " Measured without the {n_dropped} columns of largest variance."
_EXCHANGED = "domain labels permuted within entropy and length"

_CONTROLS = {
    "within_token": ("among prompts with the same last token", True), "within_position": ("at equal position", True),
    "drawn": ("on the prompts of the subsample", False),
    "dropped": ("without the dimensions of largest variance", False),
}  # fmt: skip
"""Endings of the names of controls, their words, and whether a headline needs their agreement."""


def _headline(name: str, *endings: str) -> dict[str, Any]:
    words = ((f"{name}_{ending}", *_CONTROLS[ending]) for ending in endings)
    controls = tuple(Control(said, control, is_essential) for control, said, is_essential in words)
    return {"is_headline": True, "controls": controls}


def _order(meaning: str, **marks: Any) -> Quantity:
    return Quantity(
        "1", meaning, "{targets} permuted {among}",
        "bootstrap over {drawn}s within strata, of PC1 no narrower than a jackknife that fits the axis again, "
        "Fisher z scale",
        "every resample gives the same value", p_over="layers", **marks,
    )  # fmt: skip


def _best(ending: str, **marks: Any) -> Quantity:
    meaning = f"At the layer that is best on the other half of the {{unit}}s, r{_AXIS[1:]}{ending}"
    return Quantity(
        "1", f"{meaning} Layer {{layer}} in {{share}} of the half splits.",
        "{targets} permuted {among}, the layer chosen again",
        "corrected resampled t over half splits, with what fitting the axis again adds, Fisher z scale",
        "no half split differs", **marks,
    )  # fmt: skip


def _of_cloud(unit: str, meaning: str, scale: str, **marks: Any) -> Quantity:
    none = "at a bound, or undefined, when a {unit} is left out"
    return Quantity(unit, meaning, "{gaussian}", f"{{jackknife}}, {scale} scale", none, **marks)


def _clouds(ending: str = "", **marks: Any) -> dict[str, Quantity]:
    return {
        "pc1_plus_pc2_share": _of_cloud(
            "fraction",
            "Share of the variance between prompts in the plane of PC1 and PC2: near 1, the prompts lie in a plane; at "
            f"the null, noise of the same size gives as much.{ending}",
            "logit", **marks,
        ),
        "participation_ratio": _of_cloud(
            "dimensions",
            "Number of directions that share the variance about equally: 1 on a line, near the number of prompts for "
            f"noise.{ending}",
            "log", asks="below", **marks,
        ),
    }  # fmt: skip


def _collapse(ending: str = "", **marks: Any) -> dict[str, Quantity]:
    unlike = "at equal number and entropy"
    about = {
        "null": f"{_EXCHANGED}, largest over domains", "p_over": "domains",
        "method": "delete-one jackknife of the difference, for all domains at once (Bonferroni)",
        "no_interval": "undefined when a prompt is left out",
    }  # fmt: skip
    return {
        "collapse": Quantity(
            "fraction",
            "Increase of the PC1+PC2 share from prompts of all domains to the domain with the largest, {domain}, "
            f"{unlike}; at its null, restricting the domain does nothing.{ending}",
            **about, **marks,
        ),
        "collapse_participation_ratio": Quantity(
            "dimensions",
            "Decrease (negative) of the participation ratio from prompts of all domains to the domain where it "
            f"decreases most, {{domain}}, {unlike}.{ending}",
            asks="below", **about,
        ),
    }  # fmt: skip


def _named(ending: str, of: dict[str, Quantity]) -> dict[str, Quantity]:
    return {f"{name}_{ending}": quantity for name, quantity in of.items()}


QUANTITIES = Quantities(
    {
        **_clouds(is_headline=True),
        "{prefix}_correlation": _order(
            _AXIS, fact="the first principal component follows {target}",
            **_headline("{prefix}_correlation", *_CONTROLS),
        ),
        "curve_order": _order(_CURVE, **_headline("curve_order", "within_token", "drawn")),
        "best_layer_{prefix}_correlation": _best("", **_headline("best_layer_{prefix}_correlation", "within_token")),
        **_collapse(**_headline("collapse", "within_token")),
        "pc1_share": _of_cloud(
            "fraction", "Share of the variance between prompts that lies along one direction.", "logit"
        ),
        **_named("dropped", _clouds(_DROPPED)),
        "intrinsic_dimension": Quantity(
            "dimensions",
            "Number of coordinates needed to distinguish near neighbours (TwoNN); below its null, the prompts lie on a "
            "curved or clustered set, unlike a flat cloud of the same covariance.",
            "Gaussian cloud of the same sample covariance", "{jackknife}",
            "fewer than 5 independent groups of neighbours", asks="below",
        ),
        "axis_stability": Quantity(
            "1",
            "Mean |cos| between the first principal axes of disjoint halves of the prompts, over random splits: near "
            "1, other prompts would give the same axis.",
            "{gaussian}", "the {n_splits} splits share {unit}s",
        ),
        "{prefix}_correlation_within_token": _order(_AXIS + _WITHIN_TOKEN),
        "{prefix}_correlation_within_position": _order(
            "The same among rows at one position of the sequence: how the first principal component follows {target} "
            "beyond position."
        ),
        "{prefix}_correlation_drawn": _order(_AXIS + _DRAWN),
        "{prefix}_correlation_dropped": _order(_AXIS + _DROPPED),
        "bayes_entropy_correlation": _order(_AXIS).filled(target=Target(EXACT_ENTROPY).words, targets="entropies"),
        "curve_order_within_token": _order(_CURVE + _WITHIN_TOKEN),
        "curve_order_drawn": _order(_CURVE + _DRAWN),
        "best_layer_{prefix}_correlation_within_token": _best(_WITHIN_TOKEN),
        **_named("within_token", _collapse(" Of points measured from the mean of their last token.")),
        "shared_plane": Quantity(
            "1",
            "Variance of another domain in one domain's first plane, relative to other prompts of that domain: 1 if "
            "domains vary along the same axes, near 0 if each has its own.",
            _EXCHANGED, "planes are refitted over {n_splits} splits that share prompts", asks="below",
        ),
    },
    columns={
        "n": "prompts", "of": "label", "plane_of": "label", "ratio": "dimensions", "ratio_change": "dimensions",
        "share": "fraction", "share_change": "fraction",
    },
)  # fmt: skip
