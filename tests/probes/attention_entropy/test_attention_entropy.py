"""Attention entropy: planted curves, noise at the nominal rate, and the shipped tunnel in float64."""

from dataclasses import replace

import numpy as np
import pytest
from interp.probes.attention_entropy.probe import AttentionEntropy

from interp.reductions import PromptMean
from interp.testing import Shape, synthetic_capture

SMALL = AttentionEntropy(n_permutations=99, n_bootstrap=99)
SCORED = replace(SMALL, positions="scored")
CURVE = np.array([3.0, 2.0, 1.0])


def planted(rng, gain=0.0, n=60):
    """Entropies that fall by a bit a layer, and another prompt's that lie `gain` above."""
    own = CURVE[:, None, None] + 0.2 * rng.standard_normal((3, n, 4))
    return {"pattern_entropy": own, "pattern_entropy_null": own + gain + 0.2 * rng.standard_normal((3, n, 4))}


def world(seed, gain=0.0, **changes):
    rng = np.random.default_rng(seed)
    probe = replace(SCORED, seed=seed, **changes)
    return probe.analyse(synthetic_capture(probe.needs, Shape(60), planted=planted(rng, gain), seed=seed), {})


def test_a_planted_fall_is_found_within_its_noise():
    found = world(0, gain=0.5)
    assert found["reduction"].value == pytest.approx(2 / 3, abs=0.02)
    assert found["correlation"].value == pytest.approx(-1)
    assert found["area"].value == pytest.approx(2 / 3, abs=0.02)
    assert found["largest_drop"].value == pytest.approx(1, abs=0.1)
    assert found["content_sharpening"].value == pytest.approx(0.5, abs=0.05)
    assert found["content_sharpening"].p == 0.01
    assert found.tables["by_layer"]["entropy"] == pytest.approx(CURVE, abs=0.05)


def test_undrawn_prompts_change_nothing():
    rng = np.random.default_rng(3)
    drawn = np.arange(60) < 40
    one, other = planted(rng), planted(rng)
    mixed = {name: np.concatenate([one[name][:, :40], other[name][:, 40:]], axis=1) for name in one}
    tables = [
        SCORED.analyse(synthetic_capture(SCORED.needs, Shape(60), planted=x, columns={"drawn": drawn}), {})
        for x in (one, mixed)
    ]
    assert np.array_equal(tables[0].tables["by_head"]["entropy"], tables[1].tables["by_head"]["entropy"])
    assert tables[0]["reduction"].n == 40


def test_no_lender_no_trend_and_no_need_of_rows_are_said():
    rng = np.random.default_rng(0)
    rows = planted(rng, gain=0.5)
    rows["pattern_entropy_null"][:, 7] = np.nan
    found = SCORED.analyse(synthetic_capture(SCORED.needs, Shape(60), planted=rows), {})
    assert found["content_sharpening"].n == 59
    kept = np.delete(rows["pattern_entropy_null"] - rows["pattern_entropy"], 7, axis=1)
    assert found["content_sharpening"].value == pytest.approx(kept.mean())
    rows = planted(np.random.default_rng(0))
    rows["pattern_entropy_null"][:] = np.nan
    sharpening = SCORED.analyse(synthetic_capture(SCORED.needs, Shape(60), planted=rows), {})["content_sharpening"]
    assert np.isnan(sharpening.value)
    assert (
        sharpening.null_reason
        == "no prompt has another one of equal length, from another cluster, whose keys could be used"
    )
    flat = {"pattern_entropy": np.full((3, 60, 4), 2.0)}
    found = SCORED.analyse(synthetic_capture(SCORED.needs, Shape(60), planted=flat), {})
    assert found["reduction"].value == 0 and np.isnan(found["correlation"].value)
    assert found["reduction"].interval == (0, 0)
    shallow = SCORED.analyse(synthetic_capture(SCORED.needs, Shape(60, n_layers=1)), {})
    assert np.isnan(shallow["reduction"].value)
    assert all(n.at == "scored" for n in SCORED.needs)
    assert all(n.reduction == PromptMean() for n in replace(SMALL, positions="all").needs)
