"""The numbers of the dynamics probe: what each means, what it is compared with, and which the page puts first.

Slots: `{unit}` what is counted and `{drawn}` what is resampled, `{step}` the checkpoint that stands for the training,
`{what}` a curve in words, `{where}` between which checkpoints it settles.
"""

from interp.statistics.quantities import Quantities, Quantity

_FIXED = "percentile bootstrap over {drawn}s, checkpoints held fixed"
_PAIRED = "percentile bootstrap over {drawn}s, paired; checkpoints held fixed"
_DESCRIPTION = "a description; exchange_lead tests what the attention patterns do"


def _settles(unit: str, meaning: str, null: str = _DESCRIPTION, *, is_headline: bool = False) -> Quantity:
    no_interval = "resamples of the {unit}s do not settle, or do not differ"
    return Quantity(unit, meaning, null, _FIXED, no_interval, "nothing", is_headline=is_headline)


def _index(meaning: str, *, is_headline: bool = False) -> Quantity:
    return _settles("1", f"{meaning} Where they settle: {{where}}", is_headline=is_headline)


def _step(of: str, *, is_headline: bool = False) -> Quantity:
    meaning = f"First step after which {of} close to the final one ({{what}}), {{where}}."
    return _settles("steps", meaning, "a time, not an effect; the index compares it", is_headline=is_headline)


def _share(meaning: str) -> Quantity:
    null = "a share, to compare with 0 and 1"
    return Quantity("1", meaning, null, _PAIRED, "no resample defines it", "nothing", is_headline=True)


QUANTITIES = Quantities(
    {
        "exchange_lead": Quantity(
            "bits",
            "Error of the network of step {step} with the final attention patterns, minus that of the final network "
            "with the patterns of step {step}: above 0, attention is learned before the rest.",
            "patterns and the rest equally close to the final ones", _PAIRED, "no spread over prompts", "either",
            is_headline=True,
        ),
        "patterns_share": _share(
            "Share of the excess error at step {step} that its attention patterns alone cause in the final network; "
            "0: attention is final already, 1: attention is all that is missing."
        ),
        "network_share": _share(
            "Share of the excess error at step {step} that remains with the final attention patterns; 1: all but "
            "attention is missing."
        ),
        "dissociation_index": _index(
            "Step at which attention settles divided by the step at which the error settles; below 1, attention "
            "settles first.",
            is_headline=True,
        ),
        "frame_left": _settles(
            "fraction",
            "Total variation between attention at the step at which the error settles and final attention, relative to "
            "the first checkpoint.",
        ),
        "dissociation_index_kl": _index("The same index for KL(exact posterior || prediction)."),
        "dissociation_index_output": _index(
            "The same index for the total variation between the prediction and the final one, which has the scale of "
            "attention: errors in bits fall as its square, so they seem earlier."
        ),
        "dissociation_index_values": _index(
            "The same index for the distance of the values from the final ones: below 1, values still change when "
            "attention has settled."
        ),
        "frame_step": _step("attention stays", is_headline=True),
        "error_step": _step("the error stays", is_headline=True),
        "values_step": _step("the values stay"),
    },
    columns={
        **dict.fromkeys(("frame_tv", "frame_tv_exchanged", "output", "pc1_share", "pc1_plus_pc2_share"), "fraction"),
        **dict.fromkeys(("frame_js", "attention_entropy", "entropy_error", "kl", "loss", "entropy_bits"), "bits"),
        **dict.fromkeys(("own", "final_with_patterns", "with_final_patterns"), "bits"),
        **dict.fromkeys(("excess", "patterns", "network", "lead"), "bits"),
        **dict.fromkeys(("wqk_drift", "wqk_drift_min", "wqk_drift_max", "value_distance"), "1"),
        **dict.fromkeys(("token_keys", "wk_columns"), "1"),
        **dict.fromkeys(("relative_length", "low_entropy_distance"), "1"),
        **dict.fromkeys(("entropy_correlation", "bayes_entropy_correlation"), "1"),
        **dict.fromkeys(("manifold_length", "pc1", "pc2"), "activation"), "participation_ratio": "dimensions",
        "step": "steps", "position": "tokens",
    },
)  # fmt: skip
