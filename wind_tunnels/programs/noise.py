"""Noise as in trained models, added to a compiled program whose mechanism stays known.

Direction i of the program is written as row i of a matrix A and read by column i of its pseudo-inverse. A is orthogonal
in a rotation; in superposition its rows are random unit vectors in fewer dimensions. Distractor heads write into
directions of their own, which nothing reads. A is stored as `directions` in `truth.safetensors`, one row per label.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from safetensors.numpy import load_file, save

from interp.errors import UsageError
from interp.loading.sources import shipped_programs
from interp.system.whole_files import begins_with, telling, writing

from ..validation import Checked
from .task import CARD, TRUTH, read_program

_WRITE_WIDTH = 2


@dataclass(frozen=True)
class Noise(Checked):
    """Changes to a program, in this order: distractors, superposition or rotation, weight noise.

    `n_dimensions` of the residual stream, fewer than directions (None: all). `weight_noise` is relative to the standard
    deviation of each matrix. `n_distractors` heads are added per layer; they are idle where no other head works.
    """

    rotate: bool = False
    n_dimensions: int | None = None
    weight_noise: float = 0.0
    n_distractors: int = 0
    seed: int = 0

    asked = "noise in a program"
    rules: ClassVar = {
        "weight_noise": (lambda x: 0 <= x <= 1000, "is a number from 0 to 1,000"), "n_distractors": 0, "seed": 0
    }  # fmt: skip


def write_noisy(name: str, noise: Noise, folder: Path) -> None:
    """Write a shipped program with noise into a folder that loads as a model; the same seed gives the same bytes."""
    card = dict(read_program(name))
    home = shipped_programs()[name]
    config = json.loads((home / "config.json").read_text(encoding="utf-8"))
    weights = {key: value.astype(np.float64) for key, value in load_file(home / "model.safetensors").items()}
    rng = np.random.default_rng(noise.seed)
    labels = [*card["labels"], *(f"unread:{i}" for i in range(_WRITE_WIDTH * noise.n_distractors))]
    wider = np.eye(len(card["labels"]), len(labels))
    weights = {key: _moved(key, value, wider, wider.T) for key, value in weights.items()}
    n_heads, size = config["num_attention_heads"], config["head_dim"]
    busy = {part["layer"] for part in card["parts"] if "head" in part and part["writes"]}
    for layer in range(config["num_hidden_layers"]):
        for head in range(noise.n_distractors):
            first = len(card["labels"]) + _WRITE_WIDTH * head
            _add_head(weights, f"layers.{layer}.attn.", first, size, rng, 1.0 if layer in busy else 0.0)
    directions = _directions(len(labels), noise, rng)
    reading = np.linalg.pinv(directions)
    weights = {key: _moved(key, value, directions, reading) for key, value in weights.items()}
    noisy = {
        key: (v + noise.weight_noise * v.std() * rng.standard_normal(v.shape) if v.ndim == 2 else v).astype(np.float32)
        for key, v in weights.items()
    }
    extra = {"hidden_size": directions.shape[1], "num_attention_heads": n_heads + noise.n_distractors}
    layers, added = range(config["num_hidden_layers"]), range(n_heads, n_heads + noise.n_distractors)
    card |= {
        "labels": labels, "noise": asdict(noise),
        "distractor_heads": [[layer, head] for layer in layers if layer in busy for head in added],
        "idle_heads": card["idle_heads"] + [[layer, head] for layer in layers if layer not in busy for head in added],
    }  # fmt: skip
    files = {  # first what says whose they are, last what makes it a model
        CARD: _as_json(card), "model.safetensors": save(noisy, metadata={"format": "pt"}),
        TRUTH: save({"directions": directions.astype(np.float32)}), "config.json": _as_json(config | extra),
    }  # fmt: skip
    is_program = (folder / CARD).is_file() and begins_with('{\n "program": ')(folder / CARD)
    if not is_program and (theirs := [file for file in files if (folder / file).exists()]):
        raise UsageError(
            asked=f"writing the program to {folder}",
            found=f"{theirs[0]} is there, of another model",
            fix="Choose another folder.",
        )
    with telling(f"writing the program to {folder}"):
        for file, content in files.items():
            with writing(folder / file) as draft:
                draft.write_bytes(content)


def _as_json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()


def _add_head(
    weights: dict[str, np.ndarray], at: str, first: int, size: int, rng: np.random.Generator, scale: float
) -> None:
    """A head with random queries, keys and values that writes into `_WRITE_WIDTH` directions from `first` on."""
    width = weights[f"{at}q_proj.weight"].shape[1]
    for which in "qkv":
        drawn = scale * rng.standard_normal((size, width))
        weights[f"{at}{which}_proj.weight"] = np.vstack([weights[f"{at}{which}_proj.weight"], drawn])
        weights[f"{at}{which}_proj.bias"] = np.r_[weights[f"{at}{which}_proj.bias"], np.zeros(size)]
    out = np.zeros((width, size))
    out[first : first + _WRITE_WIDTH] = scale * rng.standard_normal((_WRITE_WIDTH, size)) / size**0.5
    weights[f"{at}o_proj.weight"] = np.hstack([weights[f"{at}o_proj.weight"], out])


def _directions(n_labels: int, noise: Noise, rng: np.random.Generator) -> np.ndarray:
    """The matrix A, `[label, d_model]`."""
    if noise.n_dimensions is not None:
        if not 2 <= noise.n_dimensions < n_labels:
            found = f"superposition in {noise.n_dimensions} dimensions, of {n_labels} directions"
            raise noise.refusal(found, f"Choose from 2 to {n_labels - 1} dimensions.")
        drawn = rng.standard_normal((n_labels, noise.n_dimensions))
        return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    if not noise.rotate:
        return np.eye(n_labels)
    turned, r = np.linalg.qr(rng.standard_normal((n_labels, n_labels)))
    return turned * np.sign(np.diag(r))


def _moved(key: str, weight: np.ndarray, directions: np.ndarray, reading: np.ndarray) -> np.ndarray:
    """The weight in another basis of the residual stream; linear layers store `[out, in]`."""
    if key.endswith(("o_proj.weight", "down.weight", "o_proj.bias", "down.bias")):
        return directions.T @ weight
    if not key.endswith("weight"):
        return weight
    return weight @ (directions if key.startswith("embed_") else reading.T)
