"""The numbers of the probe `heads`: what each means, and what it is compared with.

A name ends in the kind of ablation or the measure where these are not the primary ones.
"""

from typing import Any

from interp.statistics.quantities import Quantities, Quantity
from interp.table import LABEL

from ..measures.harm import MEANINGS, SIGNED

METHOD = "percentile bootstrap over {drawn}s"
_NOBODY = "no prompt has it"
_FLIPPED = "signs of whole {drawn}s"


def _bits(meaning: str, null: str, held: str = "", **marks: Any) -> Quantity:
    return Quantity("bits", meaning, null, METHOD + held, _NOBODY, **marks)


def _of_layers(ending: str, *, is_first: bool) -> dict[str, Quantity]:
    return {
        f"bypass_ratio_min{ending}": Quantity(
            "1",
            "{measure} with a layer bypassed over that of the unedited model, the smallest of all layers: {layer}",
            f"{_FLIPPED}' changes flipped", f"{METHOD}, the layer held fixed",
            p_over="all layers needed (intersection-union)", is_headline=is_first,
        ),
        f"late_attention_off{ending}": _bits(
            "{what}, with the attention of layers {layers} switched off", "the unedited model", is_headline=is_first
        ),
    }  # fmt: skip


def _of_heads(ending: str, *, is_first: bool) -> dict[str, Quantity]:
    return {
        f"top_head_ratio{ending}": Quantity(
            "1", "harm of the most harmful head over that of the second: {top}", "{exchanged}; p is of the gap in bits",
            f"{METHOD}, the two heads held fixed", "in some resamples the second head does no harm: no upper bound",
            is_headline=is_first,
        ),
        f"top_head_share{ending}": Quantity(
            "fraction", "part of the summed harm of all harmful heads that one does: {top}{standing}",
            "equal shares of all {n_all} heads", f"{METHOD}, the head held fixed{{also}}",
            "in some resamples no head does harm", is_headline=is_first,
        ),
        f"top_head_layer{ending}": Quantity(
            "layer", "layer of the most harmful head, counted from 0: {top}",
            "a place: a head is as likely in one layer as in another",
            "a place: top_head_ratio says how clear it is", asks="nothing",
        ),
    }  # fmt: skip


_ENDINGS = [f"_{name}" for name in (*SIGNED, "next_kl")]
_HOWS = [f"_{how}" for how in ("mean", "resample", "zero")]
_BASELINE = "the reference of all edits; its own no-skill values are given by the probe sula"
_ALSO = {name: of for end in _ENDINGS for name, of in _of_layers(end, is_first=False).items()}
_ALSO |= {name: of for end in (*_HOWS, *_ENDINGS) for name, of in _of_heads(end, is_first=False).items()}
_ALSO |= {f"{of}{m}": _bits(f"{MEANINGS[m]}, of the unedited model", _BASELINE) for of in ("", "sula_") for m in SIGNED}

QUANTITIES = Quantities(
    {
        **_of_heads("", is_first=True),
        "top_head_effect": _bits(
            "harm ({measure}) of {how} ablation of the worst: {head}", "{null}", ", the head held fixed",
            is_headline=True,
        ),
        "screen_agreement": Quantity(
            "1",
            "Spearman's rank correlation of the screen's estimate and the measured harm ({how} ablation; {measure}) of "
            "heads drawn at random from all {n_all}, on the same {n_units} {unit}s",
            "estimates and harm paired at random",
            "bootstrap over the random heads, prompts held fixed; Fisher's z", "no head differs",
            is_headline=True,
        ),
        **_of_layers("", is_first=True),
        "compounding": _bits(
            "harm ({measure}) of {n_sets} random sets of {size} heads{among} minus the sum of their members' own harm; "
            "above 0 heads stand in for one another",
            f"{_FLIPPED} flipped", ", the sets held fixed", is_headline=True,
        ),
        "screen_missed": Quantity(
            "fraction",
            "part of the heads passed over that do more harm ({how} ablation; {measure}) than the second of those that "
            "were chosen",
            "a screen that misses nothing has 0", "Clopper and Pearson, over the random heads that were passed over",
            "no random head was passed over",
        ),
        **_ALSO,
    },
    columns={
        "ratio": "1", "size": "fraction", "donor_sd": "bits", "null": "bits", "screened": "bits", "n_heads": "heads",
        "part": LABEL, **dict.fromkeys(("joint_least", "joint_most", "joint", "summed", "excess", "top"), "bits"),
        **dict.fromkeys(MEANINGS, "bits"),
    },
)  # fmt: skip
