"""Which networks can do which primitive of inference: one training a task, network and seed."""
