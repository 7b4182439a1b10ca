"""The page of a record."""

__all__ = ["about", "render", "sections", "security", "strip"]
