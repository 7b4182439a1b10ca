"""The numbers of the orthogonality probe: what each means, what it is compared with, and which the page puts first.

Slots: `{unit}` what is counted and `{drawn}` what is resampled, `{size}` how many are left out together, `{reference}`
the null of Gaussian directions.
"""

from typing import Any

from interp.statistics.cosines import MEASURES
from interp.statistics.quantities import Quantities, Quantity

from ..measures.sign_flips import MEAN_METHOD

_DEFINITIONS = {
    "wk_columns": "Overlap of the columns of a head's key projection, mean over heads.",
    "token_keys": "Overlap of the keys of different tokens at one position, all heads together.",
    "head_keys": "Overlap of the keys that the heads of a layer give to one token, mean over prompts.",
    "embedding_proxy": "Overlap of the embeddings of different tokens, a proxy without keys.",
}
_MEASURED = {
    "": "Mean |cos|.", "_centred": "Mean |cos| after the common mean is subtracted.",
    "_signed": "Mean cos, with its sign.",
}  # fmt: skip
_TOKENS: dict[str, Any] = {
    "null": "{reference}", "method": "delete-group jackknife over {unit}s, groups of {size}",
    "no_interval": "leaving prompts out changes nothing: these vectors depend on the token alone",
}  # fmt: skip
_HOW: dict[str, dict[str, Any]] = {
    "wk_columns": {
        "null": "{reference}", "no_interval": "weights only: nothing to resample; the table has the spread over heads",
    },
    "token_keys": {**_TOKENS, "p_over": "layers"},
    "head_keys": {"null": "the keys of each head rotated at random", "method": MEAN_METHOD},
    "embedding_proxy": _TOKENS,
}  # fmt: skip


def _cosine(definition: str, ending: str = "") -> dict[str, Quantity]:
    meaning, is_headline = f"{_DEFINITIONS[definition]} {_MEASURED[ending]}", not ending
    is_headline &= definition != "embedding_proxy"
    marks: dict[str, Any] = {"asks": "either", "is_headline": is_headline, **_HOW[definition]}
    return {definition + ending: Quantity("1", meaning, **marks)}


def _spectral(unit: str, meaning: str, **marks: Any) -> Quantity:
    no_interval = "weights only: nothing to resample; the spectrum's table has the extremes over heads"
    return Quantity(unit, meaning, "{reference}", no_interval=no_interval, asks="either", **marks)


QUANTITIES = Quantities(
    {
        **_cosine("wk_columns"), **_cosine("wk_columns", "_centred"),
        "w_qk_effective_rank": _spectral(
            "directions",
            "Number of directions that the query-key form of a head uses, mean over heads; it does not depend on the "
            "basis.",
            is_headline=True,
        ),
        "w_qk_top_share": _spectral(
            "1", "Share of the strongest direction in the query-key form of a head, mean over heads.",
        ),
        **_cosine("token_keys"), **_cosine("token_keys", "_centred"), **_cosine("token_keys", "_signed"),
        **_cosine("head_keys"), **_cosine("head_keys", "_centred"), **_cosine("embedding_proxy"),
    },
    columns={
        **dict.fromkeys((*MEASURES, "cos", "cos_null"), "1"),
        **dict.fromkeys(("abs_heads_low", "abs_heads_high", "abs_shuffled"), "1"),
        **dict.fromkeys(("share", "share_min", "share_max"), "fraction"), "w_qk_participation_ratio": "directions",
        "token": "index",
    },
)  # fmt: skip
