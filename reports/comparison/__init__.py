"""The page that compares records."""
