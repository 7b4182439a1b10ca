"""How edits are carried out: read from files, turned into tensor operations, applied, proved, and restarted."""

__all__ = ["conditions", "edit_files", "edited_rows", "editor", "proof", "restart", "screen"]
