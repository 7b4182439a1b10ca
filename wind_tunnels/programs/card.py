"""The card of a compiled program, and how each of its labels is written in the residual stream."""

from pathlib import Path
from typing import Any

import numpy as np

from interp.system.foreign_files import read_json

from .rules import evaluate, words_of

CARD, TRUTH = "program.json", "truth.safetensors"


def read_card(folder: Path) -> dict[str, Any]:
    """The card in a folder, whose rules were followed once; see `interp.system.foreign_files.readable`."""
    card = read_json(folder / CARD)
    for word in words_of(card):
        evaluate(card, [word] * card["length"])
    return card


def true_directions(folder: Path, card: dict[str, Any]) -> np.ndarray:
    """How every label of the card is written in the residual stream: `[label, d_model]`."""
    from safetensors.numpy import load_file

    if not (folder / TRUTH).exists():
        return np.eye(len(card["labels"]), dtype=np.float32)
    return load_file(folder / TRUTH)["directions"]
