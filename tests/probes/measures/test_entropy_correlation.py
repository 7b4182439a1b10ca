"""Rank correlations of coordinates with entropy, layer by layer, against scipy."""

import numpy as np
import pytest
from interp.probes.manifold.quantities import QUANTITIES
from interp.probes.measures.cloud import Cloud
from interp.probes.measures.entropy_correlation import Order, WithinToken
from scipy import stats

from interp.need import Need
from interp.statistics.resampling import shuffles
from interp.testing import Shape, synthetic_capture

BEST = "best_layer_{prefix}_correlation"


def scalars(found, name="{prefix}_correlation"):
    """What is said at every layer."""
    return [QUANTITIES.scalar(name, found, layer) for layer in range(len(found.value))]


def cloud_of(n=30, n_scored=1, **columns):
    capture = synthetic_capture((Need("v"),), Shape(n_prompts=n, n_scored=n_scored), columns=columns)
    return Cloud.of(capture, Need("v"))


def test_the_profile_is_spearmans_correlation_with_its_sign_turned_up():
    rng = np.random.default_rng(0)
    stratum = np.arange(30) % 3
    cloud = cloud_of(stratum=stratum)
    entropy = cloud.rows["next_entropy_bits"]
    coordinates = np.stack(
        [-entropy + rng.standard_normal(30), entropy + rng.standard_normal(30), rng.standard_normal(30)]
    )
    order = Order(cloud, coordinates)
    (_, weights), found = order.resampled(99, 80, 5), scalars(order.estimates(99, 80, 5))
    orders = shuffles(cloud.units, 99, np.random.default_rng(5))
    rho = np.array([stats.spearmanr(x, entropy)[0] for x in coordinates])
    assert rho[0] < 0 and [s.value for s in found] == pytest.approx(np.abs(rho))
    permuted = np.array([[abs(stats.spearmanr(x, entropy[o])[0]) for x in coordinates] for o in orders])
    for layer, scalar in enumerate(found):
        reached = (permuted.max(axis=1) >= abs(rho[layer]) - 1e-12).sum()
        assert scalar.p == pytest.approx((1 + reached) / 100) and scalar.p_over == "layers"
        assert scalar.null.value == pytest.approx(permuted[:, layer].mean())
        np.testing.assert_allclose(scalar.null.band, np.quantile(permuted[:, layer], [0.025, 0.975]))
        turned = coordinates[layer] * np.sign(rho[layer])
        times = np.rint(weights * 8 / 10).astype(int)  # of the ten of a stratum eight are drawn
        drawn = [stats.spearmanr(np.repeat(turned, w), np.repeat(entropy, w))[0] for w in times]
        half = stats.norm.ppf(0.975) * np.arctanh(drawn).std(ddof=1)
        np.testing.assert_allclose(scalar.interval, np.tanh(np.arctanh(abs(rho[layer])) + np.array([-half, half])))
        assert (scalar.n, scalar.n_unit) == (30, "prompt") and not scalar.underpowered
    for s in range(3):
        np.testing.assert_allclose(weights[:, stratum == s].sum(axis=1), 10)
    pool = cloud_of(stratum=stratum, drawn=np.arange(30) < 20)  # nobody drew these within strata
    assert np.ptp(Order(pool, coordinates).resampled(19, 80, 5)[1][:, stratum == 0].sum(axis=1)) > 0


def test_coordinates_and_tokens_that_never_vary_or_recur_are_undefined():
    cloud = cloud_of()
    still, own = np.ones(30), np.asarray(cloud.rows["next_entropy_bits"], dtype=np.float64)
    nothing, everything = scalars(Order(cloud, np.stack([still, own])).estimates(19, 20, 0))
    assert np.isnan(nothing.value) and nothing.underpowered and nothing.p is None
    assert nothing.null_reason == nothing.interval_reason == "the coordinate or next_entropy_bits never varies"
    assert everything.value == pytest.approx(1) and everything.interval is None
    assert everything.interval_reason == "every resample gives the same value" and everything.p == 1 / 20
    within = WithinToken.of(cloud_of(token=np.arange(30)), np.zeros((2, 30)))
    for scalar in (*scalars(within.estimates(99, 40, 0)), *scalars(within.best_layer(99, 0))):
        assert np.isnan(scalar.value) and scalar.underpowered and "share their last token" in scalar.null_reason


