"""The numbers of the value axis: what each means, what it is compared with, and which of them the page puts first.

Slots: those of `Cloud.slots`, and `{within}`, what is permuted
within the last token.
"""

from typing import Any

from interp.findings import Control
from interp.statistics.quantities import Quantities, Quantity

from ..measures.halves import N_HALVINGS
from ..measures.target import EXACT_ENTROPY, Target

KEPT, WITHIN_TOKEN = "kept", "token"
"""The two treatments: nothing is taken out but the mean; all that the last token determines, and other nuisances."""

PREVIOUS = "r2_beyond_previous"
_EXCHANGED = {KEPT: "{targets} permuted between {drawn}s", WITHIN_TOKEN: "{within}"}
_BEYOND = {
    KEPT: "",
    WITHIN_TOKEN: " beyond everything the last token determines, and beyond length, position, domain and how expected "
    "it was",
}
_READERS = {"": "a ridge readout", "pc1_": "the first principal axis"}
_METHOD = f"corrected resampled t over {N_HALVINGS} half splits, refitted in each, scale of "
_R2_METHOD = _METHOD + "log(1 − R²), at least the scatter of permuted {targets}"
_PLACES = "layers and sites"
_UNSEEN = "hare of the variance of {target} among prompts not fitted on that "
_NO_POWER = (
    "no p: a loud first axis draws the readouts of permuted {targets} to itself as well, so that a planted cosine of "
    ".94 was told from these in 3 of 40 worlds; compare pc1_r2 with r2"
)
_NO_EMBEDDING_P = (
    "no p: an embedding is regressed out along its leading directions alone, so that part of what the token determines "
    "stays; `r2_beyond_token` has one"
)


def _share(meaning: str, null: str, method: str = _R2_METHOD, unit: str = "fraction", **marks: Any) -> Quantity:
    return Quantity(unit, meaning, null, method, "no half split differs", **marks)


def _r2(treatment: str = KEPT, reader: str = "", **marks: Any) -> Quantity:
    meaning = f"{_READERS[reader]} of the activations predicts{_BEYOND[treatment]}"
    meaning = f"S{_UNSEEN}{meaning}; 0 is no better than the mean, below 0 worse."
    return _share(meaning, f"refitted on {_EXCHANGED[treatment]}", p_over=_PLACES, **marks)


def _correlation(treatment: str = KEPT, reader: str = "", **marks: Any) -> Quantity:
    meaning = f"Correlation of {{target}} with its prediction by {_READERS[reader]}{_BEYOND[treatment]}, among prompts "
    null, method = f"refitted on {_EXCHANGED[treatment]}", _METHOD + "Fisher's z"
    return _share(meaning + "not fitted on.", null, method, "1", p_over=_PLACES, **marks)


def _best(treatment: str, **marks: Any) -> Quantity:
    meaning = f"At the layer that the fitting half expects most of, s{_r2(treatment).meaning[1:]}"
    null = f"refitted on {_EXCHANGED[treatment]}, the layer chosen anew"
    return _share(f"{meaning} Layer {{layer}} in {{share}} of the half splits.", null, **marks)


def _controls(words: str, name: str) -> tuple[Control, ...]:
    return (Control(words, name),)


