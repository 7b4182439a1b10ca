"""The cost of reading a model: time and memory compared with the bare forward pass and with other libraries.

    make bench                 # everything, in an environment of its own
    python -m benchmarks       # what is installed here

Every measurement is a process of its own, in which the bare pass and the measured method alternate batch by batch.
"""
