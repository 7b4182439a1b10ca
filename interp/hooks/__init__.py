"""Where activations are captured and edited: the attention function, hooks on blocks, attention rows, gradients."""

__all__ = [
    "attention",
    "block_hooks",
    "caches",
    "layer_gradients",
    "pattern",
    "pattern_sites",
    "ropes",
    "state",
    "window",
]
