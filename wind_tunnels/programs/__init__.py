"""Programs compiled to weights: networks with known variables, directions and idle heads."""

__all__ = ["network", "task"]
