"""Where activations are captured and edited: the attention function, hooks on blocks, attention rows, gradients."""
