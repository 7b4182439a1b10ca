"""The arithmetic of the causal probe on a few numbers: matching, effects, tables and what is said of them."""

from itertools import pairwise

import numpy as np
import pytest
from interp.probes.causal import controls as causal_controls
from interp.probes.causal.axis import Axis, Split, held_out
from interp.probes.causal.controls import alikeness
from interp.probes.causal.edits import BASELINE, HOW, EditedLayer, Intervention, Name, n_conditions, n_whole
from interp.probes.causal.effects import Effect, Effects, resampled
from interp.probes.causal.prompt_sample import chosen_clusters, keys
from interp.probes.measures.cloud import Cloud
from scipy import stats
from sklearn.linear_model import LinearRegression

from interp.need import Need
from interp.testing import Shape, synthetic_capture


def rng(seed=0):
    return np.random.default_rng(seed)


def test_axes_and_prompts_are_those_of_the_definition():
    cloud = Cloud.of(synthetic_capture((Need("v"),), Shape(n_prompts=24)), Need("v"))
    split = Split.of(cloud, 9, 0)
    a = rng(1).normal(size=cloud.points.shape[2])
    errors, totals = held_out(cloud, split, 1, Axis(a, a, 0.0))
    x, y = (cloud.points[1].astype(np.float64) @ a)[:, None], np.asarray(cloud.entropy_bits, np.float64)
    line = LinearRegression().fit(x[split.fitting], y[split.fitting])
    np.testing.assert_allclose(errors, np.square(y[split.run_rows] - line.predict(x[split.run_rows])), rtol=1e-6)
    np.testing.assert_allclose(totals, np.square(y[split.run_rows] - y[split.fitting].mean()))
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [int(keys(np.array([1234567]), seed)[0]) for seed in range(4)] == published
    prompts = np.array([9, 4, 7, 1, 30])
    by_key = prompts[np.argsort(keys(prompts, 5))]
    for n in range(1, 7):
        assert chosen_clusters(prompts, n, 5).tolist() == by_key[:n].tolist()


def test_draws_further_than_a_tenth_off_are_drawn_again(monkeypatch):
    values, target = np.linspace(0.2, 3, 12), 1.0
    ratios = [0.7, 0.89, 0.91, 1.09, 1.11, 1.3]
    made = iter(ratios + [0.95, 1.05, 1.2, 1.0] + [1.02] * 5)

    def planted(values, target, draws):
        """Frames in the plane of two axes that take out so many targets."""
        share = (np.array([next(made) for _ in draws]) * target - values[0]) / (values[-1] - values[0])
        frames = np.zeros(draws.shape)
        frames[:, 0, 0], frames[:, 0, -1] = np.sqrt(1 - share), np.sqrt(share)
        return frames

    monkeypatch.setattr(causal_controls, "_tilted", planted)
    frames, n_rejected = causal_controls._drawn(values, target, 1, 6, rng())
    assert np.square(frames[:, 0]) @ values == pytest.approx([0.91, 1.09, 0.95, 1.05, 1.0, 1.02])
    assert n_rejected == 5


def test_alike_controls_and_bisected_tilts_are_those_of_the_definition():
    frames = np.linalg.qr(rng(5).normal(size=(4, 7, 2)))[0].transpose(0, 2, 1)
    pairs = [np.square(a @ b.T).sum() / 2 for i, a in enumerate(frames) for b in frames[i + 1 :]]
    assert alikeness(frames) == pytest.approx(np.mean(pairs))
    assert alikeness(frames[:1]) == 1 and alikeness(frames[[0, 0, 0]]) == pytest.approx(1)
    values = np.geomspace(0.01, 10, 9)
    frames = causal_controls._tilted(values, 2.0, rng(12).normal(size=(30, 1, 9)))
    captured = (np.square(frames) @ values).sum(axis=1)
    np.testing.assert_allclose(captured, 2.0, rtol=1e-9)
    steeper = [np.median(np.square(causal_controls._tilted(values, t, rng(12).normal(size=(30, 1, 9)))[:, 0, -1]))
               for t in (0.1, 1.0, 5.0)]  # fmt: skip
    assert all(a < b for a, b in pairwise(steeper)), "louder targets lean on the loudest direction"
    assert stats.spearmanr(values, np.square(frames[:, 0]).mean(axis=0))[0] > 0


@pytest.mark.parametrize("is_refitted", [True, False])
@pytest.mark.parametrize(("doses", "n_controls", "has_heads"), [((0.0, 1.0), 50, True), ((0.5, 1.0, 2.0), 19, False)])
def test_conditions_are_counted_before_they_are_made(doses, n_controls, has_heads, is_refitted):
    rows = rng(6).normal(size=(60, 12)) * np.linspace(0.5, 2, 12)
    a = np.ones(12) / np.sqrt(12)
    refits = [Axis(u, u, 0.0) for u in np.linalg.qr(rng(7).normal(size=(n_controls, 12, 12)))[0][:, 0]]
    refits = refits if is_refitted else []
    place = EditedLayer.of(0, Axis(a, a, 0.0), rows, rows, refits, "mean", n_controls, 0)
    made = list(Intervention([place], "v", "all", "mean", (0, 1) if has_heads else (), 2).conditions(doses, n_controls))
    assert len(made) == n_conditions(doses, n_controls, has_heads, is_refitted) == len({str(name) for name, _ in made})
    assert sum(name.is_compared for name, _ in made) == n_whole(n_controls, has_heads, is_refitted)


