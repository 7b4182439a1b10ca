"""Edits: reading them from files, applying them as tensor operations, verifying them, and shorter passes for them."""

__all__ = ["conditions", "edit_files", "edited_rows", "editor", "proof", "restart", "screen"]
