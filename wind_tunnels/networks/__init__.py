"""The networks that are trained on the tasks: tiny transformers, LSTM, MLP, Mamba."""

__all__ = ["architectures", "block_stack", "equal_capacity", "feedforward", "networks", "weights"]
