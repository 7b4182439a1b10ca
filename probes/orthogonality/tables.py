"""The tables of the orthogonality probe that go head by head."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from interp.statistics.cosines import MEASURES, Reference
from interp.table import Table, number_columns

from ..measures.profiles import head_columns
from .query_key import SPECTRAL, UNITS, QueryKey


def without(table: Table, name: str, *endings: str) -> Table:
    """The table less one column, and less the columns with these endings, those of nulls excepted."""
    kept = [c for c in table.columns if c != name and not (c.endswith(endings) and "_null_" not in c)]
    return Table({c: table[c] for c in kept}, {c: table.units[c] for c in kept}, table.caption)


def by_head_table(measured: np.ndarray, query_key: QueryKey) -> Table:
    """One row a query head, with the columns of the KV head it reads."""
    statistics = query_key.statistics
    n_layers, n_heads, _ = statistics.shape
    n_kv_heads = measured.shape[1]
    kv_head = np.arange(n_heads) // (n_heads // n_kv_heads)
    columns = head_columns(n_layers, n_heads) | {"kv_head": np.tile(kv_head, n_layers)}
    units = {"layer": "layer", "head": "head", "kv_head": "head"}
    for i, measure in enumerate(MEASURES):
        columns[measure], units[measure] = measured[:, kv_head, i].ravel(), "1"
    for i, (name, unit) in enumerate(zip(SPECTRAL, UNITS, strict=True)):
        columns[f"w_qk_{name}"], units[f"w_qk_{name}"] = statistics[..., i].ravel(), unit
    return Table(columns, units, "Columns of W_K (the KV head that a query head reads) and W_QK, head by head.")


def token_table(measured: Float[np.ndarray, "layer kv_head measure"], references: Mapping[str, Reference]) -> Table:
    """Token keys of every KV head on its own, layer by layer."""
    n_layers, n_heads, _ = measured.shape
    columns = head_columns(n_layers, n_heads, "kv_head")
    units = {"layer": "layer", "kv_head": "head"}
    for i, measure in enumerate(MEASURES):
        null = references[measure].compare(float("nan"), 1).null
        of_null = tuple(np.full(n_layers * n_heads, value) for value in (null.value, *null.band))
        columns |= number_columns(measure, measured[..., i].ravel(), null=of_null)
    units |= dict.fromkeys(MEASURES, "1")
    return Table(columns, units, "Keys of different tokens at equal positions, one KV head at a time.")
