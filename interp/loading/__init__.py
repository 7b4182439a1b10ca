"""Loading a model by name: its files, whether it can be read and fits, its weights and its tokenizer."""
