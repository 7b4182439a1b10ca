"""Components: planted writers and trends, chance, and the shipped tunnel by other formulas in float64."""

from dataclasses import replace

import numpy as np
import pytest
from interp.probes.components.probe import DECODED, Components, depth_trend, posterior_divergence
from interp.probes.components.updates import final_shares
from scipy import stats

import interp
from interp.information import kl_bits
from interp.need import Need
from interp.statistics.resampling import shuffles
from interp.testing import Shape, synthetic_capture

FAST = {"n_permutations": 39, "n_bootstrap": 20}
SHAPE = Shape(n_prompts=40, n_layers=4, d_model=12)


def analyse(planted=None, shape=SHAPE, seed=0, **parameters):
    probe = Components(**{**FAST, **parameters})
    return probe.analyse(synthetic_capture(probe.needs, shape, planted=planted, seed=seed), {})


def stream(attention, feed_forward, embedding):
    """The residual stream that these updates add up to, and the updates, as planted sites."""
    steps = np.concatenate([embedding[None], attention + feed_forward])
    return {"resid": np.cumsum(steps, axis=0), "attn_out": attention, "mlp_out": feed_forward}


@pytest.mark.parametrize("loud", [None, 0, 7])
def test_a_share_that_one_loud_dimension_makes_does_not_stand_out(loud):
    rng = np.random.default_rng(2)
    attention, feed_forward = rng.standard_normal((2, 8, 40, 12))
    attention = 0.5 * attention + (1 if loud is None else 2 * (np.arange(12) == loud))
    planted = stream(attention, feed_forward, np.zeros((40, 12)))
    found = analyse(planted, replace(SHAPE, n_layers=8), n_permutations=500)
    assert found["attention_share"].p < 0.05
    assert found.standing("attention_share") == ("above" if loud is None else "within")
    if loud is not None:  # the twin is the share among the other dimensions, by its definition
        final, written = (np.delete(x, loud, axis=-1) for x in (planted["resid"][-1], attention.sum(axis=0)))
        share = ((final * written).sum(axis=1) / (final**2).sum(axis=1)).mean()
        assert found["attention_share_quiet"].value == pytest.approx(share, rel=1e-5)
        assert f"({loud})" in found["attention_share_quiet"].meaning


def test_flipped_shares_equal_the_share_of_the_flipped_sum():
    rng = np.random.default_rng(4)
    planted = stream(*rng.standard_normal((2, 3, 300, 5)), rng.standard_normal((300, 5)))
    signs = rng.choice([-1.0, 1.0], size=(4, 7))
    found = final_shares(planted["resid"], planted["attn_out"], planted["mlp_out"], signs)
    parts = np.concatenate([planted["resid"][:1], planted["attn_out"], planted["mlp_out"]])
    for draw, sign in enumerate(signs):
        flipped = parts * sign[:, None, None]
        final = flipped.sum(axis=0)
        expected = [np.mean([p @ f / (f @ f) for p, f in zip(part, final, strict=True)]) for part in flipped]
        np.testing.assert_allclose(found.flipped[draw], expected, rtol=1e-9)
    assert found.missing < 1e-12


def test_what_the_parts_leave_out_is_told():
    rng = np.random.default_rng(5)
    planted = stream(*rng.standard_normal((2, 4, 40, 12)), rng.standard_normal((40, 12)))
    planted["resid"][-1] *= 2
    signs = np.ones((1, 9))
    assert final_shares(planted["resid"], planted["attn_out"], planted["mlp_out"], signs).missing == pytest.approx(0.5)


def test_a_planted_fall_is_a_trend_of_minus_one():
    rng = np.random.default_rng(6)
    fall = np.sort(rng.uniform(0, 5, (7, 40)), axis=0)[::-1].copy()
    fall[-1] = 0
    shape = replace(SHAPE, n_layers=6)
    found = analyse({"lens_kl": fall, "lens_entropy": fall}, shape)
    assert found["lens_kl_trend"].value == pytest.approx(-1)
    assert found["lens_kl_trend"].p is None and "one draw of a depth profile" in found["lens_kl_trend"].null_reason
    assert found["lens_kl_trend"].reference == 0
    assert found["lens_entropy_trend"].value == pytest.approx(-1)


