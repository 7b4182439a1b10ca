"""A run: what was asked, what it will cost, doing it; several models and checkpoints."""
