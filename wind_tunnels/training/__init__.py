"""The training of a network on a task: recipe, optimisers, batches, loop."""

__all__ = ["loop", "plan", "sampling"]
