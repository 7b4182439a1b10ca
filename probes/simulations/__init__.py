"""Simulations on which our probes are certified, and models with a known truth."""
