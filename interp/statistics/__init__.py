"""Spectra, intervals, nulls, correlations: numpy, scipy and scikit-learn, no model in sight."""

__all__ = [
    "correlation",
    "cosines",
    "dimension",
    "entropy_draw",
    "exact_sign_flips",
    "isomap_curve",
    "jackknife",
    "kernel_ridge",
    "max_statistic",
    "neighbours",
    "nulls",
    "ratio",
    "resampling",
    "ridge",
    "spectra",
    "t_interval",
]