def test_the_last_depth_counts_for_entropy_and_not_for_the_prediction_itself():
    curves = np.tile(np.array([3.0, 2.0, 1.0, 2.5, 0.0])[:, None], (1, 40))
    found = analyse({"lens_kl": curves, "lens_entropy": curves})
    assert found["lens_kl_trend"].value == pytest.approx(stats.spearmanr(range(4), curves[:4, 0]).statistic)
    assert found["lens_entropy_trend"].value == pytest.approx(stats.spearmanr(range(5), curves[:, 0]).statistic)


def test_the_trend_at_evenly_spaced_depths_leaves_out_those_between():
    at = [0, 2, 3, 5, 6, 8, 9, 11]  # of twelve depths; the thirteenth is the prediction itself
    curve = np.full(13, 9.0)
    curve[at] = np.arange(8)[::-1]
    deep = analyse({"lens_kl": np.tile(curve[:, None], (1, 40))}, replace(SHAPE, n_layers=12))
    assert deep["lens_kl_trend_spaced"].value == pytest.approx(-1) and deep["lens_kl_trend"].value > -0.9
    assert deep.controls["lens_kl_trend"][0].scalar == "lens_kl_trend_spaced"
    assert "4 depths" in analyse()["lens_kl_trend_spaced"].null_reason


def test_trends_over_two_depths_are_undefined_and_of_flat_curves_zero():
    two = analyse(shape=replace(SHAPE, n_layers=2))["lens_kl_trend"]
    assert np.isnan(two.value) and "2 depths" in two.null_reason
    assert (depth_trend(np.ones((5, 6))) == 0).all()


def test_a_share_whose_p_cannot_reach_the_level_says_so():
    deep, shallow = (analyse(shape=replace(SHAPE, n_layers=n)) for n in (3, 2))
    assert "posterior_kl" not in deep.scalars, "these prompts have no posterior"
    assert not deep["attention_share"].underpowered and shallow["attention_share"].underpowered
    assert any("too few patterns of sign for a p below 0.062" in note for note in shallow.notes)


def with_posterior(seed, n=40):
    """Sequences of two scored positions over three outcomes, and what the depths decode: noise."""
    rng = np.random.default_rng(seed)
    shape = Shape(n_prompts=n, n_scored=2, n_layers=2, d_model=6, vocab_size=5)
    q = rng.dirichlet(np.ones(5), size=(3, 2 * n))
    capture = synthetic_capture(Components().needs, shape, planted={"lens_log_prob": np.log2(q)}, seed=seed)
    posterior = rng.dirichlet(np.ones(3), size=2 * n)
    posterior[0] = [1, 0, 0]
    prompts = replace(capture.prompts, posterior=posterior, outcome_ids=np.array([1, 3, 4]))
    return replace(capture, posterior=posterior, prompts=prompts), posterior, q


def test_divergence_from_the_posterior_equals_its_definition():
    capture, posterior, q = with_posterior(0)
    found, _ = posterior_divergence(capture, 30, 0)
    full = np.zeros((len(posterior), 5))
    full[:, [1, 3, 4]] = posterior
    np.testing.assert_allclose(found, [kl_bits(full, depth) for depth in q], rtol=1e-9)


