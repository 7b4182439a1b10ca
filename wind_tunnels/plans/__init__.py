"""Which networks are trained: the shipped ones, and sweeps over settings."""

__all__ = ["plans", "read_sweep", "settings", "sweep"]
