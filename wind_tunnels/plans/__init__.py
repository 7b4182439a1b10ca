"""From settings to trained and evaluated networks: one, a sweep, or a shipped one again."""

__all__ = ["rebuild", "settings", "sweep", "train_tunnel"]
