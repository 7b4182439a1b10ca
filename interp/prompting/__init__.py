"""Prompts from names, files, the hub and tasks, and their token ids."""

__all__ = ["clusters", "files", "formats", "pools", "token_names", "tokens", "tunnel_sequences"]
