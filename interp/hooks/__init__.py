"""Captures and edits of activations: the attention hook, hooks on blocks, attention rows, gradients."""
