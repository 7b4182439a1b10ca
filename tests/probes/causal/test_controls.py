"""Matched controls, the sample of prompts, edits, effects and tables against their definitions."""

import numpy as np
import pytest
from interp.probes.causal import controls as causal_controls
from interp.probes.causal.axis import Axis, Split, held_out
from interp.probes.causal.controls import HOW, Edited, alikeness, random_controls
from interp.probes.causal.edits import EditedLayer, Intervention, Name, on_the_run
from interp.probes.causal.effects import Effects, resampled
from interp.probes.causal.probe import Causal
from interp.probes.causal.prompt_sample import PromptSample, chosen_clusters, keys, rows_of
from interp.probes.measures.cloud import Cloud
from sklearn.linear_model import LinearRegression

from interp.capture import ModelInfo
from interp.editing.conditions import Run, read_conditions
from interp.errors import PromptError
from interp.need import Need
from interp.probe import Condition
from interp.prompt import Prompt, PromptSet
from interp.reading.forward import capture
from interp.testing import Shape, synthetic_capture
from tests.tiny_models import VOCAB, tiny_model

D = 16


def rng(seed=0):
    return np.random.default_rng(seed)


def axis_along(a, d=None):
    a = np.asarray(a, np.float64) / np.linalg.norm(a)
    return Axis(a, a if d is None else d / (d @ a), 1.0)


def cloud(spectrum, n=4000, seed=0):
    turn = np.linalg.qr(rng(seed).normal(size=(len(spectrum),) * 2))[0]
    return rng(seed + 1).normal(size=(n, len(spectrum))) * np.sqrt(spectrum) @ turn + 3.0, turn


LEFT = np.r_[4, 3, 3, 2, 2, 1, 1, 0.5, 0.5, 0.1, 0.1, 0.05, 0.05, 0.01, 0.01]


@pytest.mark.parametrize(
    ("spectrum", "along", "fill", "how", "n_axes", "tolerance"),
    [
        *((np.r_[loud, LEFT], 0, "mean", "direction", 1, 1e-6) for loud in (0.02, 0.5, 2.0)),
        # two other directions hold at most 4.8, and then they are all the same
        (np.r_[5.0, np.linspace(0.5, 2.4, D - 1)], 0, "mean", "subspace", 3, 1e-3),
        # one other direction holds as much as the axis: single controls would all be that one
        (np.r_[4.0, 4.2, np.linspace(0.3, 2, D - 2)], 0, "mean", "subspace", 2, 1e-3),
        (np.r_[1000.0, np.full(D - 1, 0.5)], 0, "mean", "dose", 1, 1e-6),
        (np.linspace(0.5, 3, D), "oblique", "mean", "dose", 1, 0.1),
        (np.linspace(0.5, 3, D), 5, "zero", "direction", 1, 0.1),
    ],
)
def test_controls_change_as_much_as_the_axis_and_lie_beside_it(spectrum, along, fill, how, n_axes, tolerance):
    rows, turn = cloud(spectrum)
    axis = axis_along(*rng(3).normal(size=(2, D))) if along == "oblique" else axis_along(turn[along])
    edited = Edited.of(rows, fill)
    matched = random_controls(edited, axis, 30, rng(2))
    made, n_dimensions, alike, _ = matched[0].facts["matching"]
    frames = np.array([cut.covectors for cut in matched])
    assert (HOW[int(made)], frames.shape[1], n_dimensions) == (how, n_axes, n_axes)
    centred = rows - (rows.mean(axis=0) if fill == "mean" else 0)
    target = np.square(np.outer(centred @ axis.covector, axis.displacement)).sum(axis=1).mean()
    assert edited.removed(axis) == pytest.approx(target)
    for cut in matched:
        frame, dose, ratio = cut.covectors, cut.dose, cut.facts["ratio"]
        np.testing.assert_allclose(frame @ frame.T, np.eye(n_axes), atol=1e-9)
        assert max(np.abs(frame @ v).max() for v in (axis.covector, axis.displacement)) < 1e-9
        change = dose**2 * np.square(centred @ frame.T).sum(axis=1).mean()
        assert change == pytest.approx(target, rel=tolerance) and ratio == pytest.approx(change / target, abs=1e-6)
        assert dose > 10 if spectrum[0] == 1000 else dose == 1 or how == "dose"
    assert alike == pytest.approx(alikeness(frames)) and (how == "dose" or alike <= 0.5)
    faint = random_controls(Edited.of(rows * 2.0**-10, fill), axis, 30, rng(2))
    np.testing.assert_allclose(np.abs([cut.covectors for cut in faint]), np.abs(frames), atol=1e-6)


def test_nothing_has_no_control():
    rows = np.outer(rng().normal(size=50), np.eye(D)[0])
    with pytest.raises(PromptError, match="nothing varies beside it"):
        random_controls(Edited.of(rows, "mean"), axis_along(np.eye(D)[0]), 20, rng())
    with pytest.raises(PromptError, match="the axis does not vary"):
        random_controls(Edited.of(rows, "mean"), axis_along(np.eye(D)[1]), 20, rng())
    with pytest.raises(PromptError, match="the axis does not vary"):
        random_controls(Edited.of(np.zeros((20, 1)), "mean"), Axis(np.ones(1), np.ones(1), 0.0), 5, rng())


