"""The generative processes, each with its exact posterior."""

__all__ = ["filtering", "permutation", "shipped_task"]
