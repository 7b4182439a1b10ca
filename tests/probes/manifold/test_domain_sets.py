"""Sets of domains: planes that they share, permuted labels."""

import numpy as np
import pytest
from interp.probes.manifold.collapse import Pool, Spectra, fifth_of, third_of
from interp.probes.manifold.domains import cross_projection, plane_shares


def pool_of(seed, per_fifth=8):
    n = 150
    rng = np.random.default_rng(seed)
    labels = np.array(["algebra", "botany", "code"])[np.arange(n) % 3]
    fifths, thirds = fifth_of(rng.uniform(0, 8, n)), third_of(rng.integers(5, 30, n))
    return Pool(labels, fifths, thirds, np.arange(n), rng.random(n), per_fifth)


def found_in(rows, pool, n_permutations=49):
    return cross_projection(pool, Spectra(rows, "centred"), n_permutations, np.random.default_rng(0))


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