@pytest.mark.parametrize("size", [1, 3])
def test_the_sample_is_the_same_however_the_stream_is_cut(size):
    prompt = np.repeat(np.arange(30), 3)
    rows = rng().normal(size=(90, 2, 4)).astype(np.float32)
    clusters = np.arange(30) if size == 1 else np.arange(30) // size
    whole, parts, left, right = (PromptSample(7, seed=3).starter(clusters)() for _ in range(4))
    whole.add(rows, prompt)
    order = rng(1).permutation(30)
    for p in order:
        parts.add(rows[prompt == p], prompt[prompt == p])
    for p in order:
        (left if p % 2 else right).add(rows[prompt == p], prompt[prompt == p])
    left.merge(right)
    expected = np.flatnonzero(np.isin(clusters, chosen_clusters(clusters, 7, 3)))
    assert len(expected) == 7 // size * size
    for state in (whole, parts, left):
        found = state.result()
        np.testing.assert_array_equal(found["rows"], rows[np.isin(prompt, expected)])
        np.testing.assert_array_equal(found["prompt"], np.repeat(expected, 3))


def test_prompts_that_are_run_are_chosen_evenly_and_kept():
    assert set(chosen_clusters(np.arange(50), 5, 0)) <= set(chosen_clusters(np.arange(50), 12, 0))
    chosen = np.concatenate([chosen_clusters(np.arange(20), 5, seed) for seed in range(2000)])
    counts = np.bincount(chosen, minlength=20)
    assert abs(counts - 500).max() < 5 * np.sqrt(500 * 0.75)
    reduced = {"rows": np.arange(12.0).reshape(1, 6, 2), "prompt": np.array([[1, 1, 4, 4, 5, 5]])}
    assert rows_of(reduced, 0, np.array([4])).tolist() == [[4, 5], [6, 7]]
    probe = Causal(n_prompts=20)
    columns = {"cluster": np.repeat(np.arange(20), 6)}
    base = synthetic_capture(probe.needs, Shape(n_prompts=120), columns=columns)
    split = Split.of(Cloud.of(base, Need(probe.site)), probe.n_prompts, probe.seed)
    kept = base.reduced(probe.needs[1])["prompt"][0]
    assert len(split.run) == 18 and set(split.run) <= set(kept.tolist())


def info() -> ModelInfo:
    return tiny_model("llama").info


@pytest.fixture(scope="module")
def source():
    ids = [rng(i).integers(0, VOCAB, size=6) for i in range(12)]
    return Run(PromptSet("tokens", [Prompt(token_ids=tuple(x.tolist())) for x in ids]), ids)


@pytest.fixture(scope="module")
def before(source):
    need = Need("v", at="all")
    return capture(tiny_model("llama"), source.prompts, source.ids, [need])[need][1].reshape(72, -1).astype(np.float64)


def edited(source, before, fill, axis, n=20):
    """The values at the edited layer, under every condition."""
    place = EditedLayer.of(1, axis, before, before, [], fill, n, 0)
    intervention = Intervention([place], "v", "all", fill, tuple(range(info().n_heads)), info().n_layers)
    need = Need("v", at="all")
    conditions = [
        Condition(str(name), edits, (need,), lambda under: {"v": under[need][1].reshape(72, -1)})
        for name, edits in intervention.named(on_the_run((1,), n, True, False))
    ]
    found = read_conditions(tiny_model("llama"), source, conditions)
    return place, {key: read["v"] for key, read in found.items()}


@pytest.mark.parametrize("fill", ["mean", "zero"])
@pytest.mark.parametrize("is_oblique", [False, True])
def test_every_condition_leaves_what_it_says(source, before, fill, is_oblique):
    a, d = rng(4).normal(size=(2, before.shape[1]))
    axis = axis_along(a, d if is_oblique else None)
    place, found = edited(source, before, fill, axis)
    to = before.mean(axis=0) if fill == "mean" else 0 * before[0]

    def near(name, expected):
        np.testing.assert_allclose(found[str(name)], expected, atol=2e-5 * max(1, np.abs(expected).max()))

    part = np.outer((before - to) @ axis.covector, axis.displacement)
    near(Name((1,), "axis"), before - part)
    near(Name((1,), "axis", "kept"), to + part)
    spread = (before @ axis.covector).std()
    near(Name((1,), "axis", "+1 sd"), before + spread * axis.displacement)
    near(Name((1,), "axis", "−1 sd"), before - spread * axis.displacement)
    for i in (0, 19):
        frame, dose = place.cuts[f"control {i}"].covectors, place.cuts[f"control {i}"].dose
        near(Name((1,), f"control {i}"), before - dose * (before - to) @ frame.T @ frame)
    top = np.linalg.svd(before - before.mean(axis=0), full_matrices=False)[2][:10]
    near(Name((1,), "top"), before - (before - to) @ top.T @ top)
    near(Name((1,), "resample"), before)


