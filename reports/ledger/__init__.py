"""The page of a ledger."""
