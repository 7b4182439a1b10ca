"""What the self-check is made of: the passes over two short sequences, and the checks that read them."""

__all__ = ["hazards", "interp_engine", "nnsight", "selfcheck", "transformer_lens", "two_sequences"]
