"""Key orthogonality: four quantities that go by this name, each beside the value of random directions, and W_QK.

The definitions (measures.key_cosines) differ in what the vectors are, so their values must not be compared with one
another or with one baseline; the singular spectrum of W_QK per head (measures.query_key) is what none of them sees: it
does not change with the basis of a head. Formulas, nulls and failure modes are in docs/reference/probes.

Source: Paper III (arXiv 2512.23752), section 4.2, and Paper I (arXiv 2512.22471) for keys of tokens; the published
code for keys of heads and for the embedding proxy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from interp.capture import Capture
from interp.findings import Findings, Scalar
from interp.need import Need
from interp.probe import Figure, Probe, Readout, Sentences
from interp.statistics.cosines import cosine_measures, expected_abs_cosine
from interp.statistics.units import Units
from interp.system.threads import side_by_side

from ..measures.cloud import Cloud, refuse_layer
from ..measures.field_checks import refuse_too_few
from ..measures.finite import finite
from ..measures.key_cosines import (
    column_measures,
    gaussian_references,
    head_keys,
    meaning,
    shuffled_columns,
    wk_columns,
)
from ..measures.profiles import profile_table
from ..measures.sample_sizes import FEW_POINTS
from ..measures.token_cosines import TokenSets, no_token_sets, token_cosines, token_measures
from .matrices import head_matrix, token_matrix
from .query_key import QueryKey
from .tables import by_head_table, token_table, without

Definition = Literal["all", "wk_columns", "token_keys", "head_keys", "embedding_proxy"]

_NEEDS: Mapping[str, tuple[Need, ...]] = {
    "wk_columns": (Need("W_K"), Need("W_Q")),
    "token_keys": (Need("k_pre"),),
    "head_keys": (Need("k_pre"), Need("k")),
    "embedding_proxy": (Need("resid"),),
}


@dataclass(frozen=True)
class Orthogonality(Probe):
    """Mean cosines of key weights, token keys, head keys and embeddings, and the spectrum of W_QK.

    `definition`: one of them, or all. `layer`: the one at which the keys of tokens are the headline. `n_tokens`: how
    many different tokens are compared at most. `n_null`: draws of each null; `n_bootstrap`: resamples of the prompts.
    """

    definition: Definition = "all"
    layer: int = 0
    n_tokens: int = 100
    n_null: int = 100
    n_bootstrap: int = 1000
    seed: int = 0

    name: ClassVar[str] = "orthogonality"
    question: ClassVar[str] = "Are keys closer to orthogonal than random directions of their dimension?"
    sentences: ClassVar[tuple[Sentences, ...]] = (
        Sentences(
            90, "Are the key directions of a head closer to orthogonal than random ones?",
            ("wk_columns", "token_keys", "head_keys", "embedding_proxy"),
            "Their mean |cos| is {value}, below that of random vectors.",
            "Their mean |cos| is {value}, as that of random vectors.",
            "Their mean |cos| is {value}, above that of random vectors: they overlap more.", expected="below",
        ),
    )  # fmt: skip

    @property
    def needs(self) -> tuple[Need, ...]:
        return tuple(dict.fromkeys(need for name in self._definitions for need in _NEEDS[name]))

    @property
    def _definitions(self) -> tuple[str, ...]:
        return tuple(_NEEDS) if self.definition == "all" else (self.definition,)

    def refuse_fields(self, n_layers: int | None) -> None:
        refuse_too_few(self, {"n_tokens": 2, "n_null": 20, "n_bootstrap": 20}, "too few to compare anything with")
        if n_layers is not None:
            refuse_layer(self.layer, n_layers)

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        self.refuse_fields(base.model.n_layers)
        measured = {
            "wk_columns": self._wk_columns, "token_keys": self._token_keys,
            "head_keys": self._head_keys, "embedding_proxy": self._embedding_proxy,
        }  # fmt: skip
        found = side_by_side(lambda name: measured[name](base), self._definitions)
        scalars = {name: scalar for part in found for name, scalar in part.scalars.items()}
        order = ("wk_columns", "w_qk_effective_rank", "token_keys", "head_keys")
        return Findings(
            probe=self.name,
            scalars=scalars,
            tables={name: table for part in found for name, table in part.tables.items()},
            notes=tuple(note for part in found for note in part.notes),
            headline=tuple(name for name in order if name in scalars) or tuple(scalars)[:1],
        )

    def figures(self, findings: Findings) -> tuple[Figure, ...]:
        from .figures import figures

        return figures(findings)

    def _wk_columns(self, base: Capture) -> Findings:
        rng = np.random.default_rng([self.seed, 1])
        keys, queries = finite(base, Need("W_K")), finite(base, Need("W_Q"))
        d_model, d_head = keys.shape[2:]
        measured = column_measures(keys)
        cosines = wk_columns(measured, gaussian_references(d_head, d_model, self.n_null, rng))
        query_key = QueryKey.of(queries, keys, self.n_null, rng)
        by_layer = {**cosines.by_layer, **{f"w_qk_{n}": p for n, p in query_key.profiles().items()}}
        caption = "Columns of W_K and spectrum of W_QK, layer by layer: mean over heads. Weights have no interval."
        table = profile_table(by_layer, [len(measured[0])] * len(measured), caption)
        table = without(table, "n_distinct_rows", "_low", "_high")
        low, high = np.quantile(measured[..., 0], [0.1, 0.9], axis=1)
        table = table.with_column("abs_heads_low", low, "1").with_column("abs_heads_high", high, "1")
        table = table.with_column("abs_shuffled", shuffled_columns(keys, rng)[..., 0].mean(axis=1), "1")
        return Findings(
            self.name,
            scalars={
                "wk_columns": cosines.over_layers["abs"],
                "wk_columns_centred": cosines.over_layers["abs_centred"],
                "w_qk_effective_rank": query_key.over_layers("effective_rank"),
                "w_qk_top_share": query_key.over_layers("top_share"),
            },
            tables={
                "wk_columns": table,
                "wk_columns_by_head": by_head_table(measured, query_key),
                "w_qk_spectrum": query_key.spectrum_table(),
            },
            notes=(
                f"wk_columns: columns lie in {d_model} dimensions, where random directions have mean |cos| "
                f"{expected_abs_cosine(d_model):.4f}; means are over all layers and heads. Biases, and normalisation "
                "of queries and keys where there is any, are not part of the weights. abs_heads: 10th and 90th "
                "percentile over heads; abs_shuffled: entries of each column in random order.",
            ),
        )

    def _token_keys(self, base: Capture) -> Findings:
        reason = no_token_sets(base)
        if reason:
            return self._undefined("token_keys", reason)
        cloud = Cloud.of(base, Need("k_pre"))
        layer = cloud.layer_index(self.layer)
        rng = np.random.default_rng([self.seed, 2])
        sets = TokenSets.of(base.rows["token"], base.rows["position"], self.n_tokens, rng)
        references = gaussian_references(sets.n_tokens, cloud.points.shape[2], self.n_null, rng)
        profiles = token_cosines("token_keys", cloud.points, cloud, sets, references)
        n_heads = base.model.n_kv_heads
        heads = cloud.points.reshape(*cloud.points.shape[:2], n_heads, -1)
        own = gaussian_references(sets.n_tokens, heads.shape[3], self.n_null, rng)
        by_head = np.array(
            [[token_measures(layer[:, h], sets, [], cloud.units)[0] for h in range(n_heads)] for layer in heads]
        )
        caption = "Keys of different tokens at equal positions, layer by layer, heads concatenated."
        return Findings(
            self.name,
            scalars={
                "token_keys": profiles["abs"][layer],
                "token_keys_centred": profiles["abs_centred"][layer],
                "token_keys_signed": profiles["signed"][layer],
            },
            tables={
                "token_keys": profile_table(profiles, [sets.n_tokens] * cloud.n_layers, caption),
                "token_keys_by_head": token_table(by_head, own),
                "token_key_matrix": token_matrix(cloud.points[layer], base.rows["token"], sets, layer, self.seed),
            },
            notes=(
                f"token_keys: {sets.n_tokens} tokens at {len(np.unique(sets.position))} position(s), read at layer "
                f"{layer}. Keys of one token at one position are averaged over its contexts; above layer 0 they hold "
                "context too.",
            ),
        )

    def _head_keys(self, base: Capture) -> Findings:
        drawn, n_heads = base.drawn, base.model.n_kv_heads
        if n_heads < 2:
            return self._undefined("head_keys", "each layer has a single KV head")
        cloud, rotated = Cloud.of(drawn, Need("k_pre")), Cloud.of(drawn, Need("k"))
        units = Units.of(cloud.rows, cloud.unit, self.n_bootstrap, np.random.default_rng([self.seed, 3]))
        cosines = head_keys(cloud, n_heads, units, self.n_null, self.seed)
        distinct = [len(np.unique(layer, axis=0)) for layer in cloud.points]
        caption = "Keys of the KV heads of one layer at one row, before rotary embedding, layer by layer."
        table = profile_table(cosines.by_layer, distinct, caption)
        after = _after_rotary(rotated, n_heads)
        table = table.with_column("abs_after_rotary", after[:, 0], "1")
        table = table.with_column("signed_after_rotary", after[:, 1], "1")
        before = np.array([[table["abs"][i], table["signed"][i]] for i in range(cloud.n_layers)])
        few = min(distinct) < FEW_POINTS
        return Findings(
            self.name,
            scalars={
                name: replace(cosines.over_layers[measure], underpowered=few, n_distinct_rows=min(distinct))
                for name, measure in (("head_keys", "abs"), ("head_keys_centred", "abs_centred"))
            },
            tables={
                "head_keys": table,
                "head_key_matrix": head_matrix(cloud.points.reshape(*cloud.points.shape[:2], n_heads, -1), self.seed),
            },
            notes=(
                f"head_keys: {n_heads} KV heads of {base.model.d_head} dimensions, where random directions have mean "
                f"|cos| {expected_abs_cosine(base.model.d_head):.4f}. Rotary embedding turns all heads of a position "
                "alike, so cosines before and after it are the same: a layer's means differ by at most "
                f"{np.abs(after - before).max():.1e}.",
            ),
        )

    def _embedding_proxy(self, base: Capture) -> Findings:
        cloud = Cloud.of(base, Need("resid"))
        rng = np.random.default_rng([self.seed, 4])
        sets = TokenSets.of(base.rows["token"], np.zeros_like(base.rows["token"]), self.n_tokens, rng)
        if sets.n_tokens < 2:
            return self._undefined("embedding_proxy", "all rows hold one token")
        references = gaussian_references(sets.n_tokens, cloud.points.shape[2], self.n_null, rng)
        profiles = token_cosines("embedding_proxy", cloud.points[:1], cloud, sets, references)
        caption = "Embeddings of different tokens: a proxy that has no layers and holds no keys."
        scalar: Scalar = profiles["abs"][0]
        return Findings(
            self.name,
            scalars={"embedding_proxy": scalar},
            tables={"embedding_proxy": profile_table(profiles, [sets.n_tokens], caption)},
            notes=(
                f"embedding_proxy: the residual stream at depth 0 of {sets.n_tokens} different tokens (with the "
                "embedding of positions where a model adds one). It measures no keys and cannot depend on the layer; "
                "it is here because the published code measures it under the name of key orthogonality.",
            ),
        )

    def _undefined(self, definition: str, why: str) -> Findings:
        reason = f"undefined ({why})"
        scalar = Scalar.undefined(reason, meaning=meaning(definition, "abs"))
        return Findings(self.name, scalars={definition: scalar}, notes=(f"{definition}: {reason}.",))


def _after_rotary(cloud: Cloud, n_heads: int) -> np.ndarray:
    """Mean |cos| and mean cos between the heads' keys as attention compares them, layer by layer."""
    keys = cloud.points.reshape(*cloud.points.shape[:2], n_heads, -1)
    return np.array([cosine_measures(layer)[:, :2].mean(axis=0) for layer in keys])
