"""A run: what was asked, what it will cost, doing it; several models and checkpoints."""

__all__ = [
    "attribution",
    "choose_probes",
    "generate",
    "means",
    "patching",
    "plan",
    "run",
    "several_models",
    "show_tokens",
    "spec",
    "study",
]
