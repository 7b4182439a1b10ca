"""The papers' claims, the runs that answer them, the rules that judge them, and the outcomes."""

__all__ = ["ledger", "replicate", "rules"]
