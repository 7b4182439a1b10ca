"""One quantity at every place (layer, layer and head, site and depth): values, intervals, nulls and p.

Made from half splits, resamples or known bounds, then compared with a null: permuted labels, draws, or flipped signs.
Becomes columns of a table, and at one place a scalar (`interp.statistics.quantities`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Num

from interp.findings import Asks
from interp.statistics.intervals import (
    PLAIN,
    UNEXPLAINED,
    Scale,
    band,
    chance_half_width,
    excess,
    half_split_interval,
    maximum_statistic_p,
    normal_interval,
    prediction_band,
)
from interp.statistics.ratio import ratio
from interp.table import number_columns

_NO_BOUNDS = (np.nan, np.nan)
Places = Float[np.ndarray, " place"]


@dataclass(frozen=True)
class Estimates:
    """`value` at every place; `interval` its 95 % bounds, `null` the null's value and the bounds of its band.

    All are NaN where they are undefined, and None where a table has no such columns. `why` says why a place has no
    value, or no interval and null. `about` holds further fields of a scalar (what is counted), `words` what fills the
    slots of its sentences: one for all places, or a sequence of one each.
    """

    value: Places
    interval: Float[np.ndarray, "bound place"] | None = None
    null: Float[np.ndarray, "value_low_high place"] | None = None
    p: Places | None = None
    n_draws: int | None = None
    why: str | Sequence[str] = ""
    about: Mapping[str, Any] = field(default_factory=dict)
    words: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def halved(
        cls,
        by_half_split: Float[np.ndarray, "split place"],
        scale: Scale = PLAIN,
        *,
        permuted: Float[np.ndarray, "permutation place"] | None = None,
        **rest: Any,
    ) -> "Estimates":
        """Means over half splits, with the scatter of refitting; compared with `permuted` labels where they are given.

        A share of variance is at least as uncertain as it scatters over permuted labels. A permuted fit without a
        value (a constant prediction) found nothing.
        """
        permuted = None if permuted is None else np.nan_to_num(permuted, nan=0.0)
        is_share = permuted is not None and scale is UNEXPLAINED
        least = [chance_half_width(x) for x in permuted.T] if is_share else [0.0] * by_half_split.shape[1]
        bounds = [half_split_interval(x, scale, y) or _NO_BOUNDS for x, y in zip(by_half_split.T, least, strict=True)]
        found = cls(by_half_split.mean(axis=0), np.array(bounds).T, **rest)
        return found if permuted is None else found.permuted(permuted)

    @classmethod
    def resampled(
        cls,
        value: Places,
        replicates: Float[np.ndarray, "resample place"],
        scale: Scale | None = None,
        least: Iterable[float] | None = None,
        **rest: Any,
    ) -> "Estimates":
        """With bootstrap replicates: the central 95 % of them, or, on a scale, ± 1.96 of their standard deviations.

        On a scale, half widths are at least those of `least`, one for each place.
        """
        if scale is None:  # never without the number itself: ±1 by luck has replicates that are all smaller
            low, high = band(replicates)
            bounds = np.stack([np.minimum(value, low), np.maximum(value, high)])
        else:
            places = zip(value.tolist(), replicates.T, [0.0] * len(value) if least is None else least, strict=True)
            bounds = np.array([normal_interval(v, r, scale, half) or _NO_BOUNDS for v, r, half in places]).T
        return cls(value, bounds, **rest)

    @classmethod
    def shares(
        cls,
        errors: Float[np.ndarray, "unit place"],
        totals: Float[np.ndarray, "unit place"],
        weights: Num[np.ndarray, "resample unit"],
        *,
        permuted: Float[np.ndarray, "permutation place"] | None = None,
        **rest: Any,
    ) -> "Estimates":
        """Shares of variance 1 − Σ errors / Σ totals, units resampled; NaN where nothing varies.

        Compared with `permuted` labels as `halved` are.
        """
        permuted = None if permuted is None else np.nan_to_num(permuted, nan=0.0)
        least = None if permuted is None else map(chance_half_width, permuted.T)
        value, left = 1 - ratio(errors.sum(axis=0), totals.sum(axis=0)), ratio(weights @ errors, weights @ totals)
        found = cls.resampled(value, 1 - left, UNEXPLAINED, least, **rest)
        return found if permuted is None else found.permuted(permuted)

    @classmethod
    def bare(cls, value: Places, **rest: Any) -> "Estimates":
        """Values without interval and null; a table still has the columns of both."""
        return cls(value, np.full((2, len(value)), np.nan), np.full((3, len(value)), np.nan), **rest)

    @classmethod
    def undefined(cls, why: str, **rest: Any) -> "Estimates":
        """One place without a value, and why."""
        return cls(np.array([np.nan]), why=why, **rest)

    def permuted(
        self, permuted: Float[np.ndarray, "permutation place"], p: Places | None = None, *, asks: Asks = "above",
        known: float | None = None,
    ) -> "Estimates":  # fmt: skip
        """Compared with values for permuted labels; p for the side that `asks` names, corrected over all places.

        A given `p` is used in place of this one, and `known` in place of the mean of the permutations.
        """
        p = self._ranked(permuted, asks) if p is None else p
        mean = permuted.mean(axis=0) if known is None else np.full(permuted.shape[1], known)
        return replace(self.against(np.vstack([mean, band(permuted)]), p), n_draws=len(permuted))

    def drawn(
        self, draws: Float[np.ndarray, "draw place"], known: float | None = None, asks: Asks = "nothing"
    ) -> "Estimates":
        """Compared with draws of a null: their mean, and where 95 % of further draws would fall.

        `known` is used in place of the mean of the draws. p is for the side that `asks` names.
        """
        null, p = prediction_band(draws), self._ranked(draws, asks)
        if known is not None:
            null[0] = known
        return replace(self.against(null, p), n_draws=self.n_draws if p is None else len(draws))

    def _ranked(self, draws: Float[np.ndarray, "draw place"], asks: Asks) -> Places | None:
        """p by the largest excess of each draw over all places; None where `asks` is `nothing`."""
        if asks == "nothing":
            return None
        side = {"above": np.positive, "below": np.negative, "either": np.abs}[asks]
        return maximum_statistic_p(*map(side, excess(self.value, draws)))

    def against(self, null: Float[np.ndarray, "value_low_high place"], p: Places | None = None) -> "Estimates":
        """Compared with a null that is known, with the p that is known."""
        return replace(self, null=np.where(np.isnan(self.value), np.nan, null), p=p)

    def because(self, why: str | Sequence[str]) -> "Estimates":
        """The same with this reason, for all places or one each, where there is no value."""
        return replace(self, why=np.where(np.isnan(self.value), why, "").tolist())

    def with_words(self, **words: Any) -> "Estimates":
        """The same with these words too."""
        return replace(self, words={**self.words, **words})

    def at(self, places: Any) -> "Estimates":
        """The estimates at some places, in this order, or at one; p stays corrected over all places."""
        several = [places] if isinstance(places, int | np.integer) else places

        def of_places(x: Any) -> Any:
            if x is None or np.isscalar(x):
                return x
            return [x[i] for i in several] if several is places else x[places]

        def some(of: Mapping[str, Any]) -> dict[str, Any]:
            return {name: of_places(x) for name, x in of.items()}

        numbers = {name: getattr(self, name) for name in ("value", "interval", "null", "p")}
        numbers = {name: None if x is None else x[..., several] for name, x in numbers.items()}
        texts = {"why": of_places(self.why), "about": some(self.about), "words": some(self.words)}
        return replace(self, **numbers, **texts)

    def columns(self, name: str) -> dict[str, np.ndarray]:
        """As columns of a table, by this name and `interp.table.ENDINGS`."""
        return number_columns(name, self.value, self.interval, self.null, self.p)
