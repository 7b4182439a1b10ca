"""The causal probe: readouts and effects against their definitions, refusals, and runs from end to end."""

from dataclasses import replace

import numpy as np
import pytest
from interp.probes.causal.axis import Split, fit_axis, fit_together, refit_axes
from interp.probes.causal.controls import HOW, Edited, refitted_controls
from interp.probes.causal.edits import BASELINE, Name
from interp.probes.causal.effects import Effects, readings
from interp.probes.causal.probe import Causal
from interp.probes.causal.read import KL, LOSS, OUTCOME, SIZE, Reader, crossed, read_labels, relative_axis
from interp.probes.causal.tables import ALIKE, notes
from interp.probes.measures.cloud import Cloud
from interp.probes.measures.permutations import permutations_within
from scipy import stats
from sklearn.linear_model import Ridge

import interp
from interp.errors import PromptError, UsageError
from interp.need import Need
from interp.running.choose_probes import choose_probes
from interp.running.spec import make_probe
from interp.statistics.estimates import Estimates
from interp.table import LABEL, Table
from interp.testing import Shape, check_probe, synthetic_capture
from tests.read_back import not_in_tables

PROBE = Causal(n_controls=19, n_bootstrap=40, n_prompts=10, n_sula=0)


def rng(seed=0):
    return np.random.default_rng(seed)


def capture_of(needs, **kwargs):
    return synthetic_capture(needs, Shape(**{"n_prompts": 30, **kwargs}))


def under_of(needs, shape, **known):
    """A capture under edits: sizes of one edit, and the surprise at all but the last token, beside the rest."""
    made = synthetic_capture([need for need in needs if need not in (SIZE, LOSS)], shape, **known)
    length = made.rows["length"][:: shape.n_scored]
    followed = Table({"prompt": np.repeat(np.arange(len(length)), length - 1)}, {"prompt": "index"})
    sizes = {"rows": rng(8).random((1, shape.n_prompts)), "variance_share": np.array([0.25])}
    arrays = {SIZE: sizes, LOSS: {"rows": rng(9).random(followed.n_rows)}}
    return replace(made, arrays={**made.arrays, **arrays}, tables={**made.tables, "followed": followed})


@pytest.mark.parametrize("scaling", ["centred", "zscored"])
def test_axes_are_what_they_say_in_raw_coordinates(scaling):
    x = rng().normal(size=(80, 6)) * np.array([1, 2, 3, 4, 5, 6]) + 2
    y = x @ np.array([1, 0, 0, -1, 0, 0]) + 0.1 * rng(1).normal(size=80)
    units = np.arange(80)
    divisor = x.std(axis=0) if scaling == "zscored" else np.ones(6)
    z = (x - x.mean(axis=0)) / divisor
    first = np.linalg.svd(z)[2][0]
    directions = {"encoding": z.T @ (y - y.mean()), "pc1": first * np.sign(first @ z.T @ (y - y.mean()))}
    axes = {kind: fit_axis(x, y, units, kind, scaling) for kind in ("ridge", "pc1", "encoding")}
    directions["ridge"] = Ridge(alpha=axes["ridge"].penalty * np.square(np.linalg.svd(z)[1]).mean()).fit(z, y).coef_
    for kind, w in directions.items():
        axis = axes[kind]
        np.testing.assert_allclose(axis.covector, (w / divisor) / np.linalg.norm(w / divisor), atol=1e-6)
        moved = w * divisor
        np.testing.assert_allclose(axis.displacement, moved / (moved @ axis.covector), atol=1e-6)
        assert axis.covector @ axis.displacement == pytest.approx(1)
        assert axis.is_orthogonal == (scaling == "centred")
        assert np.cov(x @ axis.covector, y)[0, 1] > 0, "the entropy rises along it"