def test_axes_and_prompts_are_those_of_the_definition():
    cloud = Cloud.of(synthetic_capture((Need("v"),), Shape(n_prompts=24)), Need("v"))
    split = Split.of(cloud, 9, 0)
    a = rng(1).normal(size=cloud.points.shape[2])
    errors, totals = held_out(split.points(1), split, Axis(a, a, 0.0))
    x, y = (cloud.points[1].astype(np.float64) @ a)[:, None], np.asarray(cloud.sought, np.float64)
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


def test_alike_controls_are_those_of_the_definition():
    frames = np.linalg.qr(rng(5).normal(size=(4, 7, 2)))[0].transpose(0, 2, 1)
    pairs = [np.square(a @ b.T).sum() / 2 for i, a in enumerate(frames) for b in frames[i + 1 :]]
    assert alikeness(frames) == pytest.approx(np.mean(pairs))
    assert alikeness(frames[:1]) == 1 and alikeness(frames[[0, 0, 0]]) == pytest.approx(1)


@pytest.mark.parametrize("is_refitted", [True, False])
@pytest.mark.parametrize(("n_controls", "has_heads"), [(50, True), (19, False)])
def test_conditions_are_counted_before_they_are_made(n_controls, has_heads, is_refitted):
    rows = rng(6).normal(size=(60, 12)) * np.linspace(0.5, 2, 12)
    a = np.ones(12) / np.sqrt(12)
    refits = [Axis(u, u, 0.0) for u in np.linalg.qr(rng(7).normal(size=(n_controls, 12, 12)))[0][:, 0]]
    refits = refits if is_refitted else []
    place = EditedLayer.of(0, Axis(a, a, 0.0), rows, rows, refits, "mean", n_controls, 0)
    intervention = Intervention([place], "v", "all", "mean", (0, 1) if has_heads else (), 2)
    names = list(on_the_run((0,), n_controls, has_heads, is_refitted))
    assert [name for name, _ in intervention.named(names)] == names and len({*map(str, names)}) == len(names)
    assert {*place.cuts} | ({"resample"} if has_heads else set()) == {name.subject for name in names}
    n_whole = 1 + n_controls + 2 + has_heads + is_refitted * min(n_controls, 40)
    assert sum(name.is_compared for name in names) == n_whole
    assert len(names) == n_whole + 3


def test_how_controls_are_matched_is_known_before_they_are_run():
    rows = rng(13).normal(size=(60, 8)) * np.linspace(0.5, 4, 8)
    a = np.ones(8) / np.sqrt(8)
    places = [EditedLayer.of(layer, Axis(a, a, 0.0), rows, rows, [], "mean", 4, 0) for layer in (0, 1)]
    facts = Intervention(places, "v", "all", "mean", (), 2).facts
    edited = Edited.of(rows, "mean")
    matched = [random_controls(edited, Axis(a, a, 0.0), 4, rng([0, 1, layer])) for layer in (0, 1)]
    for i in range(4):
        np.testing.assert_array_equal(facts(f"control {i}")["ratio"], [cuts[i].facts["ratio"] for cuts in matched])
        np.testing.assert_array_equal(facts(f"control {i}")["dose"], [cuts[i].dose for cuts in matched])
    alike = [alikeness(np.array([cut.covectors for cut in cuts])) for cuts in matched]
    np.testing.assert_allclose(facts("control 0")["matching"][:, :3], [[0, 1, of_layer] for of_layer in alike])
    assert facts("resample") == facts("top") == {}


def effect(axis, *controls):
    """Each a value and its resamples."""
    moved = {"axis": np.array([axis], dtype=np.float64), "control": np.array(controls, dtype=np.float64)}
    return Effects([Name((0,), "axis")], ["kl"], np.zeros(1), [moved], [np.arange(4)], True)


def test_resamples_measure_beyond_the_controls_and_have_no_z_without_spread():
    z = effect([5.0, 4.0, 5.0, 50.0], [1, 1, 2, 2], [2, 2, 3, 2], [3, 3, 1, 2]).z
    assert z.value == pytest.approx([3.0])
    bounds = tuple(z.interval[:, 0])  # the last resample has no spread to be measured in
    assert bounds == pytest.approx(np.quantile([2.0, 3.0], [0.025, 0.975]), abs=0.03) and bounds[1] == 3.0
    alike = effect([5.0, 4.0, 3.0], *[[2, 2, 2]] * 3).z
    assert np.isnan(alike.value).all() and np.isnan(alike.interval).all()
    found = effect([5.0, 4.0, 5.0, 7.0], [2, 1.5, 2, 3], [3, 2.5, 3, 3])
    assert found.more_than("control")[0] == pytest.approx([2.5, 2.0, 2.5, 4.0])
    beyond = found.beyond
    assert beyond.value == [2.5] and tuple(beyond.interval[:, 0]) == pytest.approx(
        np.quantile([2.0, 2.5, 4.0], [0.025, 0.975])
    )
    still = resampled(np.array([[5.0, 5.0, 5.0 + 1e-14]]))
    assert np.isnan(still.interval).all() and still.value == [5.0]
