"""The generative processes, each with its exact posterior."""

__all__ = ["bijection", "filtering", "permutation", "shipped_task"]
