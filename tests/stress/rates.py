"""Whether a rate over a few fresh simulations agrees with the rate over many that is committed."""

from scipy import stats


def agree(rate: float, n: int, committed: float, n_committed: int) -> bool:
    """Whether both shares may be of one true rate: Fisher's exact p, of some 400 comparisons, is 1/10,000 or more."""
    counts = [[round(share * of), of - round(share * of)] for share, of in ((rate, n), (committed, n_committed))]
    return bool(stats.fisher_exact(counts).pvalue >= 1e-4)
