"""Orders whose beginnings are spread evenly, and shares of subsets against plain PCA."""

import numpy as np
import pytest
from interp.probes.manifold.collapse import MIXED, Pool, Spectra
from interp.probes.manifold.rarefaction import N_ORDERS, NOISE, SIZES, _balanced_orders, _spread, rarefaction_table

LABELS = np.repeat(["algebra", "botany"], [40, 80])
FIFTHS = np.concatenate([np.arange(40) % 5, np.arange(80) % 5])


def pool():
    rng = np.random.default_rng(0)
    return Pool(LABELS, FIFTHS, np.zeros(120, dtype=np.int64), np.arange(120), rng.random(120), 15)


def test_every_beginning_holds_its_share_of_every_cell():
    """On average of many orders; of one, within a row of it."""
    rng = np.random.default_rng(1)
    cells = np.repeat([0, 1, 2], [2, 6, 24])
    orders = np.array([_spread(np.arange(32) + 100, cells, rng) for _ in range(2000)]) - 100
    assert (np.sort(orders, axis=1) == np.arange(32)).all()
    for m in (4, 8, 16, 24):
        counts = np.array([(cells[orders[:, :m]] == cell).sum(axis=1) for cell in range(3)])
        expected = m * np.array([2, 6, 24]) / 32
        np.testing.assert_allclose(counts.mean(axis=1), expected, atol=0.12)
        assert np.abs(counts - expected[:, None]).max() < 3
    first = np.bincount(orders[:, 0], minlength=32) / 2000
    np.testing.assert_allclose(first, 1 / 32, atol=0.025)


def test_orders_hold_the_prompts_of_their_set_spread_over_fifths_and_domains():
    rng = np.random.default_rng(2)
    botany = _balanced_orders(pool(), "botany", rng)
    assert botany.shape == (N_ORDERS, 80) and (np.sort(botany, axis=1) == np.arange(40, 120)).all()
    mixed = _balanced_orders(pool(), MIXED, rng)
    assert mixed.shape == (N_ORDERS, 120) and (np.sort(mixed, axis=1) == np.arange(120)).all()
    assert len(np.unique(mixed, axis=0)) == N_ORDERS
    for order in mixed[:, :60]:
        cells = np.array(
            [[((LABELS[order] == d) & (FIFTHS[order] == f)).sum() for f in range(5)] for d in ("algebra", "botany")]
        )
        assert np.abs(cells - [[4] * 5, [8] * 5]).max() <= 1
    for order in botany[:, :40]:
        assert np.abs(np.bincount(FIFTHS[order]) - 8).max() <= 1


def test_rows_run_to_the_poorest_domain_and_hold_shares_of_subsets():
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((120, 6)) * [4, 2, 1, 1, 1, 0.5]
    table = rarefaction_table(pool(), Spectra(rows, "centred"), 8, np.random.default_rng(4))
    sizes = [n for n in SIZES if n <= 40]
    assert table["set"].tolist() == [s for s in (MIXED, "algebra", "botany", NOISE) for _ in sizes]
    assert table["n"].tolist() == sizes * 4
    whole = table.where((table["set"] == "algebra") & (table["n"] == 30))
    assert 0 < whole["low"][0] <= whole["share"][0] <= whole["high"][0] < 1
    # the first thirty of every order of algebra, by plain PCA
    rng = np.random.default_rng(4)
    shares = []
    _balanced_orders(pool(), MIXED, rng)
    for order in _balanced_orders(pool(), "algebra", rng)[:, :30]:
        values = np.linalg.eigvalsh(np.cov(rows[order].T))
        shares.append(values[-2:].sum() / values.sum())
    assert whole["share"][0] == pytest.approx(np.mean(shares))
    np.testing.assert_allclose([whole["low"][0], whole["high"][0]], np.quantile(shares, [0.025, 0.975]))
    noise = table.where(table["set"] == NOISE)["share"]
    assert (np.diff(noise) < 0).all(), "shares of noise fall as prompts are added"
