"""Programs compiled to weights: networks whose every variable, direction and idle head is known."""

__all__ = ["network", "task"]
