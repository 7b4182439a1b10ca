"""Bug `embedding-keys`: the published code compares token embeddings and calls them the keys of each layer.

Nothing of a layer enters, so its curve over depth is flat but for the luck of the draw. Source:
`extract_key_vectors` in `analyze_geometry.py`, where a comment calls it a proxy.
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Int, Num

from interp.errors import PromptError
from interp.findings import Findings, Null, Scalar
from interp.model import Model
from interp.need import Need
from interp.paper_code.side_by_side import (
    Sides,
    Subject,
    compared,
    layer_table,
    mean_over_layers,
    random_directions,
    set_cosines,
)
from interp.paper_code.wrong_reads import N_SAMPLED_TOKENS, reference_keys
from interp.statistics.cosines import cosine_measures

FEWEST_TOKENS = 3


def measure(subject: Subject) -> Findings:
    """Mean |cos| between keys of tokens, between columns of W_K, and between what stands in their place."""
    base = subject.read(Need("k_pre"), Need("W_K"))
    keys, weights = base[Need("k_pre")], base[Need("W_K")]
    vectors = token_means(keys.reshape(*keys.shape[:2], -1), base.rows["token"], subject.rng(0))
    embeddings = embedding_rows(subject.model)
    _, n_compared, d_keys = vectors.shape
    n_tokens, d_model = embeddings.shape
    right, right_without = set_cosines(list(vectors))
    wrong, wrong_without = set_cosines(reference_keys(embeddings, len(keys), subject.rng(1)))
    columns = np.array([cosine_measures(np.swapaxes(layer, -1, -2))[:, 0] for layer in weights])
    null = random_directions(n_compared, d_keys, subject.rng(2))
    wrong_null = random_directions(N_SAMPLED_TOKENS, d_model, subject.rng(3), n_tokens=n_tokens)
    columns_null = random_directions(weights.shape[3], d_model, subject.rng(4), n_averaged=columns.size)
    wrong_scalar = mean_over_layers(wrong, wrong_without, wrong_null)
    right_scalar = mean_over_layers(right, right_without, null)
    of_weights = _of_weights(columns, columns_null)
    sides = [
        Sides("keys", "mean |cos| of keys of tokens, all layers", right_scalar, wrong_scalar),
        Sides("wk_columns", "mean |cos| of W_K columns, all layers", of_weights, wrong_scalar),
        Sides("range_over_layers", "mean |cos|, largest minus smallest layer", _range(right), _range(wrong)),
    ]
    by_layer = layer_table(
        {
            "keys": right, "keys_null": null.value,
            "wk_columns": columns.mean(axis=1), "wk_columns_null": columns_null.value,
            "wrong": wrong, "wrong_null": wrong_null.value,
        },
        "Mean |cos|, layer by layer; `wrong` are embeddings, drawn anew for every layer.",
    )  # fmt: skip
    notes = (
        f"Right: keys of {n_compared} different last tokens, before rotary embedding, heads concatenated, "
        "averaged over the contexts of a token.",
        f"Wrong: embeddings of {N_SAMPLED_TOKENS} draws from {n_tokens:,} tokens, with replacement. Neither "
        "a prompt nor a layer enters: the curve over depth moves by the luck of the draw.",
    )
    return compared("embedding-keys", sides, notes, {"by_layer": by_layer})


def token_means(
    keys: Num[np.ndarray, "layer row feature"], tokens: Int[np.ndarray, " row"], rng: np.random.Generator
) -> Float[np.ndarray, "layer token feature"]:
    """The mean key of every different token, of at most as many as the published code compares."""
    names = np.unique(tokens)
    if len(names) < FEWEST_TOKENS:
        raise PromptError(
            asked="the cosines between keys of different tokens",
            found=f"the prompts end in {len(names)} different token{'s' if len(names) > 1 else ''}",
            fix="Use prompts that end differently, such as the set `mixed`.",
        )
    chosen = rng.choice(names, min(len(names), N_SAMPLED_TOKENS), replace=False)
    return np.stack([keys[:, tokens == token].mean(axis=1, dtype=np.float64) for token in chosen], axis=1)


def embedding_rows(model: Model) -> Num[np.ndarray, "vocab d_model"]:
    """Input embeddings of the tokens that the tokenizer knows; rows that pad the matrix are never drawn."""
    module: Any = model.module.get_input_embeddings()
    n_tokens = model.info.vocab_size if model.tokenizer is None else model.tokenizer.vocab_size
    return module.weight[:n_tokens].detach().float().cpu().numpy()


def _of_weights(measured: Float[np.ndarray, "layer kv_head"], null: Null) -> Scalar:
    meaning = "How parallel the columns of one head's key projection are, on average over heads and layers."
    reason = "weights only: nothing to resample"
    return Scalar.of(float(measured.mean()), "1", reason, null, n=measured.size, n_unit="head", meaning=meaning)


def _range(values: Float[np.ndarray, " layer"]) -> Scalar:
    return Scalar.of(
        float(np.ptp(values)), "1", "a range over layers", "a range over layers: it says how flat the curve is",
        n=len(values), n_unit="layer", meaning="How far the curve over depth moves.",
    )  # fmt: skip