@pytest.mark.parametrize("scaling", ["centred", "zscored"])
def test_leace_leaves_nothing_linear_and_changes_as_little_as_the_closed_form(scaling):
    """The closed form whitens, projects out the whitened covariance with the entropy, and goes back."""
    mixed = rng().normal(size=(6, 6))
    x = rng(1).normal(size=(4000, 6)) @ mixed
    y = x @ rng(2).normal(size=6) + rng(3).normal(size=4000)
    centred, covariance = x - x.mean(axis=0), np.cov(x.T)
    values, vectors = np.linalg.eigh(covariance)
    whiten, colour = (vectors * values**power @ vectors.T for power in (-0.5, 0.5))
    u = whiten @ centred.T @ (y - y.mean())
    closed = centred @ whiten @ np.outer(u, u) @ colour / (u @ u)
    axis = fit_axis(x, y, np.arange(4000), "leace", scaling)
    change = np.outer(centred @ axis.covector, axis.displacement)
    assert np.abs((centred - change).T @ (y - y.mean())).max() < 1e-8 * np.abs(centred.T @ (y - y.mean())).max()
    np.testing.assert_allclose(change, closed, atol=0.02 * np.abs(closed).max())
    assert axis.covector @ axis.displacement == pytest.approx(1) and not axis.is_orthogonal


@pytest.mark.parametrize(("kind", "low", "high"), [("leace", -0.1, 0.1), ("ridge", 0.8, 1)])
def test_what_a_removal_leaves_is_told_by_prompts_that_it_was_not_fitted_on(kind, low, high):
    """Four features of the values hold the entropy, each with noise of its own: one direction is not all of it."""
    base = synthetic_capture(PROBE.needs, Shape(n_prompts=400))
    noise = rng().normal(size=(400, 4)) * np.array([0.1, 0.2, 0.3, 0.4])
    arrays = {need: {"rows": found["rows"].copy()} for need, found in base.arrays.items() if need.at == "scored"}
    for found in arrays.values():
        values = found["rows"][-1].reshape(400, -1)
        values[:, :4] = 10 * (base.rows["next_entropy_bits"][:, None] + noise)
        found["rows"][-1] = values.reshape(found["rows"][-1].shape)
    base = replace(base, arrays={**base.arrays, **arrays})
    found = replace(PROBE, axis=kind, n_prompts=100).analyse(base, {})
    assert found["axis_r2"].value > 0.9 and low < found["remaining_r2"].value < high


def test_there_is_no_axis_where_nothing_varies():
    x, y = rng().normal(size=(20, 4)), rng(1).normal(size=20)
    assert fit_axis(np.ones((20, 4)), y, np.arange(20), "pc1", "centred") is None
    assert fit_axis(x, np.ones(20), np.arange(20), "ridge", "centred") is None


def test_controls_are_axes_fitted_alike_to_entropies_exchanged_between_prompts():
    """By hand: other entropies of the same domain, whole sequences at a time, and the same fit again."""
    base = capture_of((Need("v"),), n_scored=3)
    domain = np.repeat(["a", "b"], 45)
    columns, units = base.rows.columns | {"domain": domain}, base.rows.units | {"domain": LABEL}
    base = replace(base, tables={"scored": replace(base.rows, columns=columns, units=units)})
    cloud = Cloud.of(base, Need("v"))
    split = Split.of(cloud, 10, 0)
    refits = refit_axes(split, (0, 2), "encoding", "centred", 25, 3)
    entropy, units = np.asarray(cloud.sought, np.float64)[split.fitting], cloud.units[split.fitting]
    mine = np.asarray(cloud.rows["domain"])[split.fitting]
    orders = permutations_within(np.unique(mine, return_inverse=True)[1], units, 25, np.random.default_rng([3, 4]))
    for i, order in enumerate(orders):
        assert (mine[order] == mine).all()
        donors = units[order].reshape(-1, 3)
        assert (donors == donors[:, :1]).all(), "sequences stay whole"
        for layer in (0, 2):
            points = cloud.points[layer][split.fitting]
            alone = fit_axis(points, entropy[order], units, "encoding", "centred")
            np.testing.assert_allclose(refits[layer][i].covector, alone.covector, atol=1e-9)
    assert refit_axes(split, (0,), "pc1", "centred", 25, 3) == {0: []}, "nothing to exchange"


