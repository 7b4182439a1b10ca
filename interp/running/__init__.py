"""A run: what was asked, what it will cost, doing it; several models, checkpoints, streams of prompts."""

__all__ = ["choose_probes", "compare", "generate", "plan", "run", "several_models", "spec", "study"]
