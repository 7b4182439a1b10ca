"""The simulations on which our own probes are certified, and models of which the truth is known."""