@pytest.mark.parametrize("scaling", ["centred", "zscored"])
def test_refitted_controls_change_as_much_as_the_axis_at_scored_rows(scaling):
    x = rng().normal(size=(80, 6)) * np.array([1, 2, 3, 4, 5, 6]) + 2
    elsewhere = np.vstack([x, 7 * rng(1).normal(size=(200, 6))])
    units = np.arange(80)
    axis, *refits = fit_together(x, rng(2).normal(size=(80, 12)), units, "ridge", scaling)
    edited = Edited.of(elsewhere, "mean", x)
    matched = refitted_controls(edited, axis, refits)

    def change(one, dose=1.0):
        moved = dose * np.outer((x - elsewhere.mean(axis=0)) @ one.covector, one.displacement)
        return np.square(moved).sum(axis=1).mean()

    sizes = [change(one, cut.dose) for one, cut in zip(refits, matched, strict=True)]
    np.testing.assert_allclose(sizes, change(axis), rtol=1e-9)
    assert all(HOW[int(cut.facts["matching"][0])] == "refit" and cut.facts["ratio"] == 1 for cut in matched)
    faint = refitted_controls(Edited(edited.mean / 1e3, edited.moments / 1e6), axis, refits)
    np.testing.assert_allclose([cut.dose for cut in faint], [cut.dose for cut in matched])
    with pytest.raises(PromptError, match="the axis does not vary at the scored positions"):
        refitted_controls(Edited.of(np.ones((5, 6)), "mean"), axis, refits)


def test_prompts_that_are_run_are_not_fitted_on():
    cloud = Cloud.of(capture_of((Need("v"),), n_scored=3), Need("v"))
    split = Split.of(cloud, 10, 0)
    assert len(split.run) == 10 and not set(cloud.units[split.fitting]) & set(split.run)
    assert sorted(np.r_[split.fitting, split.run_rows]) == list(range(90))
    assert cloud.units[split.run_rows].tolist() == np.repeat(split.run, 3).tolist()
    assert len(Split.of(cloud, 100, 0).run) == 15, "at most half"


def test_sums_by_prompt_are_ratios_of_definitions():
    posterior = rng().dirichlet(np.ones(3), 90)
    reader = Reader(rng(1).random(90), (OUTCOME, LOSS))
    under = under_of(reader.needs, Shape(n_prompts=30, n_scored=3), posterior=posterior)
    read = reader(under)
    assert reader.needs[:3] == (KL, SIZE, Need("next_log_prob")) and set(reader.needs[3:]) == {OUTCOME, LOSS}
    np.testing.assert_allclose(read["kl"], under[KL].reshape(30, 3).sum(axis=1), rtol=1e-6)
    assert (read["kl.of"] == 3).all()
    change = under.rows["next_entropy_bits"] - reader.entropy
    np.testing.assert_allclose(read["entropy_moved"], np.abs(change).reshape(30, 3).sum(axis=1))
    q = np.exp2(under[OUTCOME].astype(float))
    q /= q.sum(axis=1, keepdims=True)
    kl = (posterior * np.log2(posterior / q)).sum(axis=1)
    np.testing.assert_allclose(read["posterior_kl"], kl.reshape(30, 3).sum(axis=1), rtol=1e-5)
    loss, prompt = under[LOSS], under.rows_at("followed")["prompt"]
    np.testing.assert_allclose(read["loss"] / read["loss.of"], [loss[prompt == i].mean() for i in range(30)])
    np.testing.assert_allclose(read["size"], under[SIZE].mean(axis=1))
    assert read["log_p"].shape == (90, 32)
    brief = replace(reader, also=(), facts={"ratio": np.array([0.5])})(under)
    assert brief.pop("ratio") == 0.5
    assert set(read) - set(brief) == {f"{name}{of}" for name in ("posterior_kl", "entropy_error", "loss") for of in
                                      ("", ".of")}  # fmt: skip
    for name, value in brief.items():
        np.testing.assert_array_equal(value, read[name])
    assert set(reader.needs) - set(replace(reader, also=()).needs) == {OUTCOME, LOSS}


