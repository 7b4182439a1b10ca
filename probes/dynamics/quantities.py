"""The numbers of the dynamics probe: what each means, what it is compared with, and which the page puts first.

Slots: `{unit}` what is counted and `{drawn}` what is resampled, `{step}` the checkpoint that stands for the training,
`{what}` a course in words, `{where}` between which checkpoints it settles.
"""

from interp.statistics.quantities import Quantities, Quantity

_FIXED = "percentile bootstrap over {drawn}s, checkpoints held fixed"
_PAIRED = "percentile bootstrap over {drawn}s, paired; checkpoints held fixed"
_DESCRIPTION = "a description: how far patterns moved says nothing of what they do, which exchange_lead asks"
_WEIGHTS = "weights only: 1 is where both come near together, and a product of two comes later than each"


def _settles(unit: str, meaning: str, null: str = _DESCRIPTION, *, is_headline: bool = False) -> Quantity:
    no_interval = "resamples of the {unit}s do not settle, or do not differ"
    return Quantity(unit, meaning, null, _FIXED, no_interval, "nothing", is_headline=is_headline)


def _index(meaning: str, *, is_headline: bool = False) -> Quantity:
    return _settles("1", f"{meaning} Where they settle: {{where}}", is_headline=is_headline)


def _step(of: str, *, is_headline: bool = False) -> Quantity:
    meaning = f"Step from which on {of} near the end's ({{what}}), {{where}}."
    return _settles("steps", meaning, "a time, not an effect: the index compares it", is_headline=is_headline)


def _share(meaning: str) -> Quantity:
    null = "a share: it is read by 0 and 1"
    return Quantity("1", meaning, null, _PAIRED, "no resample defines it", "nothing", is_headline=True)


QUANTITIES = Quantities(
    {
        "exchange_lead": Quantity(
            "bits",
            "Error of the network of step {step} with the final attention patterns, less that of the final network "
            "with the patterns of step {step}: above 0 attention was there before the rest.",
            "patterns and the rest of a checkpoint equally far", _PAIRED, "no spread over prompts", "either",
            is_headline=True,
        ),
        "patterns_share": _share(
            "Share of the error still missing at step {step} that its attention patterns alone bring into the final "
            "network; 0: attention is done, 1: it is all that is missing."
        ),
        "network_share": _share(
            "Share of the error still missing at step {step} that is missing with the final attention patterns too; "
            "1: everything but attention is missing."
        ),
        "dissociation_index": _index(
            "Step at which attention has settled over the step at which the error has; below 1 the frame of attention "
            "was there before precision.",
            is_headline=True,
        ),
        "frame_left": _settles(
            "fraction",
            "Total variation to the end's attention, relative to the first checkpoint, at the step at which the error "
            "has settled: what way attention still has to go then.",
        ),
        "dissociation_index_kl": _index("The same index against KL(exact posterior || prediction)."),
        "dissociation_index_output": _index(
            "The same index against the total variation of the prediction to the end's, which is on the scale of the "
            "frame itself: errors in bits fall as its square and seem earlier."
        ),
        "dissociation_index_values": _index(
            "The same index against the distance of the values from the end's: below 1 values still move when "
            "attention has settled."
        ),
        "frame_step": _step("attention stays", is_headline=True),
        "error_step": _step("the error stays", is_headline=True),
        "values_step": _step("the values stay"),
        "weights_index": Quantity(
            "1",
            "Step at which W_QK has come near its end over the step at which W_V has, from the weights alone. Where "
            "they settle: {where}",
            _WEIGHTS, no_interval="weights only: nothing to resample", asks="nothing",
        ),
    },
    columns={
        **dict.fromkeys(("frame_tv", "frame_tv_exchanged", "output", "pc1_share", "pc1_plus_pc2_share"), "fraction"),
        **dict.fromkeys(("frame_js", "attention_entropy", "entropy_error", "kl", "loss", "entropy_bits"), "bits"),
        **dict.fromkeys(("own", "final_with_patterns", "with_final_patterns"), "bits"),
        **dict.fromkeys(("excess", "patterns", "network", "lead"), "bits"),
        **dict.fromkeys(("wqk_drift", "wqk_drift_min", "wqk_drift_max", "value_distance"), "1"),
        **dict.fromkeys(("w_qk", "w_q", "w_k", "w_v", "w_qk_expected", "token_keys", "wk_columns"), "1"),
        **dict.fromkeys(("relative_length", "low_entropy_distance"), "1"),
        **dict.fromkeys(("entropy_correlation", "bayes_entropy_correlation"), "1"),
        **dict.fromkeys(("manifold_length", "pc1", "pc2"), "activation"), "participation_ratio": "dimensions",
        **dict.fromkeys(("step", "step_from", "after", "until"), "steps"), "epsilon": "fraction", "course": "label",
        "position": "tokens", "key": "tokens", "weight": "fraction",
    },
)  # fmt: skip
