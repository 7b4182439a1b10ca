"""From a name to a model that may be read: where it lies, whether it fits, its weights, its tokenizer."""

__all__ = [
    "adapter",
    "admission",
    "aliases",
    "hub_files",
    "identity",
    "load",
    "placement",
    "quiet_libraries",
    "sources",
    "text_part",
    "tokenizer",
    "untrained",
    "weights",
]
