"""Outcomes in the context: how attention over them compares with the exact posterior.

An outcome (a token the posterior is about) is an item of a row where it stands at a position the row can see; its
weight is the sum of the attention over those positions. Only rows are compared in which every possible outcome is an
item and at least two outcomes are, as in recalling a pair (in elimination, what is possible has *not* been shown).
With the posterior p and the weights a of the items,

    feasible mass   Σ a over items with p > 0, out of the whole row
    KL              KL(p || a / Σ a), bits

The null relabels the items: within each row the weights move on by some number of items, one random fraction per
sequence. Source: Paper III (arXiv 2512.23752), section 2 ("attention as posterior"), which gives no formula.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.capture import Capture
from interp.findings import Scalar
from interp.information import entropy_bits
from interp.need import Need
from interp.statistics.estimates import Estimates
from interp.statistics.intervals import maximum_statistic_p
from interp.statistics.ratio import ratio
from interp.statistics.units import Units, mean_of_units
from interp.table import Table

from ..measures.profiles import Part, head_columns
from .quantities import QUANTITIES

WHOLE_ROWS = Need("pattern_log_weight")
STATISTICS = ("posterior_kl", "feasible_mass")
"""What is measured, in the order of the axis `statistic`."""

_CAPTION = (
    "Attention over the items in the context compared with the exact posterior, in rows whose possible outcomes all "
    "occur in the context: KL(posterior || attention), and the weight on possible outcomes."
)


def item_findings(capture: Capture, n_draws: tuple[int, int], rng: np.random.Generator) -> Part:
    """The KL and feasible mass by layer and head; `n_draws` are permutations and bootstrap resamples."""
    stands, posterior = outcomes_in_context(capture), np.asarray(capture.posterior)
    if not isinstance(stands, str) and len(comparable_rows(stands, posterior)) == 0:
        stands = "in no row are all possible outcomes, and another one, in the context"
    if isinstance(stands, str):
        return Part(notes=(f"posterior_kl and feasible_mass are undefined: {stands}.",))
    items = attention_over_items(capture[WHOLE_ROWS], stands, posterior)
    units = Units.of(capture.rows.where(items.row), capture.prompts.unit, n_draws[1], rng)
    test = compare_with_relabelled(items, units, n_draws[0], rng)
    note = f"posterior_kl is over the {len(items.row)} of {len(stands)} rows whose hypotheses are items in the context."
    return Part(_scalars(items, test, units), {"items": _table(items, test, units)}, (note,))


def outcomes_in_context(capture: Capture) -> Bool[np.ndarray, "row key outcome"] | str:
    """Where each outcome stands among the keys that a row sees, or why that is unknown."""
    outcomes, log_weight = capture.prompts.outcome_ids, capture[WHOLE_ROWS]
    if not capture.prompts.is_tunnel or outcomes is None or capture.posterior is None:
        return "only a wind tunnel knows its hypotheses and their exact posterior"
    if log_weight.shape[-1] == 0:
        return "the sequences are too long to keep whole attention rows"
    if np.isin(capture.rows["token"], outcomes).any():
        return "questions and outcomes share one vocabulary, so a token can be either"
    tokens = np.full((capture.rows.n_rows, log_weight.shape[-1]), -1, dtype=np.int64)
    for row, prompt in enumerate(capture.rows["prompt"]):
        ids = capture.prompts.prompts[prompt].token_ids or ()
        tokens[row, : len(ids)] = ids
    return (tokens[..., None] == outcomes) & _seen(log_weight)[..., None]


def _seen(log_weight: Float[np.ndarray, "layer row head key"]) -> Bool[np.ndarray, "row key"]:
    """Which keys any head of the first layer sees."""
    return ~np.isnan(log_weight[0, :, 0])


def class_masses(capture: Capture) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Attention on earlier outcome tokens and on earlier other tokens, and a uniform row's share of each.

    Name, `[layer, row, head]` twice; nothing where tokens have no classes.
    """
    stands = outcomes_in_context(capture)
    if isinstance(stands, str):
        return
    seen, is_value = _seen(capture[WHOLE_ROWS]), stands.any(axis=2)
    key = np.arange(seen.shape[1])
    earlier, not_first = seen & (key < capture.rows["position"][:, None]), key > 0
    weights = np.exp2(np.nan_to_num(capture[WHOLE_ROWS], nan=-np.inf))
    rest = ratio(weights * not_first, (weights * not_first).sum(axis=-1, keepdims=True))  # NaN over the first key alone
    for name, mine in (("mass_values", earlier & is_value), ("mass_keys", earlier & ~is_value)):
        for end, rows, kept in (("", weights, seen), ("_no_first", rest, seen & not_first)):
            share = ratio((mine & kept).sum(axis=1), kept.sum(axis=1))
            mass = np.einsum("lrhk,rk->lrh", rows, mine & kept)
            yield name + end, mass, np.broadcast_to(share[None, :, None], mass.shape)


@dataclass(frozen=True)
class ItemRows:
    """Attention over the items of comparable rows, for every shift of the item labels.

    Shift 0 is what was measured; a row with m items has m shifts and the rest of its entries are NaN. `uniform` is the
    KL to attention spread evenly over the items, and the weight that a uniform row would give the possible outcomes.
    """

    row: Int[np.ndarray, " comparable"]
    measured: Float[np.ndarray, "statistic comparable shift layer head"]
    n_items: Int[np.ndarray, " comparable"]
    uniform: Float[np.ndarray, "statistic comparable"]


def comparable_rows(
    stands: Bool[np.ndarray, "row key outcome"], posterior: Float[np.ndarray, "row outcome"]
) -> Int[np.ndarray, " comparable"]:
    """Rows whose possible outcomes all stand in the context, beside at least one other or one another."""
    present = stands.any(axis=1)
    return np.flatnonzero((present | (posterior == 0)).all(axis=1) & (present.sum(axis=1) > 1))


