"""The certificate of a probe: its error rates, power and coverage on simulated worlds, and where the truth is known."""

__all__ = ["certify", "study", "texts", "verdicts", "worlds"]
