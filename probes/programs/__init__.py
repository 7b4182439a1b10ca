"""Probes on compiled programs, whose answer to any change of a variable is known exactly."""

__all__ = ["swaps"]
