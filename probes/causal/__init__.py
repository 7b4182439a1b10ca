"""Does the model use the axis that reads uncertainty? Edits against matched controls."""

from .probe import Causal as Causal

__all__ = ["edits"]
