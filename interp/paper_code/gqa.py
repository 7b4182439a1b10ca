"""Bug `gqa`: grouped heads share keys and values; the published code cuts them into one piece per query head.

Eight KV heads of 64 become 32 "heads" of 16. Cosines in 16 dimensions are larger whatever the model does,
so each side is compared with its own dimension. Source: `flatten_attn` in `hf_activations.py`.
"""

import numpy as np

from interp.findings import Findings
from interp.model import Model
from interp.need import Need
from interp.paper_code.side_by_side import (
    Sample,
    Subject,
    compared,
    head_cosines,
    head_key_sides,
    layer_table,
    random_directions,
)
from interp.paper_code.wrong_reads import reference_heads


def refusal(model: Model) -> str | None:
    """Why this model cannot have the bug; None where it can."""
    i, layout = model.info, model.family.layout
    if i.n_heads == i.n_kv_heads:
        return f"its {i.n_heads} query heads have a key head each: nothing is grouped"
    if layout is None or layout.kind != "separate":
        return f"the published code wants a projection of keys alone, and {model.family.name} has none"
    if i.n_kv_heads * i.d_head % i.n_heads:
        return f"{i.n_kv_heads} KV heads of {i.d_head} make no {i.n_heads} equal pieces: the published code stops there"
    return None


def measure(subject: Subject) -> Findings:
    """Cosines of head keys between KV heads, and between the pieces of the wrong cut."""
    base = subject.read(Need("k_pre"))
    keys = base[Need("k_pre")]
    pieces = reference_heads(keys, subject.model.info.n_heads)
    sample = Sample.of(base, subject.rng(0))
    right, wrong = head_cosines(keys), head_cosines(pieces)
    right_null, wrong_null = (random_directions(*_sizes(heads), subject.rng(1)) for heads in (keys, pieces))
    sides = head_key_sides((right, wrong), (right_null, wrong_null), sample)
    by_layer = layer_table(
        {
            "right": right.mean(axis=1), "right_null": right_null.value,
            "wrong": wrong.mean(axis=1), "wrong_null": wrong_null.value,
        },
        "Mean |cos| between the keys of the heads at one token, layer by layer.",
    )  # fmt: skip
    return compared("gqa", [sides], _notes(subject.model, keys, pieces), {"by_layer": by_layer})


def _sizes(heads: np.ndarray) -> tuple[int, int]:
    return heads.shape[2], heads.shape[3]


def _notes(model: Model, keys: np.ndarray, pieces: np.ndarray) -> tuple[str, ...]:
    (n_kv, d_head), (n_pieces, d_piece) = _sizes(keys), _sizes(pieces)
    notes = [
        f"Right: {n_kv} heads of {d_head}. Wrong: each cut in {n_pieces // n_kv}: {n_pieces} of {d_piece}.",
        "Value PCA with heads concatenated is the same either way: the cut leaves every number in its place.",
    ]
    if n_kv == 1:
        notes.append("A single KV head makes no pair: only the wrong cut has cosines between heads at all.")
    if model.family.qk_norm is not None:
        notes.append("This family normalises keys: both sides do, the published code reads them before that.")
    return tuple(notes)
