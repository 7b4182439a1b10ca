"""The certificate of a probe: its error rates, power and coverage on simulations, and where the truth is known."""

__all__ = ["simulations", "study", "text_simulations", "verdicts"]
