"""One method of mechanistic interpretability a file, each asked the same four questions about a compiled program."""