def test_how_near_other_directions_are_to_the_axis_is_known_before_they_are_run():
    rows = rng(13).normal(size=(60, 8)) * np.linspace(0.5, 4, 8)
    a = np.ones(8) / np.sqrt(8)
    places = [EditedLayer.of(layer, Axis(a, a, 0.0), rows, rows, [], "mean", 4, 0) for layer in (0, 1)]
    facts = Intervention(places, "v", "all", "mean", (), 2).facts()
    first = np.linalg.svd(rows - rows.mean(axis=0))[2]
    for i in range(5):
        np.testing.assert_allclose(facts[f"principal {i + 1}"]["overlap"], [abs(first[i] @ a)] * 2)
    for i in range(4):
        np.testing.assert_allclose(facts[f"gaussian {i}"]["overlap"], [abs(p.gaussian[i] @ a) for p in places])
        np.testing.assert_array_equal(facts[f"control {i}"]["ratio"], [p.matched.ratio[i] for p in places])
        np.testing.assert_array_equal(facts[f"control {i}"]["dose"], [p.matched.dose[i] for p in places])
    matching = facts["control 0"]["matching"]
    np.testing.assert_allclose(matching, [[0, 1, p.matched.alike, p.matched.n_rejected] for p in places])


def effect(axis, *controls):
    """Each a value and its resamples."""
    moved = {"axis": np.array([axis], dtype=np.float64), "control": np.array(controls, dtype=np.float64)}
    return Effect("", (0,), "kl", 0.0, moved, np.arange(4))


def test_resamples_measure_beyond_the_controls_and_have_no_z_without_spread():
    found = effect([5.0, 4.0, 5.0, 50.0], [1, 1, 2, 2], [2, 2, 3, 2], [3, 3, 1, 2])
    assert found.z[:3] == pytest.approx([3.0, 2.0, 3.0]) and np.isnan(found.z[3]), "no spread to be measured in"
    bounds = tuple(resampled(found.z[None]).interval[:, 0])
    assert bounds == pytest.approx(np.quantile([2.0, 3.0], [0.025, 0.975]), abs=0.03) and bounds[1] == 3.0
    alike = effect([5.0, 4.0, 3.0], [2, 2, 2], [2, 2, 2])
    assert np.isnan(alike.z).all() and np.isnan(resampled(alike.z[None]).interval).all()
    found = effect([5.0, 4.0, 5.0, 7.0], [2, 1.5, 2, 3], [3, 2.5, 3, 3])
    assert found.beyond("control") == pytest.approx([2.5, 2.0, 2.5, 4.0])
    beyond = resampled(found.beyond("control")[None])
    assert beyond.value == [2.5] and tuple(beyond.interval[:, 0]) == pytest.approx(
        np.quantile([2.0, 2.5, 4.0], [0.025, 0.975])
    )
    still = resampled(np.array([[5.0, 5.0, 5.0 + 1e-14]]))
    assert np.isnan(still.interval).all() and still.value == [5.0]


def under_edits(moved, clusters=None):
    """Readouts of ten prompts of an axis (the first) and its controls, at one layer, without an edit 1 bit."""
    noise = 1 + 0.2 * rng(10).normal(size=10)
    subjects = ["axis", *(f"control {i}" for i in range(len(moved) - 1))]
    found = {str(Name((0,), BASELINE)): dict.fromkeys(("kl", "kl.of", "loss", "loss.of"), np.ones(10))}
    matching = np.array([[HOW.index("refit"), 1, 0.1, 0]])
    for subject, value in zip(subjects, moved, strict=True):
        both = 1 + value * noise
        found[str(Name((0,), subject))] = {"kl": both, "kl.of": np.ones(10), "loss": both**2, "loss.of": np.ones(10),
                                           "matching": matching}  # fmt: skip
    for read in found.values():
        read["cluster"] = np.arange(10) if clusters is None else clusters
    return found


def test_effects_resample_whole_clusters_of_whole_interventions():
    # Five prompts of either cluster move alike: two of ten is what is resampled.
    under = under_edits([6.0, 1.0, 3.0, 2.0], clusters=np.repeat([0, 1], 5))
    kl = Effects.of(under, 400, rng(11)).found[0]
    halves = 6 * (1 + 0.2 * rng(10).normal(size=10)).reshape(2, 5).mean(axis=1)
    assert set(kl.by("axis").round(9)) == {*halves.round(9), round(float(halves.mean()), 9)}
    under = under_edits([6.0, 1.0, 3.0, 2.0])
    under[str(Name((0,), "axis", dose=0.5))] = under[str(Name((0,), "axis"))]
    under[str(Name((0,), "axis", "kept"))] = under[str(Name((0,), "axis"))]
    assert len(Effects.of(under, 20, rng()).found) == 2