_LAST, _BEFORE = "beyond the last token", "beyond the two tokens before it"
_EMBEDDING = Control("beyond its embedding", "r2_beyond_embedding", essential=False)
_OF_TARGET = {
    "r2": _r2(is_headline=True, controls=(*_controls(_LAST, "r2_beyond_token"), _EMBEDDING)),
    "r2_beyond_token": _r2(
        WITHIN_TOKEN, is_headline=True, fact="the {brief} can be read beyond the last token",
        controls=_controls(_BEFORE, PREVIOUS),
    ),
    "best_layer_r2": _best(KEPT, is_headline=True, controls=_controls(_LAST, "best_layer_r2_beyond_token")),
    "best_layer_r2_beyond_token": _best(WITHIN_TOKEN, controls=_controls(_BEFORE, f"best_layer_{PREVIOUS}")),
    "correlation": _correlation(),
    "correlation_beyond_token": _correlation(WITHIN_TOKEN),
    "pc1_correlation": _correlation(
        KEPT, "pc1_", is_headline=True, fact="the first principal axis follows {target}",
        controls=_controls("within the last token", "pc1_correlation_beyond_token"),
    ),
    "pc1_correlation_beyond_token": _correlation(WITHIN_TOKEN, "pc1_"),
    "pc1_r2": _r2(KEPT, "pc1_", controls=_controls("within the last token", "pc1_r2_beyond_token")),
    "pc1_r2_beyond_token": _r2(WITHIN_TOKEN, "pc1_"),
}  # fmt: skip
_OF_EXACT = {
    f"bayes_{axis}{kind}{end}": of(treatment, axis).told(target=Target(EXACT_ENTROPY).words)
    for axis in _READERS for kind, of in (("r2", _r2), ("correlation", _correlation))
    for end, treatment in (("", KEPT), ("_beyond_token", WITHIN_TOKEN))
}  # fmt: skip
_OF_SITES = {
    f"{site}_r2{end}": _r2(treatment)
    for site in ("v", "z", "resid") for end, treatment in (("", KEPT), ("_beyond_token", WITHIN_TOKEN))
}  # fmt: skip
_PREVIOUS = _share(
    f"S{_UNSEEN}a ridge readout predicts beyond the last token and the classes of the two tokens before it "
    "(each that ten prompts share, the others together), length, position, domain and surprisal.",
    f"refitted on {_EXCHANGED[WITHIN_TOKEN]}",
)
QUANTITIES = Quantities(
    {
        **_OF_TARGET,
        "selectivity": _share(
            "How much better ridge predicts {target} than it predicts random labels given to token types: what it "
            "finds beyond telling tokens apart.",
            "another random labelling of tokens in place of {target}", _METHOD + "R²", is_headline=True,
        ),
        "stability": Quantity(
            "1",
            "Mean |cos| between ridge axes of disjoint halves of the prompts, over random splits: near 1, other "
            "prompts would give the same axis.",
            "pairs of random directions with the covariance of the cloud",
            "splits share {drawn}s; the table gives the lowest and highest of {n_splits}", is_headline=True,
        ),
        "axis_cosine": Quantity(
            "1",
            "|cos| between the first principal axis and the ridge axis: near 1, the loudest direction is the one that "
            "tells {target}; small, it is loud for another reason.",
            _NO_POWER, "one axis, of the first half split: `stability` says how much it depends on the prompts",
            asks="nothing",
        ),
        "nuisance_r2": _share(f"S{_UNSEEN}{{nuisances}} alone predict.", _EXCHANGED[KEPT]),
        PREVIOUS: _PREVIOUS, f"best_layer_{PREVIOUS}": _PREVIOUS,
        "r2_beyond_embedding": _share(
            f"S{_UNSEEN}a ridge readout of the activations predicts beyond the embedding of the last token, how "
            "frequent and how expected it was, length, position and domain: of all prompts, but weaker than "
            "`r2_beyond_token`.",
            _NO_EMBEDDING_P, _METHOD + "log(1 − R²)", asks="nothing",
        ),
        "depth_0_r2_beyond_token": _share(
            "Self-test: what a ridge readout of the embedding predicts beyond the last token, which is all that the "
            "embedding knows. 0, or the control leaks.",
            f"refitted on {_EXCHANGED[WITHIN_TOKEN]}", p_over=_PLACES,
        ),
        **_OF_EXACT, **_OF_SITES,
    },
    columns={
        "cosine": "1", "control_r2": "fraction", "stability_lowest": "1", "stability_highest": "1", "penalty": "1",
    },
)  # fmt: skip
