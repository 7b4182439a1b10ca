"""Sets of domains: planes that they share, shares of their subsets against plain PCA, permuted labels."""

import numpy as np
import pytest
from interp.probes.manifold.collapse import MIXED, Pool, Spectra, fifth_of, third_of
from interp.probes.manifold.cross_projection import cross_projection, plane_shares
from interp.probes.manifold.rarefaction import N_ORDERS, NOISE, SIZES, _balanced_orders, _spread, rarefaction_table


def pool_of(seed, n=150, per_fifth=8):
    rng = np.random.default_rng(seed)
    labels = np.array(["algebra", "botany", "code"])[np.arange(n) % 3]
    fifths, thirds = fifth_of(rng.uniform(0, 8, n)), third_of(rng.integers(5, 30, n))
    return Pool(labels, fifths, thirds, np.arange(n), rng.random(n), per_fifth)


def found_in(rows, pool, seed=0, n_permutations=49):
    return cross_projection(pool, Spectra(rows, "centred"), n_permutations, np.random.default_rng(seed))


def test_shares_equal_explicit_projections():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((40, 9)) * np.linspace(1, 4, 9)
    sets, first = np.arange(40).reshape(2, 20), np.arange(20) % 2 == 0
    found = plane_shares(rows @ rows.T, sets, first[None])
    for a, plane_of in enumerate(sets):
        x = rows[plane_of[first]]
        plane = np.linalg.svd(x - x.mean(axis=0))[2][:2]
        for b, of in enumerate(sets):
            y = rows[of[~first]] - rows[of[~first]].mean(axis=0)
            assert found[a, b] == pytest.approx(np.square(y @ plane.T).sum() / np.square(y).sum())


def test_domains_share_a_plane_only_if_they_have_one():
    rng, pool = np.random.default_rng(1), pool_of(1)
    rows = 0.3 * rng.standard_normal((150, 20))
    for i, domain in enumerate(pool.domains):
        mine = np.flatnonzero(pool.labels == domain)
        rows[np.ix_(mine, [2 * i, 2 * i + 1])] += 5 * rng.standard_normal((len(mine), 2))
    scalar = found_in(rows, pool).scalars["shared_plane"]
    assert scalar.value < 0.1 and scalar.p == 0.02
    rng, pool = np.random.default_rng(2), pool_of(2)
    rows = 0.3 * rng.standard_normal((150, 20))
    rows[:, :2] += 5 * rng.standard_normal((150, 2))
    rows += 10 * (pool.labels == "code")[:, None]  # where a domain lies is not along which axes it varies
    part = found_in(rows, pool)
    assert part.scalars["shared_plane"].value == pytest.approx(1, abs=0.02)
    assert part.tables["cross_projection"]["share"].min() > 0.9


def test_equal_rows_give_a_note():
    assert found_in(np.ones((150, 6)), pool_of(0)).notes == (
        "No cross-projection: in some set every row is the same point.",
    )


def test_sets_take_the_first_and_last_of_every_domain_and_fifth_by_priority():
    pool = pool_of(3, per_fifth=4)
    labels = pool.permuted(np.random.default_rng(0))
    sets = pool.sets(labels)
    assert pool.quota.tolist() == [4] * 5
    mixed = []
    for d, domain in enumerate(pool.domains):
        members = []
        for fifth in range(5):
            mine = [i for i in range(150) if labels[i] == domain and pool.fifths[i] == fifth]
            mine.sort(key=lambda i: pool.priority[i])
            members += mine[:4]
            # 4 = 1 + 1 + 2, the two from another domain in each fifth
            mixed += mine[-(2 if (d - fifth) % 3 == 0 else 1) :]
        assert sets[1 + d].tolist() == members
    assert sorted(sets[0].tolist()) == sorted(mixed)


def test_p_counts_the_exchanges_that_share_as_little():
    """Ten exchanges, drawn again with the same generator."""
    rng = np.random.default_rng(5)
    pool = pool_of(2)
    rows = rng.standard_normal((150, 6)) * [3, 2, 2, 1, 1, 1]
    part = found_in(rows, pool, n_permutations=10)
    scalar = part.scalars["shared_plane"]
    table = part.tables["cross_projection"]
    own = table["plane_of"] == table["of"]
    assert scalar.value == pytest.approx(table["share"][~own].mean() / table["share"][own].mean())
    # rows without any structure: about as many exchanges share less as share more
    p = [found_in(np.random.default_rng(s).standard_normal((150, 6)), pool_of(s), n_permutations=10) for s in range(8)]
    p = np.array([part.scalars["shared_plane"].p for part in p])
    assert np.isin(np.round(p * 11), np.arange(1, 12)).all() and np.ptp(p) > 0.4
    assert p * 11 == pytest.approx(np.round(p * 11))


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
