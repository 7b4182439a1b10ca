"""What holds for every probe: how many prompts a number wants, which controls decide, and that units are units."""

from functools import cache

import numpy as np
import pytest

from interp.findings import Findings
from interp.testing import Shape, synthetic_capture
from tests.probes.test_degenerate import READ_UNEDITED, changed, noise, small
from tests.quick import quick

ENOUGH = [
    ("attention_entropy", "reduction", 20), ("belief", "r2", 200), ("causal", "axis_r2", 140),
    ("components", "attn_logit", 20), ("manifold", "pc1_share", 20), ("manifold", "entropy_correlation", 20),
    ("manifold", "best_layer_entropy_correlation", 30),
    ("orthogonality", "head_keys", 20), ("qk_alignment", "logit", 20), ("sula", "skill", 20),
    ("sula", "entropy_movement", 30), ("value_axis", "r2", 200),
    ("value_axis", "nuisance_r2", 200), ("workspace", "axis_share", 200),
]  # fmt: skip
"""Prompts that make a number no longer underpowered; `causal` fits on 100 and runs 40."""


@cache
def measured(name: str, n: int, alike: int = 1) -> Findings:
    """A probe on noise: `n` clusters of `alike` prompts each."""
    probe = small(name)
    clusters = {"cluster": np.repeat(np.arange(n), alike)} if alike > 1 else {}
    return probe.analyse(synthetic_capture(probe.needs, Shape(n * alike, n_layers=2), columns=clusters), {})


@pytest.mark.parametrize(("name", "number", "enough"), ENOUGH)
def test_a_number_is_underpowered_below_the_prompts_that_it_wants_and_not_at_them(name, number, enough):
    below, at = (measured(name, n)[number] for n in (enough - 1, enough))
    assert below.underpowered and not at.underpowered
    assert below.enough == enough and at.enough is None


TOGETHER = ["attention_entropy", "components", "manifold", "orthogonality", "qk_alignment", "sula"]


@pytest.mark.parametrize("name", quick([name for name in TOGETHER if name != "manifold"], TOGETHER))
def test_prompts_that_belong_together_count_once(name):
    number = next(number for probe, number, _ in ENOUGH if probe == name)
    below, at = (measured(name, n, alike=2)[number] for n in (19, 20))
    assert (below.n, below.n_clusters, at.n_clusters) == (38, 19, 20)
    assert below.underpowered and not at.underpowered


@pytest.mark.parametrize("name", sorted(set(READ_UNEDITED) - {"orthogonality", "workspace"}))
def test_six_prompts_are_too_few_for_every_number(name):
    assert all(scalar.underpowered for scalar in measured(name, 6).scalars.values())


UNEVEN = [
    ("belief", "r2", 200), ("manifold", "best_layer_entropy_correlation", 30),
    ("sula", "entropy_movement", 30), ("value_axis", "r2", 200), ("workspace", "axis_share", 200),
]  # fmt: skip


@pytest.mark.parametrize(("name", "number", "enough"), quick(UNEVEN[1:3], UNEVEN))
def test_enough_clusters_are_still_underpowered_where_one_holds_most_prompts(name, number, enough):
    cluster = np.r_[np.arange(enough), np.full(enough, enough)]
    probe = small(name)
    capture = synthetic_capture(probe.needs, Shape(len(cluster), n_layers=2), columns={"cluster": cluster})
    found = probe.analyse(capture, {})[number]
    assert found.n_clusters and found.underpowered and found.enough is None


CONTROLS = {
    "attention_entropy": {"content_sharpening": {"content_sharpening_no_first": True}},
    "components": {"attention_share": {"attention_share_quiet": True}},
    "manifold": {
        "entropy_correlation": {"entropy_correlation_within_token": True, "entropy_correlation_dropped": False},
        "curve_order": {"curve_order_within_token": True},
        "best_layer_entropy_correlation": {"best_layer_entropy_correlation_within_token": True},
    },
    "value_axis": {
        "r2": {"r2_beyond_token": True},
        "r2_beyond_token": {"r2_beyond_previous": True},
        "best_layer_r2": {"best_layer_r2_beyond_token": True},
        "pc1_correlation": {"pc1_correlation_beyond_token": True},
    },
}  # fmt: skip
"""The controls of numbers by their names, and whether they decide."""


@pytest.mark.parametrize("name", CONTROLS)
def test_the_controls_of_a_number_decide_or_stand_beside(name):
    found = measured(name, 60).controls
    for number, controls in CONTROLS[name].items():
        assert {control.scalar: control.essential for control in found[number]} == controls, number


SCALED = sorted(set(READ_UNEDITED) - {"attention_entropy"})


@pytest.mark.parametrize("name", quick(("components", "qk_alignment"), SCALED))
def test_activations_in_another_unit_change_what_is_measured_in_it_and_nothing_else(name):
    probe, factor = small(name), 2.0**-12
    capture = noise(probe)
    scaled = changed(capture, lambda need, x: x * factor if need.described.unit == "activation" else x)
    before, after = probe.analyse(capture, {}), probe.analyse(scaled, {})
    for number, scalar in before.scalars.items():
        unit = factor if scalar.unit == "activation" else 1.0
        assert after[number].value == pytest.approx(scalar.value * unit, rel=1e-5, abs=1e-9, nan_ok=True), number
        assert after[number].p == scalar.p and after[number].underpowered == scalar.underpowered, number
