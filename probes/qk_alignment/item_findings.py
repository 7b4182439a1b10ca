"""What attention over the context says of the posterior, and of the kinds of token it goes to, in a wind tunnel."""

from collections.abc import Iterator

import numpy as np

from interp.capture import Capture
from interp.findings import Null, Scalar
from interp.need import Need
from interp.statistics.estimate import band, mean_and_band, null_from_permutations
from interp.statistics.ratio import ratio
from interp.statistics.units import Units, mean_of_units
from interp.table import Table, number_columns

from ..measures.profiles import Part, head_columns
from .item_null import ItemTest, compare_with_relabelled
from .items import ItemRows, attention_over_items, comparable_rows, outcome_positions

WHOLE_ROWS = Need("pattern_log_weight")
_RELABELLED = "items relabelled within each row, the best head each time"
_CAPTION = (
    "Attention over the items in the context against the exact posterior, in rows whose possible outcomes all stand "
    "there: KL(posterior || attention), and the weight on possible outcomes."
)


def item_findings(capture: Capture, n_draws: tuple[int, int], rng: np.random.Generator) -> Part:
    """The KL and feasible mass by layer and head; `n_draws` are permutations and bootstrap resamples."""
    stands = outcomes_in_context(capture)
    if isinstance(stands, str):
        return Part(notes=(f"posterior_kl and feasible_mass are undefined: {stands}.",))
    posterior = np.asarray(capture.posterior)
    if len(comparable_rows(stands, posterior)) == 0:
        why = "in no row do all outcomes that are still possible stand in the context beside another"
        return Part(notes=(f"posterior_kl and feasible_mass are undefined: {why}.",))
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
        return "the sequences are too long for whole attention rows to be kept"
    if np.isin(capture.rows["token"], outcomes).any():
        return "questions and outcomes share one vocabulary, so a token does not show which it is"
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


def _scalars(items: ItemRows, test: ItemTest, units: Units) -> dict[str, Scalar]:
    layer, head = test.best
    kl, mass = (x[:, layer, head] for x in (test.kl_bits, test.feasible_mass))
    uniform = units.means(items.uniform_mass[None])
    low, high = (float(x) for x in band(units.resampled(uniform))[:, 0])
    method, none = f"percentile bootstrap over {units.drawn}s, the head held fixed", "no row can be compared"
    return {
        "posterior_kl": Scalar.of(
            float(mean_of_units(kl)), "bits", units.mean_interval(kl, method, none),
            null_from_permutations(_RELABELLED, test.relabelled_kl.min(axis=(1, 2))),
            p=test.p[layer, head], p_over="layers and heads",
            meaning="KL from the exact posterior to attention over the items in the context, in the head where it is "
            f"smallest (layer {layer}, head {head})", **units.counted,
        ),
        "feasible_mass": Scalar.of(
            float(mean_of_units(mass)), "fraction", units.mean_interval(mass, method, none),
            Null("a uniform row", float(uniform.mean()), (low, high)),
            meaning=f"attention weight of layer {layer}, head {head} on outcomes that are still possible",
            **units.counted,
        ),
    }  # fmt: skip


def _table(items: ItemRows, test: ItemTest, units: Units) -> Table:
    n_layers, n_heads = test.p.shape
    columns = head_columns(n_layers, n_heads)
    measured = (
        ("posterior_kl", "bits", test.kl_bits, test.relabelled_kl, items.uniform_kl_bits),
        ("feasible_mass", "fraction", test.feasible_mass, test.relabelled_mass, items.uniform_mass),
    )
    unit_of = {"layer": "layer", "head": "head"}
    for name, unit, values, relabelled, uniform in measured:
        null = mean_and_band(relabelled.reshape(len(relabelled), -1))  # [mean and bounds, layer · head]
        columns |= units.mean_columns({name: values.reshape(units.n, -1)})
        columns |= number_columns(name, columns[name], null=null)
        columns[f"{name}_uniform"] = np.full(n_layers * n_heads, units.means(uniform[None]).mean())
        unit_of |= dict.fromkeys((name, f"{name}_uniform"), unit)
    columns["posterior_kl_p"] = test.p.ravel()
    return Table(columns, unit_of, _CAPTION)
