"""What the self-check is made of: the passes over two short sequences, and the checks that read them."""

__all__ = ["selfcheck", "two_sequences", "witnesses"]
