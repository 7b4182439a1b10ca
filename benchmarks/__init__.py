"""What reading a model costs: time and memory beside the bare forward pass and beside other libraries.

    make bench                 # everything, in an environment of its own
    python -m benchmarks       # what is installed here

Every measurement is a process of its own, in which the bare pass and the thing measured take turns batch by batch.
"""