@pytest.mark.parametrize("cluster", [np.arange(12) // 3, np.arange(12) % 4])
def test_posteriors_of_near_copies_are_exchanged_together(cluster):
    """Copies of a sequence say nothing more: the null is that of one of each."""
    first = np.unique(cluster, return_index=True)[1]
    rng = np.random.default_rng(3)
    log_q, posterior = np.log2(rng.dirichlet(np.ones(8), (3, 4))), rng.dirichlet(np.ones(8), 4)

    def permuted(of, known):
        planted = {"lens_log_prob": log_q[:, of]}
        columns = {"cluster": of} if known else {}
        need = (DECODED,)
        shape = Shape(len(of), n_layers=2, vocab_size=8)
        capture = synthetic_capture(need, shape, planted=planted, columns=columns, posterior=posterior[of])
        return posterior_divergence(capture, 200, 0)[1]

    alone = permuted(cluster[first], known=False)
    np.testing.assert_allclose(permuted(cluster, known=True), alone, atol=1e-6)
    assert permuted(cluster, known=False)[:, 0].std() < 0.8 * alone[:, 0].std()


def test_exchanged_posteriors_keep_their_positions():
    capture, _posterior, q = with_posterior(1, n=2)
    found, permuted = posterior_divergence(capture, 200, 0)
    swapped = np.zeros((4, 5))
    swapped[:, [1, 3, 4]] = capture.posterior[[2, 3, 0, 1]]
    expected = {round(float(kl_bits(swapped, q[0]).mean()), 9), round(float(found[0].mean()), 9)}
    assert {round(float(x), 9) for x in permuted[:, 0]} == expected


def test_a_posterior_that_is_received_over_again_keeps_its_own_entropy():
    cluster, rng = np.repeat(np.arange(7), [6, 1, 1, 1, 1, 1, 1]), np.random.default_rng(3)
    q, posterior = rng.dirichlet(np.ones(8), (3, 12)), rng.dirichlet(np.full(8, 0.3), 12)
    capture = synthetic_capture(
        (DECODED,), Shape(12, n_layers=2, vocab_size=8), planted={"lens_log_prob": np.log2(q)},
        columns={"cluster": cluster}, posterior=posterior,
    )  # fmt: skip
    orders = shuffles(cluster, 20, np.random.default_rng([0, 4]))
    expected = [[kl_bits(posterior[order], depth).mean() for depth in q] for order in orders]
    np.testing.assert_allclose(posterior_divergence(capture, 20, 0)[1], expected, rtol=1e-5)


def test_a_vocabulary_too_large_to_keep_leaves_the_posterior_out_in_words():
    capture, *_ = with_posterior(2)
    empty = {"rows": np.empty((3, 80, 0), dtype=np.float32)}
    found = Components(**FAST).analyse(replace(capture, arrays={**capture.arrays, DECODED: empty}), {})
    assert "posterior_kl" not in found.scalars and any("too large to keep" in note for note in found.notes)


@pytest.fixture(scope="module")
def tunnel():
    """The shipped tunnel's capture of 40 sequences, with the next-token distribution, and the findings."""
    model = interp.load("tunnel:bijection-gpt-neox", check=False)
    probe = Components(**FAST)
    needs = [*probe.needs, Need("next_log_prob")]
    captured = interp.collect(model, interp.sampled_prompts(model.task, n=40, seed=1), needs)
    return model, captured, probe.analyse(captured, {})


def test_lengths_and_shares_of_the_shipped_tunnel_equal_a_loop(tunnel):
    _, captured, found = tunnel
    resid, attention = (captured[Need(s)].astype(np.float64) for s in ("resid", "attn_out"))
    table = found.tables["by_layer"]
    for layer in range(3):
        norms = [np.sqrt(np.dot(a, a)) for a in attention[layer]]
        share = [np.dot(a, r) / np.dot(r, r) for a, r in zip(attention[layer], resid[3], strict=True)]
        assert table["attn_norm"][layer] == pytest.approx(np.mean(norms), rel=1e-6)
        assert table["attn_final_share"][layer] == pytest.approx(np.mean(share), rel=1e-6)
    total = found["attention_share"].value + found["feed_forward_share"].value + found.tables["embedding"]["share"][0]
    assert total == pytest.approx(1, abs=1e-5)


def test_attribution_of_the_shipped_tunnel_equals_head_and_frozen_norm(tunnel):
    model, captured, found = tunnel
    norm = model.module.gpt_neox.final_layer_norm
    gain = norm.weight.detach().double().numpy()
    head = model.module.get_output_embeddings().weight.detach().double().numpy()
    final = captured[Need("resid")][3].astype(np.float64)
    token = captured[Need("next_log_prob")].argmax(axis=-1)
    deviation = np.sqrt(final.var(axis=1) + norm.eps)
    for site, name in (("attn_out", "attn_logit"), ("mlp_out", "mlp_logit")):
        update = captured[Need(site)].astype(np.float64).sum(axis=0)
        normed = (update - update.mean(axis=1, keepdims=True)) / deviation[:, None] * gain
        logits = normed @ head.T
        expected = np.mean([row[t] - row.mean() for row, t in zip(logits, token, strict=True)])
        assert found[name].value == pytest.approx(expected, rel=1e-4)
