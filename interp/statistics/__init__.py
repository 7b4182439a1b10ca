"""Spectra, intervals, nulls, correlations: numpy, scipy and scikit-learn, no model in sight."""

__all__ = [
    "correlation",
    "cosines",
    "dimension",
    "entropy_draw",
    "estimates",
    "intervals",
    "isomap_curve",
    "jackknife",
    "linear_readout",
    "near_duplicates",
    "neighbours",
    "nulls",
    "possible",
    "quantities",
    "ratio",
    "resampling",
    "ridge",
    "spectra",
    "units",
]