def test_within_positions_only_the_order_among_rows_of_one_position_is_left():
    cloud = cloud_of(n=8, n_scored=3)
    rng = np.random.default_rng(1)
    coordinates = rng.standard_normal((2, 24))
    position = cloud.rows["position"]
    entropy = np.asarray(cloud.rows["next_entropy_bits"])
    within = Order.within_position(cloud, coordinates)
    residual, ranked = within.coordinates, within.cloud
    for place in np.unique(position):
        mine = position == place
        for layer in range(2):
            np.testing.assert_allclose(residual[layer, mine], stats.rankdata(coordinates[layer, mine]) - 4.5)
        np.testing.assert_allclose(ranked.rows["next_entropy_bits"][mine], stats.rankdata(entropy[mine]) - 4.5)
    np.testing.assert_array_equal(ranked.points, cloud.points)
    assert ranked.unit == "sequence" and ranked.rows.units["next_entropy_bits"] == "rank"


def test_within_the_token_ranks_of_recurring_rows_are_exchanged_within_it():
    rng = np.random.default_rng(2)
    token = np.r_[rng.integers(0, 5, 28), 90, 91]
    cloud = cloud_of(token=token, next_entropy_bits=rng.uniform(0, 8, 30) + 10 * (token % 2))
    coordinates = rng.standard_normal((2, 30)) + 10 * (token % 2)
    within = WithinToken.of(cloud, coordinates)
    (first, _) = scalars(within.estimates(99, 40, 0))
    mine, entropy = np.isin(token, np.arange(5)), cloud.rows["next_entropy_bits"]
    ranks = [np.zeros(30), np.zeros(30)]
    for t in range(5):
        for into, values in zip(ranks, (coordinates[0], entropy), strict=True):
            into[token == t] = stats.rankdata(values[token == t]) - ((token == t).sum() + 1) / 2
    assert first.value == pytest.approx(abs(stats.spearmanr(ranks[0][mine], ranks[1][mine])[0]))
    assert first.n == 28 and first.underpowered and first.enough == -(-100 * 30 // 28)
    assert first.null.name == "entropies permuted within tokens"
    permuted, _ = within.resampled(99, 1, 0)
    for t in range(5):
        among = np.sort(permuted[:, token[mine] == t], axis=1)
        np.testing.assert_allclose(among, np.broadcast_to(among[0], among.shape), atol=1e-12)
    whole = scalars(Order(cloud, coordinates).estimates(99, 40, 0))[0]
    assert whole.p == 0.01 and first.p > 0.05  # what the two share is the token's


def test_within_the_token_most_templates_may_have_a_last_token_of_their_own():
    """A variable that is drawn for each template then follows nothing, within the few tokens that templates share."""
    template = np.repeat(np.arange(60), 3)
    rng, token = np.random.default_rng(0), np.where(template < 16, template % 8, template)
    coordinates, n_found = rng.standard_normal((1, 60))[:, template], np.zeros(2, dtype=int)
    for _ in range(60):
        drawn = rng.standard_normal(60)[template] + 0.1 * rng.standard_normal(180)
        cloud = cloud_of(n=180, cluster=template, token=token, next_entropy_bits=drawn - drawn.min())
        within = WithinToken.of(cloud, coordinates)
        n_found += [found.p[0] <= 0.05 for found in (within.estimates(39, 20, 0), within.best_layer(39, 0))]
    assert (n_found <= 8).all()  # of 60 at most 8 in 99 of 100 such tests


def test_the_best_layer_is_chosen_on_other_prompts_than_it_is_judged_on():
    rng = np.random.default_rng(3)
    cloud = cloud_of(n=200)
    entropy = np.asarray(cloud.sought)
    coordinates = rng.standard_normal((6, 200))
    noise = scalars(Order(cloud, coordinates).best_layer(99, 0), BEST)[0]
    assert noise.p > 0.05 and abs(noise.null.value) < 0.01  # the best of six on the same prompts would lie far above 0
    coordinates[4] -= entropy
    found = scalars(Order(cloud, coordinates).best_layer(99, 0), BEST)[0]
    assert found.p == 0.01 and "Layer 4 in 100%" in found.meaning
    assert found.value == pytest.approx(abs(stats.spearmanr(coordinates[4], entropy)[0]), abs=0.03)
    assert found.interval[0] < found.value < found.interval[1]
