"""From a name, a file, a hub or a task to prompts, and from prompts to token ids."""

__all__ = ["clusters", "files", "formats", "pools", "token_names", "tokens", "tunnel_sequences"]