def attention_over_items(
    log_weight: Float[np.ndarray, "layer row head key"],
    stands: Bool[np.ndarray, "row key outcome"],
    posterior: Float[np.ndarray, "row outcome"],
) -> ItemRows:
    """Compare attention (log2 weights, NaN at unseen keys) with the posterior, in the comparable rows."""
    row = comparable_rows(stands, posterior)
    where, p_by_outcome = stands[row], np.asarray(posterior[row], dtype=np.float64)
    present = where.any(axis=1)
    # items first, in the order of the outcomes, so that shifts run within each row's own items
    order = np.argsort(~present, axis=1, kind="stable")
    p, n_items = np.take_along_axis(p_by_outcome, order, axis=1), present.sum(axis=1)
    n_shifts = int(n_items.max(initial=1))
    measured = np.full((len(STATISTICS), len(row), n_shifts, len(log_weight), log_weight.shape[2]), np.nan)
    for layer, log_of_layer in enumerate(log_weight):
        # in float64, where even 2⁻¹⁰⁰⁰ is not yet zero
        weights = np.exp2(np.nan_to_num(np.asarray(log_of_layer[row], dtype=np.float64), nan=-np.inf))
        item = np.take_along_axis(weights @ where.astype(np.float64), order[:, None, :], axis=2)
        for shift in range(n_shifts):
            mine = n_items > shift
            measured[:, mine, shift, layer] = _compare(_turned(p[mine], n_items[mine], shift), item[mine])
    n_possible = np.einsum("rko,ro->r", where, p_by_outcome > 0, dtype=np.float64)
    uniform = np.array([np.log2(n_items) - entropy_bits(p), n_possible / _seen(log_weight)[row].sum(axis=1)])
    return ItemRows(row, measured, n_items, uniform)


def _turned(p: np.ndarray, n_items: np.ndarray, shift: int) -> np.ndarray:
    """The posterior with its first `n_items` entries moved on by `shift`, round the items."""
    place = np.arange(p.shape[1])[None]
    source = np.where(place < n_items[:, None], (place + shift) % n_items[:, None], place)
    return np.take_along_axis(p, source, axis=1)


def _compare(p: np.ndarray, item: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """KL(p || item weights renormalised) and the weight on what is possible, `[row, head]`."""
    possible = np.broadcast_to((p > 0)[:, None], item.shape)
    with np.errstate(divide="ignore"):
        log_q = np.log2(item, out=np.zeros_like(item), where=possible) - np.log2(item.sum(axis=2, keepdims=True))
    cross = -np.sum(p[:, None] * log_q, axis=2, where=possible)
    return np.maximum(0.0, cross - entropy_bits(p)[:, None]), np.sum(item, axis=2, where=possible)


@dataclass(frozen=True)
class ItemTest:
    """The statistics per sequence, layer and head, and their means under every relabelling.

    `p` is for a KL as small in any head (corrected over layers and heads).
    """

    by_unit: Float[np.ndarray, "unit statistic layer head"]
    relabelled: Float[np.ndarray, "permutation statistic layer head"]
    p: Float[np.ndarray, "layer head"]

    @property
    def best(self) -> tuple[int, int]:
        """Layer and head of the smallest mean KL."""
        mean = mean_of_units(self.by_unit)[0]
        layer, head = np.unravel_index(int(np.nanargmin(mean)), mean.shape)
        return int(layer), int(head)


def compare_with_relabelled(items: ItemRows, units: Units, n: int, rng: np.random.Generator) -> ItemTest:
    """`n` relabellings; all rows of a sequence move on by the same fraction of their items."""
    moved = np.floor(rng.random((n, units.n))[:, units.code] * items.n_items).astype(np.int64)

    def by_unit(shift: np.ndarray | int) -> Float[np.ndarray, "unit statistic layer head"]:
        return units.means(items.measured[:, np.arange(len(items.row)), shift])

    own, relabelled = by_unit(0), np.array([mean_of_units(by_unit(shift)) for shift in moved])
    observed = -mean_of_units(own)[0]
    p = maximum_statistic_p(observed.ravel(), -relabelled[:, 0].reshape(n, -1)).reshape(observed.shape)
    return ItemTest(own, relabelled, p)


def _scalars(items: ItemRows, test: ItemTest, units: Units) -> dict[str, Scalar]:
    layer, head = test.best
    found = units.estimates(test.by_unit[..., layer, head], layer=str(layer), head=str(head))
    uniform = units.estimates(units.means(items.uniform)).at([1])
    assert uniform.interval is not None
    smallest = test.relabelled[:, 0].min(axis=(1, 2))[:, None]
    return QUANTITIES.scalars({
        "posterior_kl": found.at([0]).permuted(smallest, test.p[[layer], head]),
        "feasible_mass": found.at([1]).against(np.vstack([uniform.value, uniform.interval])),
    })  # fmt: skip


def _table(items: ItemRows, test: ItemTest, units: Units) -> Table:
    columns: dict[str, np.ndarray | Estimates] = {**head_columns(*test.p.shape)}
    uniform = units.means(items.uniform).mean(axis=0)
    for i, name in enumerate(STATISTICS):
        relabelled = test.relabelled[:, i].reshape(len(test.relabelled), -1)
        p = test.p.ravel() if name == "posterior_kl" else None
        columns[name] = units.estimates(test.by_unit[:, i]).permuted(relabelled, p, asks="nothing")
        columns[f"{name}_uniform"] = uniform[[i]]
    return QUANTITIES.table(columns, _CAPTION)
