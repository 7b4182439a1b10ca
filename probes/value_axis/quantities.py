"""The numbers of the value axis: what each means, what it is compared with, and which of them the page puts first.

Slots: those of `Cloud.slots`, and `{within}`, what is permuted within the last token.
"""

from typing import Any

from interp.findings import Control
from interp.statistics.quantities import Quantities, Quantity

from ..measures.halves import N_HALF_SPLITS
from ..measures.target import EXACT_ENTROPY, Target

KEPT, WITHIN_TOKEN = "kept", "token"
"""The two treatments: nothing is taken out but the mean; all that the last token determines, and other nuisances."""

ENDINGS = {KEPT: "", WITHIN_TOKEN: "_beyond_token"}
"""What names of numbers end in."""

PREVIOUS = "r2_beyond_previous"
WITHIN_CLUSTERS = "r2_within_clusters"
_EXCHANGED = {KEPT: "{targets} permuted between {drawn}s", WITHIN_TOKEN: "{within}"}
_BEYOND = {
    KEPT: "",
    WITHIN_TOKEN: " beyond everything the last token determines, and beyond length, position, domain and surprisal",
}
_READERS = {"": "a ridge readout", "pc1_": "the first principal axis"}
_METHOD = f"corrected resampled t over {N_HALF_SPLITS} half splits, refitted in each, scale of "
_CHANCE_METHOD = _METHOD + "log(1 − R²), at least the scatter of permuted {targets}"
_R2_METHOD = _CHANCE_METHOD + " and a jackknife over {drawn}s"
_PLACES = "layers and sites"
_UNSEEN = "hare of the variance of {target} in held-out prompts that "
_NO_POWER = (
    "no p: readouts of permuted {targets} also align with a first axis of large variance, so a planted cosine of .94 "
    "was significant in only 3 of 40 simulations; compare pc1_r2 with r2"
)


def _share(meaning: str, null: str, method: str = _R2_METHOD, unit: str = "fraction", **marks: Any) -> Quantity:
    return Quantity(unit, meaning, null, method, "no half split differs", **marks)


def _r2(treatment: str = KEPT, reader: str = "", **marks: Any) -> Quantity:
    meaning = f"{_READERS[reader]} of the activations explains{_BEYOND[treatment]}"
    meaning = f"S{_UNSEEN}{meaning}, fitted on the other half; 0 is no better than the mean, below 0 worse."
    return _share(meaning, f"refitted on {_EXCHANGED[treatment]}", p_over=_PLACES, **marks)


def _correlation(treatment: str = KEPT, reader: str = "", **marks: Any) -> Quantity:
    kind = "Rank correlation" if reader else "Correlation"
    meaning = f"{kind} of {{target}} with its prediction by {_READERS[reader]}{_BEYOND[treatment]}, in held-out "
    null, method = f"refitted on {_EXCHANGED[treatment]}", _METHOD + "Fisher's z"
    return _share(meaning + "prompts.", null, method, "1", p_over=_PLACES, **marks)


def _best(treatment: str, **marks: Any) -> Quantity:
    meaning = f"At the layer chosen by cross-validation in the fitting half, s{_r2(treatment).meaning[1:]}"
    null = f"refitted on {_EXCHANGED[treatment]}, the layer chosen again"
    return _share(f"{meaning} Layer {{layer}} in {{share}} of the half splits.", null, **marks)


_LAST, _BEFORE = "beyond the last token and position", "beyond the last three tokens and position"
_WITHIN = Control("within clusters", WITHIN_CLUSTERS, essential=False)
_OF_TARGET = {
    "r2": _r2(is_headline=True, controls=(Control(_LAST, "r2_beyond_token"), _WITHIN)),
    "r2_beyond_token": _r2(WITHIN_TOKEN, is_headline=True, controls=(Control(_BEFORE, PREVIOUS),)),
    "best_layer_r2": _best(KEPT, is_headline=True, controls=(Control(_LAST, "best_layer_r2_beyond_token"),)),
    "best_layer_r2_beyond_token": _best(WITHIN_TOKEN, controls=(Control(_BEFORE, f"best_layer_{PREVIOUS}"),)),
    "correlation": _correlation(),
    "correlation_beyond_token": _correlation(WITHIN_TOKEN),
    "pc1_correlation": _correlation(
        KEPT, "pc1_", is_headline=True, fact="the first principal component follows {target}",
        controls=(Control("within the last token", "pc1_correlation_beyond_token"),),
    ),
    "pc1_correlation_beyond_token": _correlation(WITHIN_TOKEN, "pc1_"),
    "pc1_r2": _r2(KEPT, "pc1_", controls=(Control("within the last token", "pc1_r2_beyond_token"),)),
    "pc1_r2_beyond_token": _r2(WITHIN_TOKEN, "pc1_"),
}  # fmt: skip
_OF_EXACT = {
    f"bayes_{axis}{kind}{end}": of(treatment, axis).filled(target=Target(EXACT_ENTROPY).words)
    for axis in _READERS for kind, of in (("r2", _r2), ("correlation", _correlation))
    for treatment, end in ENDINGS.items()
}  # fmt: skip
_OF_SITES = {f"{site}_r2{end}": _r2(treatment) for site in ("v", "z", "resid") for treatment, end in ENDINGS.items()}
_PREVIOUS = _share(
    f"S{_UNSEEN}a ridge readout explains beyond the last token and the classes of the two tokens before it "
    "(each that ten prompts share, the others together), length, position, domain and surprisal.",
    f"refitted on {_EXCHANGED[WITHIN_TOKEN]}",
)
QUANTITIES = Quantities(
    {
        **_OF_TARGET,
        "selectivity": _share(
            "Held-out R² of {target} minus that of random labels of token types: near 0, these are decoded as well, "
            "as in a small vocabulary they can be.",
            "another random labelling of tokens in place of {target}", _METHOD + "R²", is_headline=True,
        ),
        "axis_cosine": Quantity(
            "1",
            "|cos| between the first principal axis and the ridge axis: near 1, the direction of largest variance is "
            "the one that predicts {target}; if small, its variance has another cause.",
            _NO_POWER, "one axis, of the first half split", asks="nothing",
        ),
        "nuisance_r2": _share(f"S{_UNSEEN}{{nuisances}} alone predict.", _EXCHANGED[KEPT], _CHANCE_METHOD),
        PREVIOUS: _PREVIOUS, f"best_layer_{PREVIOUS}": _PREVIOUS,
        WITHIN_CLUSTERS: _share(
            f"S{_UNSEEN}a ridge readout explains within clusters: {{targets}} and activations are measured from the "
            "mean of their cluster (template, document, near-copies), in clusters that the readout was not fitted on.",
            "refitted on {targets} permuted within clusters",
        ),
        **_OF_EXACT, **_OF_SITES,
    },
    columns={
        "cosine": "1", "control_r2": "fraction", "penalty": "1",
    },
)  # fmt: skip
