"""What the probes compute: pure numpy functions and the tables made of them, one idea a file."""
