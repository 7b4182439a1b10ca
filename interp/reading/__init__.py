"""One forward pass for all needs: batches, hooks, reductions, and what fits into memory."""

__all__ = ["batches", "collector", "early_exit", "forward", "lens", "packs", "readable", "weights"]