@pytest.mark.parametrize(("n", "n_folds"), [(20, 5), (3, 3)])
def test_r2_at_later_layers_is_that_of_ridge_told_from_other_prompts(n, n_folds):
    """Where there are fewer prompts than folds, each is a fold of its own."""
    unit = np.repeat(np.arange(n), 80 // n)
    x = rng().normal(size=(len(unit), 7))
    y = x[:, 0] + 0.5 * rng(1).normal(size=len(unit))
    errors, totals = crossed(x, y, unit, 0.1)
    for fold in range(n_folds):
        test = unit % n_folds == fold
        centred = x[~test] - x[~test].mean(axis=0)
        alpha = 0.1 * np.square(centred).sum() / 7
        told = Ridge(alpha=alpha).fit(x[~test], y[~test]).predict(x[test])
        np.testing.assert_allclose(errors[test], np.square(y[test] - told), rtol=1e-6)
        np.testing.assert_allclose(totals[test], np.square(y[test] - y[~test].mean()), rtol=1e-9)
    wide = rng(2).normal(size=(20, 50))
    a = relative_axis(wide, y[:20], 0.3)
    centred = wide - wide.mean(axis=0)
    b = Ridge(alpha=0.3 * np.square(centred).sum() / 19).fit(wide, y[:20]).coef_
    np.testing.assert_allclose(a, b / np.linalg.norm(b), atol=1e-8)


def test_the_slope_is_that_of_a_regression_with_an_intercept_for_each_pair_of_words():
    p = rng().uniform(0.1, 0.9, 40)
    posterior = np.stack([p, 1 - p], axis=1)
    ids = np.repeat([[3, 8], [20, 5]], 20, axis=0)
    under = under_of((KL, SIZE, OUTCOME), Shape(n_prompts=40), posterior=posterior, outcome_ids=ids)
    read = read_labels(under)
    log_q = under[OUTCOME].astype(float)
    x, y = np.log2(p / (1 - p)), log_q[:, 0] - log_q[:, 1]
    x[20:], y[20:] = -x[20:], -y[20:]  # words in the order of their ids
    design = np.column_stack([x, np.arange(40) < 20, np.arange(40) >= 20])
    expected = np.linalg.lstsq(design, y, rcond=None)[0][0]
    assert read["slope"].sum() / read["slope.of"].sum() == pytest.approx(expected)


@pytest.mark.parametrize("sizes", [[1] * 60, [4] * 15, [3, 5] * 8])
def test_prompts_that_are_run_are_resampled_by_their_clusters(sizes):
    """Nothing of a cluster is on both sides, prompts are summed one by one, and clusters are what is counted."""
    cluster = np.repeat(np.arange(len(sizes)), sizes)
    n = len(cluster)
    base = synthetic_capture(PROBE.needs, Shape(n_prompts=n), columns={"cluster": cluster})
    split = PROBE._split(base)
    clusters = split.clusters
    assert clusters.tolist() == cluster[split.run].tolist()
    assert not {*cluster[split.fitting].tolist()} & {*clusters.tolist()}
    later = PROBE._later(split, (0,))
    assert later.prompt.tolist() == [*range(len(split.run))]
    read = later.read(base_of(base, split.run))
    assert read["later_r2"].shape == (2, len(split.run))
    told = PROBE.analyse(base, {})["axis_r2"]
    assert told.n == len(split.run)
    assert told.n_clusters == (None if n == len(sizes) else len(np.unique(clusters)))
    assert ("clusters that were run" in told.interval_method) == (n > len(sizes))


def test_later_layers_are_not_refitted_within_a_single_cluster():
    base = synthetic_capture(PROBE.needs, Shape(n_prompts=240), columns={"cluster": np.repeat(np.arange(6), 40)})
    split = PROBE._split(base)
    assert len(np.unique(split.clusters)) == 1 and PROBE._later(split, (0,)) is None


def base_of(base, prompts):
    """The capture of some of its prompts, each with one row."""
    arrays = {need: {"rows": found["rows"][:, prompts]} for need, found in base.arrays.items() if need.at == "scored"}
    return replace(base, tables={"scored": base.rows.where(prompts)}, arrays=arrays)


def made_up(values, how="refit"):
    """Readouts of an axis and its controls, constant over prompts but for noise."""
    n = 12
    noise = rng(5).normal(size=n)
    names = [Name((1,), BASELINE), Name((1,), "axis"), *(Name((1,), f"control {i}") for i in range(len(values) - 1))]
    return {
        str(name): {"kl": (v + 0.1 * v * noise) * 2, "kl.of": np.full(n, 2.0), "later_r2": np.full((2, n), 1 + v),
                    "later_r2.of": np.full((2, n), 10.0), "matching": np.array([[HOW.index(how), 1, 0.1, 0]]),
                    "cluster": np.arange(n)}
        for name, v in zip(names, [0.0, *values], strict=True)
    }  # fmt: skip


def test_effect_z_and_rank():
    values = [9.0, *np.linspace(1, 5, 19)]
    under = made_up(values)
    under[str(Name((1,), "top"))] = made_up([7.0])[str(Name((1,), "axis"))]
    effects = Effects.of(under, 200, rng())
    assert effects.readouts == ("kl", "later_r2")
    shift = 1 + 0.1 * rng(5).normal(size=12).mean()
    assert effects.effect.value[0] == pytest.approx(9 * shift) and effects.unedited[0] == 0
    assert effects.z.value[0] == pytest.approx((9 - np.mean(values[1:])) / np.std(values[1:], ddof=1))
    assert effects.p[0] == 1 / 20 and effects.beyond.value[0] == pytest.approx(6 * shift)
    low, high = tuple(effects.effect.interval[:, 0])
    assert low < effects.effect.value[0] < high and high - low == pytest.approx(4 * 9 * 0.1 / np.sqrt(12), rel=0.4)
    assert effects.by("top")[0, 0] == pytest.approx(7 * shift)
    kl = effects.controls[:, 0]
    for i, z in enumerate(effects.control_z[:, 0]):
        others = np.delete(kl, i)
        assert z == pytest.approx((kl[i] - others.mean()) / others.std(ddof=1))
    assert effects.effect.value[1] == pytest.approx(-0.9) and effects.unedited[1] == pytest.approx(0.9), "both layers"
    assert np.isnan(tuple(effects.effect.interval[:, 1])).all(), "no resample differs"
    assert np.isnan(effects.p_family[0]) and effects.p_family[1] == effects.p[1]
    assert effects.beyond.p.tolist() == [effects.p[0], effects.p_family[1]] and effects.beyond.n_draws == 19


def test_ranks_are_of_refits_alone_and_prompts_are_weighted():
    effects = Effects.of(made_up([9.0, 1.0, 2.0, 4.0], how="direction"), 20, rng())
    assert np.isnan(effects.p).all() and np.isnan(effects.beyond.p).all()
    controls = rng().normal(size=(99, 4))
    observed = np.array([0.0, 1.0, 3.5, -4.0])
    p = Estimates(observed).permuted(controls, asks="either").p
    every = np.vstack([observed, controls])
    every = np.abs((every - every.mean(axis=0)) / every.std(axis=0))
    np.testing.assert_allclose(p, [(1 + (every[1:].max(axis=1) >= e).sum()) / 100 for e in every[0]])
    assert p[3] < p[0]
    under = {"a": {name: np.array([1.0, 2, 3]) for name in ("kl", "later_r2")}}
    under["a"] |= {f"{name}.of": np.array([1.0, 2, 1]) for name in ("kl", "later_r2")}
    weights = np.array([[1, 1, 1], [3, 0, 0], [0, 2, 1]])
    np.testing.assert_allclose(readings(under, ["a"], "kl", weights)[0], [6 / 4, 6 / 4, 1, 7 / 5])
    assert readings(under, ["a"], "later_r2", weights)[0, 0] == pytest.approx(1 - 1.5)


def test_whole_clusters_of_whole_interventions_are_resampled():
    """Six prompts of either cluster move alike: two of twelve is what is resampled."""
    under = {name: read | {"cluster": np.repeat([0, 1], 6)} for name, read in made_up([9.0, 1.0, 3.0, 2.0]).items()}
    under[str(Name((1,), "axis", "kept"))] = under[str(Name((1,), "axis"))]
    found = Effects.of(under, 400, rng())
    halves = 9 * (1 + 0.1 * rng(5).normal(size=12)).reshape(2, 6).mean(axis=1)
    every = {*halves.round(9), round(float(halves.mean()), 9)}
    assert set(found.by("axis")[0].round(9)) == every and len(found.names) == 2


def matching(how, alike):
    columns = {
        "layers": ["1"], "layer": [1], "matched_by": [how], "dimensions": [3], "dose": [1.5], "alike": [alike],
        "rejected": [4], "measured_lowest": [0.95], "measured_highest": [1.04],
    }  # fmt: skip
    return Table({name: np.array(values) for name, values in columns.items()}, dict.fromkeys(columns, "1"))


@pytest.mark.parametrize(("alike", "is_said"), [(0.1, False), (ALIKE, False), (0.21, True)])
def test_a_note_says_how_controls_were_matched_and_when_they_are_alike(alike, is_said):
    under = made_up([9.0, 1.0, 2.0, 4.0])
    found = Effects.of(under, 20, rng())
    said = notes(found, matching("subspace", alike), "entropies")
    assert "random subspaces of 3 dimensions" in said[0] and "0.950 to 1.040, 4 draws rejected" in said[0]
    assert "fitted as it was, to entropies permuted" in notes(found, matching("refit", alike), "entropies")[0]
    assert ("They resemble one another" in said[0]) == is_said
    assert len(said) == 1, "later_r2 was read, and neither SULA nor ordinary text"
    assert "change of equal norm" in notes(found, matching("dose", 0.1), "entropies")[0]
    primary = replace(found, names=found.names[:1], readouts=found.readouts[:1])
    assert any("later_r2 is left out" in note for note in notes(primary, matching("dose", 0.1), "entropies"))


@pytest.mark.parametrize("layers", [(), ((1,), ())])
def test_no_layers_are_refused_before_a_model_is_loaded(layers):
    with pytest.raises(UsageError, match="one layer or several"):
        interp.run("no/such-model", probes=[Causal(layers=layers)])


def test_settings_of_the_command_line_are_refused_as_early():
    for field, value, words in [("n_prompts", "half", "whole number"),
                                ("axis", "pc2", "encoding, leace, pc1, ridge"), ("fill", "median", "mean, zero"),
                                ("layers", "1;x", "whole number or middle or all"), ("site", "k", "resid, v, z"),
                                ("at", "first", "all, last, scored")]:  # fmt: skip
        with pytest.raises(UsageError, match=words):
            choose_probes(["causal"], {"causal": {field: value}})
    assert choose_probes(["causal"], {"causal": {"n_controls": "50"}}).probes[0].n_controls == 50


@pytest.mark.parametrize("layers", [((3,),), ((-4,),), ((0, 7),)])
def test_an_unknown_layer_is_refused(layers):
    probe = replace(PROBE, layers=layers)
    with pytest.raises(UsageError, match="layers 0 to 2"):
        list(probe.conditions(capture_of(probe.needs)))


def test_layers_are_named_from_both_ends_and_together():
    probe = replace(PROBE, layers=((-1,), (1, 0), ("middle",), ("all",), ("middle", 1, -2)))
    assert probe._sets(3) == ((2,), (0, 1), (1,), (0, 1, 2))
    asked = make_probe("causal", {"layers": "-1; 0,1;middle ;all"})
    assert asked == Causal(layers=((-1,), (0, 1), ("middle",), ("all",)))
    assert make_probe("causal", {"layers": "0,2"}) == Causal(layers=((0, 2),)), "as records of version 0.1 have it"
    conditions = list(replace(PROBE, layers=((-1,), (0, 1))).conditions(capture_of(PROBE.needs)))
    assert len({c.name for c in conditions}) == len(conditions)
    both = next(c for c in conditions if Name.parse(c.name) == Name((0, 1), "control 3"))
    assert [edit.layer for edit in both.edits] == [0, 1]
    last = next(c for c in conditions if Name.parse(c.name) == Name((2,), "axis"))
    assert last.edits[0].layer == 2 and not any(need.site == "v" for need in last.needs), "no later layer"
    run = Split.of(Cloud.of(capture_of(PROBE.needs), Need("v")), 10, 0).run
    assert all(c.prompts.tolist() == run.tolist() for c in conditions)


def test_language_models_are_also_read_on_evidence_and_sula_prompts_on_ordinary_text():
    probe = replace(PROBE, n_sula=6)
    base = capture_of(probe.needs)
    elsewhere = [c for c in probe.conditions(base) if c.on == "sula"]
    assert elsewhere[0].edits == () and elsewhere[0].n_pool == 42 and elsewhere[0].prompts.tolist() == list(range(6))
    subjects = {Name.parse(c.name).subject for c in elsewhere}
    assert subjects == {"baseline", "axis", "top", "resample", *(f"control {i}" for i in range(19))}
    posterior = np.full((30, 2), 0.5)
    base = synthetic_capture(probe.needs, Shape(n_prompts=30), posterior=posterior)
    assert {c.on for c in probe.conditions(base)} == {None, "mixed"}


def test_the_contract_holds_at_other_fields_and_where_entropy_never_varies():
    check_probe(replace(PROBE, site="resid", axis="ridge", layers=(("all",),), scaling="zscored", at="scored"))
    found = PROBE.analyse(capture_of(PROBE.needs), {})
    assert np.isnan(found["kl"].value) and "not run under edits" in found["kl"].interval_reason
    base = synthetic_capture(PROBE.needs, Shape(n_prompts=30), columns={"next_entropy_bits": np.ones(30)})
    with pytest.raises(UsageError, match="entropy is always the same"):
        list(PROBE.conditions(base))
    assert np.isnan(PROBE.analyse(base, {})["axis_r2"].value)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    layers = (("middle",),)
    probe = Causal(axis="encoding", layers=layers, n_controls=30, n_prompts=12, n_bootstrap=60)
    return interp.run(probes=[probe], n_pool=120, out=tmp_path_factory.mktemp("runs"), quiet=True)


def test_controls_and_principal_axes_are_changed_as_much_as_the_axis_and_cost_distance(shipped):
    matching = shipped.findings["causal"].tables["matching"]
    assert matching["matched_by"].tolist() == ["refit"] and matching["drawn"][0] == 1
    assert matching["measured_lowest"][0] < matching["measured"][0] < matching["measured_highest"][0]
    found = shipped.findings["causal"]
    table = found.tables["conditions"]
    size = dict(zip(table["subject"], table["change_size"], strict=True))
    assert size["top ten, matched"] == pytest.approx(found["change_size"].value, rel=0.05) and size["top ten"] > 0.8
    kl = dict(zip(table["subject"], table["kl"], strict=True))
    assert found["matched_top_kl"].value == kl["top ten, matched"] < found["top_kl"].value == kl["top ten"]
    assert found["matched_top_kl"].interval[0] > 0
    assert found["posterior_kl"].value == pytest.approx(found["kl"].value, rel=0.3), "it was near the posterior before"
    table = found.tables["effects"]
    assert table["role"].tolist() == ["primary"] + ["exploratory"] * (table.n_rows - 1)
    row = table.where(table["readout"] == "posterior_kl")
    assert row["unedited"][0] < 0.02


def test_figures_say_how_to_read_them(shipped):
    figures = Causal().figures(shipped.findings["causal"])
    names = ["among_controls", "later_layers"]
    assert [f.name for f in figures] == names and not_in_tables(shipped.findings["causal"], figures) == []
    controls = figures[0].plot.data[0].x
    assert len(controls) == 30


@pytest.mark.slow
def test_a_language_model_is_read_on_text_and_on_evidence(stories, tmp_path):
    layers = ((1,), (2, 3))
    probe = Causal(n_controls=19, n_prompts=12, n_sula=15, n_bootstrap=40, layers=layers, fill="zero")
    record = interp.run(str(stories), probes=[probe], n_pool=60, out=tmp_path, quiet=True)
    found = record.findings["causal"]
    assert {"kl", "loss", "slope", "sula_kl_beyond_controls"} <= set(found.scalars)
    assert found["kl_beyond_controls"].null.value == 0 and found["kl"].underpowered
    table = found.tables["effects"]
    assert set(table["layers"]) == {"1", "2, 3"} and set(table["on"]) == {"the run's prompts", "sula"}
    assert stats.rankdata(table["p_family"][1:]).size == table.n_rows - 1 and np.isnan(table["p_family"][0])
    assert (record.path / "report.html").is_file()
