"""What attention over the context says of the posterior, and of the kinds of token it goes to, in a wind tunnel."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from interp.capture import Capture
from interp.findings import Scalar
from interp.need import Need
from interp.statistics.estimates import Estimates
from interp.statistics.intervals import maximum_statistic_p
from interp.statistics.ratio import ratio
from interp.statistics.units import Units, mean_of_units
from interp.table import Table

from ..measures.profiles import Part, head_columns
from .items import ItemRows, attention_over_items, comparable_rows, outcome_positions
from .quantities import QUANTITIES

WHOLE_ROWS = Need("pattern_log_weight")
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


def outcomes_in_context(capture: Capture) -> np.ndarray | str:
    """Where each outcome stands in every row's context, `[row, key, outcome]`, or why that cannot be said."""
    outcomes = capture.prompts.outcome_ids
    if not capture.prompts.is_tunnel or outcomes is None or capture.posterior is None:
        return "only a wind tunnel knows its hypotheses and their exact posterior"
    if capture[WHOLE_ROWS].shape[-1] == 0:
        return "the sequences are too long to keep whole attention rows"
    if np.isin(capture.rows["token"], outcomes).any():
        return "questions and outcomes share one vocabulary, so a token can be either"
    tokens, seen = _context(capture)
    return outcome_positions(tokens, seen, outcomes)


def class_masses(capture: Capture) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Attention on earlier outcome tokens and on earlier other tokens, and a uniform row's share of each.

    Name, `[layer, row, head]` twice; nothing where tokens have no classes.
    """
    stands = outcomes_in_context(capture)
    if isinstance(stands, str):
        return
    _, seen = _context(capture)
    position = capture.rows["position"]
    earlier = seen & (np.arange(seen.shape[1]) < position[:, None])
    is_value = stands.any(axis=2)
    weights = np.exp2(np.nan_to_num(capture[WHOLE_ROWS], nan=-np.inf))
    not_first = np.arange(seen.shape[1]) > 0
    rest = ratio(weights * not_first, (weights * not_first).sum(axis=-1, keepdims=True))  # NaN over the first key alone
    for name, mine in (("mass_values", earlier & is_value), ("mass_keys", earlier & ~is_value)):
        for end, rows, kept in (("", weights, seen), ("_no_first", rest, seen & not_first)):
            share = ratio((mine & kept).sum(axis=1), kept.sum(axis=1))
            mass = np.einsum("lrhk,rk->lrh", rows, mine & kept)
            yield name + end, mass, np.broadcast_to(share[None, :, None], mass.shape)


def _context(capture: Capture) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of every row's sequence, and which of them any head of the first layer sees."""
    log_weight = capture[WHOLE_ROWS]
    tokens = np.full((capture.rows.n_rows, log_weight.shape[-1]), -1, dtype=np.int64)
    for row, prompt in enumerate(capture.rows["prompt"]):
        ids = capture.prompts.prompts[prompt].token_ids or ()
        tokens[row, : len(ids)] = ids
    return tokens, ~np.isnan(log_weight[0, :, 0])


@dataclass(frozen=True)
class ItemTest:
    """KL and feasible mass per sequence, layer and head, and their means under every relabelling.

    `p` is for a KL as small in any head (corrected over layers and heads).
    """

    kl_bits: Float[np.ndarray, "unit layer head"]
    feasible_mass: Float[np.ndarray, "unit layer head"]
    relabelled_kl: Float[np.ndarray, "permutation layer head"]
    relabelled_mass: Float[np.ndarray, "permutation layer head"]
    p: Float[np.ndarray, "layer head"]

    @property
    def best(self) -> tuple[int, int]:
        """Layer and head of the smallest mean KL."""
        mean = mean_of_units(self.kl_bits)
        layer, head = np.unravel_index(int(np.nanargmin(mean)), mean.shape)
        return int(layer), int(head)


def compare_with_relabelled(items: ItemRows, units: Units, n: int, rng: np.random.Generator) -> ItemTest:
    """`n` relabellings; all rows of a sequence move on by the same fraction of their items."""
    kl, mass = (_unit_means(x[:, 0], units) for x in (items.kl_bits, items.feasible_mass))
    moved = np.floor(rng.random((n, units.n))[:, units.code] * items.n_items).astype(np.int64)
    row = np.arange(len(items.row))
    relabelled_kl, relabelled_mass = (
        np.array([mean_of_units(_unit_means(x[row, shift], units)) for shift in moved])
        for x in (items.kl_bits, items.feasible_mass)
    )
    observed = -mean_of_units(kl)
    p = maximum_statistic_p(observed.ravel(), -relabelled_kl.reshape(n, -1)).reshape(observed.shape)
    return ItemTest(kl, mass, relabelled_kl, relabelled_mass, p)


def _unit_means(rows: Float[np.ndarray, "row layer head"], units: Units) -> Float[np.ndarray, "unit layer head"]:
    return units.means(np.moveaxis(rows, 1, 0))


def _scalars(items: ItemRows, test: ItemTest, units: Units) -> dict[str, Scalar]:
    layer, head = test.best
    words = {"layer": str(layer), "head": str(head)}
    kl, mass = (units.estimates(x[:, layer, head], **words) for x in (test.kl_bits, test.feasible_mass))
    uniform = units.estimates(units.means(items.uniform_mass[None]))
    assert uniform.interval is not None
    smallest = test.relabelled_kl.min(axis=(1, 2))[:, None]
    return QUANTITIES.scalars({
        "posterior_kl": kl.exchanged(smallest, test.p[[layer], head]),
        "feasible_mass": mass.against(np.vstack([uniform.value, uniform.interval])),
    })  # fmt: skip


def _table(items: ItemRows, test: ItemTest, units: Units) -> Table:
    n_layers, n_heads = test.p.shape
    measured = {
        "posterior_kl": (test.kl_bits, test.relabelled_kl, items.uniform_kl_bits),
        "feasible_mass": (test.feasible_mass, test.relabelled_mass, items.uniform_mass),
    }
    columns: dict[str, np.ndarray | Estimates] = {**head_columns(n_layers, n_heads)}
    for name, (values, relabelled, uniform) in measured.items():
        found = units.estimates(values).exchanged(relabelled.reshape(len(relabelled), -1), asks="nothing")
        columns[name] = replace(found, p=test.p.ravel() if name == "posterior_kl" else None)
        columns[f"{name}_uniform"] = np.full(n_layers * n_heads, units.means(uniform[None]).mean())
    return QUANTITIES.table(columns, _CAPTION)
