"""The simulated worlds on which our own probes are certified, and models of which the truth is known."""
