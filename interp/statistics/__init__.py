"""Spectra, intervals, nulls, correlations: numpy, scipy and scikit-learn, no model in sight."""
