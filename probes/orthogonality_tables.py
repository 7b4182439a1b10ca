"""The tables of the orthogonality probe that go head by head."""

from collections.abc import Mapping, Sequence

import numpy as np

from interp.cosines import MEASURES
from interp.table import Table
from probes.profiles import Profile
from probes.query_key import SPECTRAL, UNITS, QueryKey


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
    columns = {"layer": np.repeat(np.arange(n_layers), n_heads), "head": np.tile(np.arange(n_heads), n_layers)}
    columns["kv_head"] = np.tile(kv_head, n_layers)
    units = {"layer": "layer", "head": "head", "kv_head": "head"}
    for i, measure in enumerate(MEASURES):
        columns[measure], units[measure] = measured[:, kv_head, i].ravel(), "1"
    for i, (name, unit) in enumerate(zip(SPECTRAL, UNITS, strict=True)):
        columns[f"w_qk_{name}"], units[f"w_qk_{name}"] = statistics[..., i].ravel(), unit
    return Table(columns, units, "Columns of W_K (the KV head that a query head reads) and W_QK, head by head.")


def token_table(by_head: Sequence[Mapping[str, Profile]]) -> Table:
    """Token keys of every KV head on its own, layer by layer."""
    caption = "Keys of different tokens at equal positions, one KV head at a time."
    rows = [
        {"layer": layer, "kv_head": head, **{m: profile[m][layer].value for m in MEASURES},
         **{f"{m}_null": profile[m][layer].null.value for m in MEASURES}}  # pyright: ignore[reportOptionalMemberAccess]
        for head, profile in enumerate(by_head) for layer in range(len(profile["abs"]))
    ]  # fmt: skip
    units = {"layer": "layer", "kv_head": "head"} | dict.fromkeys([*MEASURES, *(f"{m}_null" for m in MEASURES)], "1")
    return Table.from_rows(rows, units, caption)
