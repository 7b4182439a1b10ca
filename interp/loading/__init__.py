"""From a name to a model that may be read: where it lies, whether it fits, its weights, its tokenizer."""

__all__ = [
    "adapter",
    "admission",
    "aliases",
    "hub_errors",
    "hub_files",
    "load",
    "placement",
    "quiet_libraries",
    "sources",
    "tokenizer",
    "untrained",
    "weights",
]
