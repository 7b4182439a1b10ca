"""Bug `fused-qkv`: GPT-NeoX packs queries, keys and values head by head; the published code unpacks thirds.

Its "values" are then whatever lies in the last third of the heads, queries and keys among them, and its
"keys" what lies in the middle third. Source: `qkv_hook` in `hf_activations.py`.
"""

import numpy as np

from interp.families import Projection
from interp.findings import Findings, Scalar
from interp.model import Model
from interp.need import Need
from interp.paper_code.side_by_side import (
    Sample,
    Sides,
    Subject,
    compared,
    head_cosines,
    head_key_sides,
    layer_table,
    random_directions,
    variance_shares,
)
from interp.paper_code.wrong_reads import fused_origin, reference_qkv
from interp.statistics.spectra import Scaling
from interp.table import LABEL, Table

_NAMES: dict[Projection, str] = {"q": "queries", "k": "keys", "v": "values"}
_SCALINGS: tuple[Scaling, ...] = ("centred", "zscored")
_COUNTED = "a count that follows from the layout"


def refusal(model: Model) -> str | None:
    """Why this model cannot have the bug; None where it can."""
    layout = model.family.layout
    if layout is None:
        return f"{model.family.name} has no projections of queries, keys and values"
    if layout.kind == "per_head" and model.info.n_kv_heads == model.info.n_heads:
        return None
    if layout.kind == "separate":
        return f"{model.family.name} has three projections ({', '.join(layout.modules)}): none is split"
    if layout.kind == "per_head":
        return f"{model.family.name} has one key and value for several queries: there are no thirds"
    return f"{model.family.name} packs all queries, then all keys, then all values: thirds are right there"


def measure(subject: Subject) -> Findings:
    """Value PCA of the last layer and cosines of head keys, from the right split and from the wrong one."""
    needs = Need("q_pre"), Need("k_pre"), Need("v")
    base = subject.read(*needs)
    sample = Sample.of(base, subject.rng(0))
    queries, keys, values = (base[need] for need in needs)
    wrong = reference_qkv(queries, keys, values)
    n_heads, d_head = values.shape[2:]
    null = random_directions(n_heads, d_head, subject.rng(1))
    cosines = head_cosines(keys), head_cosines(wrong.k)
    sides = [
        *_value_shares(values[-1], wrong.v[-1], sample, subject.seed),
        head_key_sides(cosines, (null, null), sample),
        *(_values_that_are(which, n_heads) for which in _NAMES),
    ]
    by_layer = layer_table(
        {"right": cosines[0].mean(axis=1), "wrong": cosines[1].mean(axis=1), "null": null.value},
        "Mean |cos| between the keys of the heads at one token, layer by layer.",
    )
    notes = _in_words(n_heads, "v"), _in_words(n_heads, "k")
    return compared("fused-qkv", sides, notes, {"by_layer": by_layer, "origin": origin_table(n_heads)})


def origin_table(n_heads: int) -> Table:
    """Where every vector of the wrong view comes from, in all three projections."""
    rows = [
        {"taken_for": which, "taken_for_head": head, "projection": origin.projection, "head": origin.head}
        for which in _NAMES
        for head, origin in enumerate(fused_origin(n_heads, which))
    ]
    units = {"taken_for": LABEL, "taken_for_head": "head", "projection": LABEL, "head": "head"}
    return Table.from_rows(rows, units, "What the heads of the wrong split are.")


def _value_shares(right: np.ndarray, wrong: np.ndarray, sample: Sample, seed: int) -> list[Sides]:
    sides = []
    for scaling in _SCALINGS:
        found = [variance_shares(v.reshape(len(v), -1), sample, scaling, seed) for v in (right, wrong)]
        for name, label in (("pc1_share", "PC1"), ("pc1_plus_pc2_share", "PC1+PC2")):
            quantity = f"{label} share of the last layer's values, {scaling}"
            sides.append(Sides(f"{name}_{scaling}", quantity, found[0][name], found[1][name]))
    return sides


def _values_that_are(which: Projection, n_heads: int) -> Sides:
    n_wrong = sum(origin.projection == which for origin in fused_origin(n_heads, "v"))
    meaning = f"How many of the heads that are called values hold {_NAMES[which]}."
    right, wrong = (
        Scalar.of(float(n), "heads", _COUNTED, _COUNTED, n=n_heads, n_unit="head", meaning=meaning)
        for n in (n_heads if which == "v" else 0, n_wrong)
    )
    return Sides(f"values_that_are_{_NAMES[which]}", f"'values' that are {_NAMES[which]}", right, wrong)


def _in_words(n_heads: int, which: Projection) -> str:
    origins = fused_origin(n_heads, which)
    counts = ", ".join(f"{sum(o.projection == p for o in origins)} {name}" for p, name in _NAMES.items())
    heads = f"{origins[0].head} to {origins[-1].head}"
    return f"What the wrong split calls {_NAMES[which]} are, of heads {heads}: {counts}."
