"""The numbers of the components probe: what each means, what it is compared with, and which the page puts first.

Slots: `{unit}` what is counted, `{drawn}` what is resampled, `{loudest}` the dimension left out.
"""

from typing import Any

from interp.findings import Control
from interp.statistics.quantities import Quantities, Quantity

from ..measures.depth_curve import ONE_DRAW
from ..measures.sign_flips import MEAN_METHOD

QUIET = "_quiet"
BLOCKS = {"attn": "attention", "mlp": "feed-forward"}
"""The two kinds of block, in the order of their updates, and what they are called."""

_NO_LENGTH = "undefined: a residual stream without length"


def _mean(unit: str, meaning: str, null: str, **marks: Any) -> Quantity:
    return Quantity(unit, meaning, null, MEAN_METHOD, _NO_LENGTH, **marks)


def _shares() -> dict[str, Quantity]:
    found = {}
    for ending, without in (("", ""), (QUIET, ", without its loudest dimension ({loudest})")):
        for block in BLOCKS.values():
            name = f"{block.replace('-', '_')}_share"
            meaning = (
                f"The share of the final residual stream{without} that {block} has written, over all layers; with the "
                "embedding's, the shares of both blocks add up to 1."
            )
            controls = () if ending else (Control("without the dimension of the largest activations", name + QUIET),)
            is_headline = not ending and block == "attention"
            found[name + ending] = _mean(
                "fraction", meaning, "every update with a random sign", asks="either", is_headline=is_headline,
                controls=controls,
            )  # fmt: skip
    return found


def _trend(meaning: str, **marks: Any) -> Quantity:
    return _mean("1", meaning, ONE_DRAW, asks="nothing", reference=0.0, **marks)


def _of_experts(by: str) -> Quantity:
    return Quantity(
        "bits",
        f"Information about the domain in the choice of experts at a given {by}, beyond chance, mean over layers; 0 "
        "if experts do not divide domains.",
        f"routing permuted between {{drawn}}s within {by}",
        "normal, from the spread over {drawn}s and that under exchange", "undefined: routing never varies",
        is_headline=True,
    )  # fmt: skip


N_DEPTHS = 8
"""At this many depths a trend is measured once more: the number of layers alone can change a rank correlation."""

EXPERTS = {"expert_domain_information": "position", "expert_domain_information_beyond_token": "position and token"}
"""The numbers of the experts, and what each holds fixed."""

QUANTITIES = Quantities(
    {
        **_shares(),
        **{
            f"{site}_logit": _mean(
                "logits",
                f"What {block} of all layers adds to the logit of the predicted token, relative to the mean token.",
                "an exact decomposition: the parts add up to the logit; none is expected to be 0", asks="nothing",
            )
            for site, block in BLOCKS.items()
        },
        "lens_entropy_trend": _trend(
            "Correlation of the entropy that the residual stream decodes to with depth (−1: it falls at every depth).",
        ),
        "lens_kl_trend": _trend(
            "Correlation of the distance (KL) from the final prediction with depth (−1: it falls at every depth). The "
            "last depth is left out, where it is 0 by construction.", is_headline=True,
            controls=(Control(f"at {N_DEPTHS} evenly spaced depths", "lens_kl_trend_spaced"),),
        ),
        "lens_kl_trend_spaced": _trend(
            f"The same correlation at {N_DEPTHS} evenly spaced depths, as many in every model.",
        ),
        "posterior_kl_trend": _trend(
            "Correlation of the distance (KL) from the exact posterior with depth (−1: it falls at every depth).",
            is_headline=True,
        ),
        "posterior_kl": _mean(
            "bits", "KL of the exact posterior from what the final residual stream decodes to.",
            "posteriors permuted between {unit}s", asks="below", p_over="depths", is_headline=True,
        ),
        **{name: _of_experts(by) for name, by in EXPERTS.items()},
    },
    columns={
        **dict.fromkeys(("attn_norm", "mlp_norm", "stream_norm"), "activation"),
        **dict.fromkeys(("attn_final_share", "mlp_final_share", "share"), "fraction"),
        **dict.fromkeys(("lens_kl", "lens_entropy"), "bits"),
    },
)  # fmt: skip
