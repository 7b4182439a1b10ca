"""From a name to a model that may be read: where it lies, whether it fits, its weights, its tokenizer."""
