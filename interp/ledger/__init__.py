"""The papers' claims, the runs that answer them, the rules that judge them, and the verdicts."""

__all__ = ["ledger", "replicate", "rules"]
