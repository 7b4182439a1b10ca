"""The page of a record."""

__all__ = ["about", "labels", "render", "sections", "security", "strip"]
