"""How close a network comes to the exact posterior, and the card that says so."""

__all__ = ["checkpoint", "evaluation"]
