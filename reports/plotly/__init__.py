"""Figures: theme, layout, thinning and encoding."""

__all__ = ["prepare", "theme"]
