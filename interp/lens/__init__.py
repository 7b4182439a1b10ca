"""Lenses: what the stream at a depth says of the prediction. Logit, tuned and Jacobian lens, fitted and kept."""

__all__ = ["files", "fit", "held", "jacobian", "kinds", "show"]
