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
            "ratio of {measure} with a layer bypassed to that of the unedited model, smallest over layers: {layer}",
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
            "1", "harm of the most harmful head relative to the second: {top}",
            "{permuted} (p is of their difference)",
            f"{METHOD}, the two heads held fixed", "in some resamples the second head does no harm: no upper bound",
            is_headline=is_first,
        ),
        f"top_head_share{ending}": Quantity(
            "fraction", "share of the total harm of all harmful heads that is due to one: {top}{standing}",
            "equal shares of all {n_all} heads", f"{METHOD}, the head held fixed{{also}}",
            "in some resamples no head does harm", is_headline=is_first,
        ),
    }  # fmt: skip


_ENDINGS = [f"_{name}" for name in (*SIGNED, "next_kl")]
_HOWS = [f"_{how}" for how in ("mean", "resample", "zero")]
_BASELINE = "the reference of all edits; the probe sula has its values without skill"
_ALSO = {name: of for end in _ENDINGS for name, of in _of_layers(end, is_first=False).items()}
_ALSO |= {name: of for end in (*_HOWS, *_ENDINGS) for name, of in _of_heads(end, is_first=False).items()}
_ALSO |= {m: _bits(f"{MEANINGS[m]}, of the unedited model", _BASELINE) for m in SIGNED}

QUANTITIES = Quantities(
    {
        **_of_heads("", is_first=True),
        "top_head_layer": Quantity(
            "layer", "layer of the most harmful head, counted from 0: {top}", "a layer number has no null",
            "a layer number: see top_head_ratio for how clear it is", asks="nothing",
        ),
        "top_head_effect": _bits(
            "harm ({measure}) of {how} ablation of the most harmful head: {head}", "{null}", ", the head held fixed",
            is_headline=True,
        ),
        "screen_agreement": Quantity(
            "1",
            "Spearman's rank correlation of estimated and measured harm ({how} ablation; {measure}) of heads sampled "
            "at random from all {n_all}, on the same {n_units} {unit}s",
            "estimates and harm paired at random",
            "bootstrap over the random heads, prompts held fixed; Fisher's z", "no head differs",
            is_headline=True,
        ),
        **_of_layers("", is_first=True),
        "compounding": _bits(
            "harm ({measure}) of {n_sets} random sets of {size} heads{among} minus the sum of their members' own harm; "
            "above 0, heads compensate for one another",
            f"{_FLIPPED} flipped", ", the sets held fixed", is_headline=True,
        ),
        "screen_missed": Quantity(
            "fraction",
            "share of the skipped heads that do more harm ({how} ablation; {measure}) than the second of the selected "
            "heads",
            "0 if nothing is missed", "Clopper and Pearson, over the random heads that were skipped",
            "no random head was skipped",
        ),
        **_ALSO,
    },
    columns={
        "ratio": "1", "size": "fraction", "donor_sd": "bits", "null": "bits", "screened": "bits", "n_heads": "heads",
        "part": LABEL, **dict.fromkeys(("joint_least", "joint_most", "joint", "summed", "excess", "top"), "bits"),
        **dict.fromkeys(MEANINGS, "bits"),
    },
)  # fmt: skip
