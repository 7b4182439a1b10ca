"""What a prompt's own keys give beyond another prompt's: a difference within each prompt, whose null is 0."""

import numpy as np
from jaxtyping import Bool, Float

from interp.findings import Null, Scalar

from .prompt_means import Units, mean_of_units
from .sign_flips import flip_p, flipped_means

ALPHA = 0.05
"""The p up to which a head is counted or named."""

_MOST_NAMED = 12


def gain_scalar(
    gain: Float[np.ndarray, " unit"],
    units: Units,
    signs: Float[np.ndarray, "permutation unit"],
    unit: str,
    meaning: str,
) -> Scalar:
    """The mean difference over prompts; null and p by flipping the sign of whole prompts' differences."""
    about = units.counted | {"n": int((~np.isnan(gain)).sum()), "meaning": meaning}
    method = f"percentile bootstrap over {units.name}s within strata"
    interval = units.mean_interval(gain, method, "no prompt had another one to borrow keys from")
    if isinstance(interval, str):
        return Scalar.undefined(interval, unit, **about | {"underpowered": True})
    half = float(np.quantile(np.abs(flipped_means(gain[:, None], signs)), 0.95))
    null = Null(f"differences of whole {units.name}s with random signs", 0.0, (-half, half))
    return Scalar.of(mean_of_units(gain), unit, interval, null, p=flip_p(gain[:, None], signs)[0], **about)


def turned(gain: Float[np.ndarray, "unit entry"], twin: Float[np.ndarray, "unit entry"]) -> Bool[np.ndarray, " entry"]:
    """Where the mean gain and its twin without the first position have opposite signs."""
    return mean_of_units(gain) * mean_of_units(twin) < 0


def turned_heads_note(
    what: str, turns: Bool[np.ndarray, " entry"], p: Float[np.ndarray, " entry"], twin_p: Float[np.ndarray, " entry"],
    n_heads: int,
) -> tuple[str, ...]:  # fmt: skip
    """Names the heads (layer.head) where the sign turns and either of the two stands out; nothing where none does."""
    named = [f"{i // n_heads}.{i % n_heads}" for i in np.flatnonzero(turns & (np.fmin(p, twin_p) <= ALPHA))]
    if not named:
        return ()
    more = f" and {len(named) - _MOST_NAMED} more (by_head, column turns)" if len(named) > _MOST_NAMED else ""
    return (
        f"{what} changes its sign without the first position, and one of the two stands out, in {len(named)} heads: "
        f"{', '.join(named[:_MOST_NAMED])}{more}.",
    )
