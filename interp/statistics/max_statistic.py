"""p-values of statistics that were looked at together: the largest of them is compared with the largest by chance."""

import numpy as np
from jaxtyping import Float


def maximum_statistic_p(
    observed: Float[np.ndarray, " statistic"], permuted: Float[np.ndarray, "permutation statistic"]
) -> Float[np.ndarray, " statistic"]:
    """p = (1 + #{largest of a permutation ≥ observed}) / (1 + permutations) for each statistic; large means extreme.

    The permutations must be the same for all statistics, which then may depend on one another in any way (Westfall
    and Young 1993). A statistic that is NaN has p = NaN and takes part in no maximum.
    """
    usable = ~np.isnan(observed)
    largest = np.max(permuted[:, usable], axis=1, initial=-np.inf)
    # equal up to rounding counts as reached, or the identity among few permutations would be missed
    slack = 1e-12 * np.maximum(1.0, np.abs(np.where(usable, observed, 0.0)))
    reached = (largest[:, None] >= observed - slack).sum(axis=0)
    return np.where(usable, (1 + reached) / (1 + len(permuted)), np.nan)


def excess(
    observed: Float[np.ndarray, " statistic"], permuted: Float[np.ndarray, "permutation statistic"]
) -> tuple[Float[np.ndarray, " statistic"], Float[np.ndarray, "permutation statistic"]]:
    """Both measured from the mean of each statistic's own permutations, in units of their spread.

    Puts statistics with unlike nulls on one scale before their largest is taken. The observed value counts among the
    permutations, so that under the null all of them remain exchangeable. Where nothing spreads, both are 0.
    """
    together = np.vstack([observed, permuted])
    mean, spread = together.mean(axis=0), together.std(axis=0)
    moved = np.divide(together - mean, spread, out=np.zeros_like(together), where=spread > 1e-12 * np.abs(mean))
    moved[:, np.isnan(observed)] = np.nan
    return moved[0], moved[1:]
