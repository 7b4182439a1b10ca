"""Key orthogonality: four quantities of this name, each compared with random directions, and W_QK.

The definitions (`measures.key_cosines`) differ in their vectors, so neither their values nor their baselines are
comparable; the singular spectrum of W_QK per head (`query_key`) adds what none of them measures, as it does not depend
on the basis of a head. Formulas, nulls and failure modes are in docs/reference/probes.

Source: Paper III (arXiv 2512.23752), section 4.2, and Paper I (arXiv 2512.22471) for keys of tokens; the published
code for keys of heads and for the embedding proxy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from interp.capture import Capture
from interp.findings import Findings
from interp.need import Need
from interp.probe import Probe, Readout, Sentences
from interp.statistics.cosines import expected_abs_cosine
from interp.statistics.estimates import Estimates
from interp.statistics.quantities import Quantities
from interp.statistics.units import Units
from interp.system.threads import side_by_side
from interp.table import Table

from ..measures.cloud import Cloud
from ..measures.field_checks import check_fields
from ..measures.finite import finite
from ..measures.geometry import count_distinct
from ..measures.key_cosines import (
    column_measures,
    gaussian_references,
    head_keys,
    over_heads,
)
from ..measures.profiles import Part
from ..measures.sample_sizes import FEW_POINTS, MIN_CLOUD
from ..measures.token_cosines import TokenSets, no_token_sets, token_cosines
from .figures import orthogonality_figures
from .matrices import head_matrix, token_matrix
from .quantities import QUANTITIES
from .query_key import QueryKey

Definition = Literal["all", "wk_columns", "token_keys", "head_keys", "embedding_proxy"]

_NEEDS: Mapping[str, tuple[Need, ...]] = {
    "wk_columns": (Need("W_K"), Need("W_Q")),
    "token_keys": (Need("k_pre"),),
    "head_keys": (Need("k_pre"),),
    "embedding_proxy": (Need("resid"),),
}


_ENDINGS = {"abs": "", "abs_centred": "_centred", "signed": "_signed"}
"""The measures that are numbers of the probe, and what their names end in."""


@dataclass(frozen=True)
class Orthogonality(Probe):
    """Mean cosines of key weights, token keys, head keys and embeddings, and the spectrum of W_QK.

    `definition`: one of them, or all. `layer`: that of the headline of `token_keys`. `n_tokens`: the most different
    tokens that are compared. `n_null`: draws of each null; `n_bootstrap`: resamples of the prompts.
    """

    definition: Definition = "all"
    layer: int = 0
    n_tokens: int = 100
    n_null: int = 100
    n_bootstrap: int = 1000
    seed: int = 0

    name: ClassVar[str] = "orthogonality"
    least_clusters: ClassVar[int] = MIN_CLOUD
    quantities: ClassVar[Quantities] = QUANTITIES
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
        check_fields(self, {"n_tokens": 2, "n_null": 20, "n_bootstrap": 20}, n_layers, "layer")

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        self.refuse_fields(base.model.n_layers)
        measured = {
            "wk_columns": self._wk_columns, "token_keys": self._token_keys,
            "head_keys": self._head_keys, "embedding_proxy": self._embedding_proxy,
        }  # fmt: skip
        found = side_by_side(lambda name: measured[name](base), self._definitions)
        scalars = {name: scalar for part in found for name, scalar in part.scalars.items()}
        # the proxy is the headline where it is the only definition
        alone = {"headline": self._definitions} if self.definition == "embedding_proxy" else {}
        return QUANTITIES.findings(
            self.name, scalars, {name: table for part in found for name, table in part.tables.items()},
            notes=tuple(note for part in found for note in part.notes), **alone,
        )  # fmt: skip

    figures = staticmethod(orthogonality_figures)

    def _wk_columns(self, base: Capture) -> Part:
        rng = np.random.default_rng([self.seed, 1])
        keys, queries = finite(base, Need("W_K")), finite(base, Need("W_Q"))
        d_model, d_head = keys.shape[2:]
        measured = column_measures(keys)
        references = gaussian_references(d_head, d_model, self.n_null, rng)
        (by_layer, overall), n_layers = over_heads(measured, references, keys.shape[1]), len(keys)
        query_key = QueryKey.of(queries, keys, self.n_null, rng)
        spectra, spectrum = query_key.means()
        low, high = np.quantile(measured[..., 0], [0.1, 0.9], axis=1)
        columns = {
            "layer": np.arange(n_layers), **by_layer, **spectra, "abs_heads_low": low, "abs_heads_high": high,
            "abs_shuffled": column_measures(rng.permuted(keys, axis=2))[..., 0].mean(axis=1),
        }  # fmt: skip
        caption = "Columns of W_K and spectrum of W_QK, layer by layer: mean over heads. Weights have no interval."
        found = {
            "wk_columns": overall["abs"], "wk_columns_centred": overall["abs_centred"],
            **{name: spectrum[name] for name in ("w_qk_effective_rank", "w_qk_top_share")},
        }  # fmt: skip
        return Part(
            QUANTITIES.scalars(found),
            {
                "wk_columns": QUANTITIES.table(columns, caption),
                "w_qk_spectrum": query_key.spectrum_table(),
            },
            notes=(
                f"wk_columns: columns lie in {d_model} dimensions, where random directions have mean |cos| "
                f"{expected_abs_cosine(d_model):.4f}; means are over all layers and heads. Biases, and normalisation "
                "of queries and keys where there is any, are not part of the weights. abs_heads: 10th and 90th "
                "percentile over heads; abs_shuffled: entries of each column in random order.",
            ),
        )

    def _token_keys(self, base: Capture) -> Part:
        reason = no_token_sets(base)
        if reason:
            return self._undefined("token_keys", reason)
        cloud = Cloud.of(base, Need("k_pre"))
        layer = cloud.layer_index(self.layer)
        rng = np.random.default_rng([self.seed, 2])
        sets = TokenSets.of(base.rows["token"], base.rows["position"], self.n_tokens, rng)
        references = gaussian_references(sets.n_tokens, cloud.points.shape[2], self.n_null, rng)
        profiles = token_cosines(cloud.points, cloud, sets, references)
        caption = "Keys of different tokens at equal positions, layer by layer, heads concatenated."
        return Part(
            QUANTITIES.scalars({f"token_keys{end}": profiles[m] for m, end in _ENDINGS.items()}, layer),
            {
                "token_keys": _by_layer_table(profiles, [sets.n_tokens] * cloud.n_layers, caption),
                "token_key_matrix": token_matrix(cloud.points[layer], base.rows["token"], sets, layer, self.seed),
            },
            notes=(
                f"token_keys: {sets.n_tokens} tokens at {len(np.unique(sets.position))} position(s), read at layer "
                f"{layer}. Keys of one token at one position are averaged over its contexts; above layer 0 they hold "
                "context too.",
            ),
        )

    def _head_keys(self, base: Capture) -> Part:
        drawn, n_heads = base.drawn, base.model.n_kv_heads
        if n_heads < 2:
            return self._undefined("head_keys", "each layer has a single KV head")
        cloud = Cloud.of(drawn, Need("k_pre"))
        heads = cloud.points.reshape(*cloud.points.shape[:2], n_heads, -1)
        units = Units.of(cloud.rows, cloud.unit, self.n_bootstrap, np.random.default_rng([self.seed, 3]))
        by_layer, overall = head_keys(cloud, n_heads, units, self.n_null, self.seed)
        distinct = count_distinct(cloud)
        caption = "Keys of the KV heads of one layer at one row, before rotary embedding, layer by layer."
        few = units.counted["underpowered"] or min(distinct) < FEW_POINTS
        about = {"underpowered": few, "n_distinct_rows": min(distinct)}
        found = {f"head_keys{end}": overall[measure] for measure, end in _ENDINGS.items() if end != "_signed"}
        return Part(
            QUANTITIES.scalars({name: replace(of, about={**of.about, **about}) for name, of in found.items()}),
            {
                "head_keys": _by_layer_table(by_layer, distinct, caption),
                "head_key_matrix": head_matrix(heads, self.seed),
            },
            notes=(
                f"head_keys: {n_heads} KV heads of {base.model.d_head} dimensions, where random directions have mean "
                f"|cos| {expected_abs_cosine(base.model.d_head):.4f}. Rotary embedding turns all heads of a position "
                "alike: cosines after it are the same.",
            ),
        )

    def _embedding_proxy(self, base: Capture) -> Part:
        cloud = Cloud.of(base, Need("resid"))
        rng = np.random.default_rng([self.seed, 4])
        sets = TokenSets.of(base.rows["token"], np.zeros_like(base.rows["token"]), self.n_tokens, rng)
        if sets.n_tokens < 2:
            return self._undefined("embedding_proxy", "all rows hold one token")
        references = gaussian_references(sets.n_tokens, cloud.points.shape[2], self.n_null, rng)
        profiles = token_cosines(cloud.points[:1], cloud, sets, references)
        caption = "Embeddings of different tokens: a proxy that has no layers and holds no keys."
        return Part(
            QUANTITIES.scalars({"embedding_proxy": profiles["abs"]}),
            {"embedding_proxy": _by_layer_table(profiles, [sets.n_tokens], caption)},
            notes=(
                f"embedding_proxy: the residual stream at depth 0 of {sets.n_tokens} different tokens (with the "
                "embedding of positions where a model adds one). It measures no keys and cannot depend on the layer; "
                "it is here because the published code measures it under the name of key orthogonality.",
            ),
        )

    def _undefined(self, definition: str, why: str) -> Part:
        reason = f"undefined ({why})"
        scalars = QUANTITIES.scalars({definition: Estimates.undefined(reason)})
        return Part(scalars, notes=(f"{definition}: {reason}.",))


def _by_layer_table(
    columns: Mapping[str, np.ndarray | Estimates], n_distinct_rows: Sequence[int], caption: str
) -> Table:
    where = {"layer": np.arange(len(n_distinct_rows)), "n_distinct_rows": np.array(n_distinct_rows)}
    return QUANTITIES.table(where | {**columns}, caption)
