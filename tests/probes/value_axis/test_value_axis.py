"""The value axis: planted axes, nuisances, tokens, noise; degenerate pools; the shipped tunnel in float64."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from interp.probes.measures.halves import HalfSplit, label_by_type
from interp.probes.measures.layers import Layer, Scale
from interp.probes.measures.nuisances import Design
from interp.probes.measures.target import Target
from interp.probes.value_axis.evaluation import Evaluation, predicted_by_nuisances, selectivity
from interp.probes.value_axis.probe import ValueAxis
from interp.probes.value_axis.quantities import QUANTITIES
from interp.probes.value_axis.readout import Labels, Read
from interp.probes.value_axis.setting import Treatment, previous_of, surprisal_of

from interp.errors import InterpError
from interp.need import Need
from interp.prompt import Prompt, PromptSet
from interp.reading.batches import row_index
from interp.reading.forward import row_table
from interp.running.spec import make_probe
from interp.statistics.intervals import UNEXPLAINED, chance_half_width, half_split_interval
from interp.testing import Shape, check_probe, synthetic_capture
from tests.quick import quick

SMALL = ValueAxis(sites=("v",), n_permutations=99)
SHAPE = Shape(n_prompts=300)
D = 16


def unit(vector):
    return vector / np.linalg.norm(vector)


def plane(seed=0):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((D, 2)))[0].T


def world(points, entropy, seed=0, probe=SMALL, **columns):
    """One layer planted, two of noise, read at the planted one."""
    n = len(entropy)
    rng = np.random.default_rng(seed)
    values = np.concatenate([points[None], rng.standard_normal((2, n, D))]).reshape(3, n, 2, 8)
    probe = replace(probe, layer=0, seed=seed)
    n_scored = columns.pop("n_scored", 1)
    shape = replace(SHAPE, n_prompts=n // n_scored, n_scored=n_scored)
    return probe.analyse(
        synthetic_capture(
            probe.needs, shape, planted={"v": values}, columns={"next_entropy_bits": entropy, **columns}, seed=seed
        ),
        {},
    )


def planted(seed=0, n=400, loud=10.0, noise=0.5):
    """Entropy along a quiet direction of deviation 1, beside a loud one that knows nothing."""
    rng = np.random.default_rng(seed)
    told, other = plane(seed)
    coordinate = rng.standard_normal(n)
    points = rng.standard_normal((n, D)) * 0.3
    points += np.outer(coordinate - points @ told, told) + np.outer(loud * rng.standard_normal(n), other)
    return points, 5 + coordinate + noise * rng.standard_normal(n), told, other


@cache
def found_in_planted():
    """What is found in the world of `planted()`."""
    points, entropy, *_ = planted()
    return world(points, entropy)


@pytest.mark.slow
def test_conformance_on_sequences():
    probe = replace(SMALL, sites=("v", "resid"))
    check_probe(probe, synthetic_capture(probe.needs, Shape(n_prompts=40, n_scored=6)))


def test_a_quiet_direction_is_found_by_ridge_and_missed_by_pc1():
    *_, told, other = planted()
    found = found_in_planted()
    assert found["r2"].value == pytest.approx(1 / 1.25, abs=0.06)  # variance 1 of 1 + 0.5²
    assert found["correlation"].value == pytest.approx(np.sqrt(0.8), abs=0.04)
    assert found["r2"].p == found["correlation"].p == 0.01
    assert found.arrays["v.ridge.axis"][0] @ told > 0.87  # 1 / √(1 + 14 (0.5 / 0.3)² / 200) = 0.91
    assert abs(found.arrays["v.pc1.axis"][0] @ other) > 0.999
    assert found["pc1_r2"].value == pytest.approx(0, abs=0.05)
    assert found["axis_cosine"].value < 0.1
    table = found.tables["by_layer"]
    noise = (table["layer"] > 0) & (table["axis"] == "ridge")
    assert (table["r2_p"][noise] > 0.05).all()


def test_a_loud_direction_is_found_by_both_axes_which_agree():
    points, entropy, told, _ = planted(loud=0.2)
    found = world(points, entropy)
    assert found["pc1_r2"].value == pytest.approx(found["r2"].value, abs=0.05)
    assert found["axis_cosine"].value > 0.85
    # permuted entropies are drawn to a loud axis too: a description, and never called
    assert found["axis_cosine"].p is None and found["axis_cosine"].underpowered
    assert "3 of 40 simulations" in found["axis_cosine"].null_reason
    # both axes are turned so that entropy rises along them
    assert found.arrays["v.pc1.axis"][0] @ told > 0.97 and found.arrays["v.ridge.axis"][0] @ told > 0.87


@pytest.mark.parametrize(("between", "within"), quick([(1.0, 0.0)], [(1.0, 0.0), (0.0, 1.0)]))
def test_between_and_within_clusters_are_told_apart(between, within):
    """By hand: one half's deviations from the mean of their cluster predict those of clusters that are not in it."""
    rng = np.random.default_rng(4)
    cluster = np.repeat(np.arange(100), 4)
    shared, own = rng.standard_normal(100)[cluster], rng.standard_normal(400)
    own -= (np.bincount(cluster, own) / 4)[cluster]
    points = 0.3 * rng.standard_normal((400, D)) + np.outer(shared + own, unit(np.ones(D)))
    entropy = 5 + between * shared + within * own + 0.3 * rng.standard_normal(400)
    found = world(points, entropy, cluster=cluster)["r2_within_clusters"]
    deviations = [x - (np.array([x[cluster == c].mean(0) for c in range(100)]))[cluster] for x in (points, entropy)]
    fit, held_out = np.arange(400) < 200, np.arange(400) >= 200
    slope = np.linalg.lstsq(deviations[0][fit], deviations[1][fit], rcond=None)[0]
    left = deviations[1] - deviations[0] @ slope
    by_hand = 1 - np.sum(left[held_out] ** 2) / np.sum(deviations[1][held_out] ** 2)
    assert found.value == pytest.approx(by_hand, abs=0.1) and found.n_clusters == 100 and not found.underpowered
    assert (found.p <= 0.05, found.value > 0.5) == ((True, True) if within else (False, False))
    assert "r2_within_clusters" not in world(points, entropy).scalars  # prompts that are alone


def test_clusters_of_a_single_prompt_are_not_read_within_and_count_among_those_that_would_do():
    cluster = np.r_[np.repeat(np.arange(25), 4), 25 + np.arange(15)]
    rng = np.random.default_rng(0)
    found = world(rng.standard_normal((115, D)), rng.uniform(0, 8, 115), cluster=cluster)["r2_within_clusters"]
    assert (found.n, found.n_clusters, found.enough) == (100, 25, -(-30 * 40 // 25)) and found.underpowered


def test_entropy_that_position_tells_exactly_is_undefined_beyond_it_and_says_so():
    per = 6
    entropy = np.tile(np.linspace(5, 1, per), 40)
    rng = np.random.default_rng(0)
    points = rng.standard_normal((240, D))
    found = world(points, entropy, n_scored=per)
    assert np.isnan(found["r2_beyond_token"].value)
    assert found["r2_beyond_token"].null_reason == (
        "the entropy does not vary, or the token and the nuisances predict it exactly"
    )


def test_telling_tokens_apart_is_not_selective_and_telling_entropy_is():
    rng = np.random.default_rng(0)
    n, n_types = 400, 8
    token = rng.integers(0, n_types, n)
    per_type = rng.uniform(0, 8, n_types)
    points = rng.standard_normal((n, D)) * 0.05
    points[:, :n_types] += np.eye(n_types)[token]
    by_token = world(points, per_type[token] + 0.01 * rng.standard_normal(n), token=token)
    assert by_token["r2"].value > 0.9
    assert abs(by_token["selectivity"].value) < 0.05
    control = by_token.tables["axes"]["control_r2"][0]
    assert by_token["selectivity"].value == pytest.approx(by_token["r2"].value - control)
    points, entropy, *_ = planted()
    by_entropy = world(points, entropy, token=token)
    assert by_entropy["selectivity"].value == pytest.approx(by_entropy["r2"].value, abs=0.05)
    assert by_entropy["selectivity"].value > by_entropy["selectivity"].null.band[1]


def test_standardised_axes_are_saved_as_covector_and_displacement():
    points, entropy, *_ = planted()
    points = points * np.linspace(0.1, 30, D)
    found = world(points, entropy, probe=replace(SMALL, scaling="zscored"))
    axis, moved, sigma = (found.arrays[f"v.{name}"][0] for name in ("ridge.axis", "ridge.displacement", "sigma"))
    assert unit(axis * sigma**2) == pytest.approx(moved, abs=1e-9)  # w/σ times σ² is σ w
    assert np.linalg.norm(axis) == pytest.approx(1) and np.linalg.norm(moved) == pytest.approx(1)
    held_out = found.tables["held_out"]
    score = (points[held_out["prompt"]] - found.arrays["v.mean"][0]) @ axis
    assert np.corrcoef(score, held_out["predicted_bits"])[0, 1] == pytest.approx(1, abs=1e-9)
    fitting = np.setdiff1d(np.arange(len(points)), held_out["prompt"])
    assert np.polyfit(score, held_out["predicted_bits"], 1)[1] == pytest.approx(entropy[fitting].mean())
    assert sigma == pytest.approx(points[fitting].std(axis=0))
    assert found.arrays["v.mean"][0] == pytest.approx(points[fitting].mean(axis=0))


def test_axes_do_not_see_the_judged_half():
    points, entropy, *_ = planted()
    first = found_in_planted()
    held_out = first.tables["held_out"]["prompt"]
    changed, other = points.copy(), entropy.copy()
    changed[held_out] = changed[held_out][::-1] * 2
    other[held_out] = other[held_out][::-1]
    second = world(changed, other)
    for name in ("v.ridge.axis", "v.pc1.axis", "v.mean", "v.sigma"):
        assert first.arrays[name][0] == pytest.approx(second.arrays[name][0], abs=1e-12)
    assert first["r2"].value != second["r2"].value


def test_four_prompts_are_read_and_unknown_sites_refused_in_words():
    rng = np.random.default_rng(0)
    assert world(rng.standard_normal((4, D)), rng.uniform(0, 8, 4))["r2"].underpowered
    with pytest.raises(InterpError, match="Known: resid, v, z"):
        make_probe("value_axis", {"sites": "v,q"})
    with pytest.raises(InterpError, match="Choose among v, z, resid"):
        ValueAxis(sites=()).refuse_fields(None)
    assert ValueAxis(sites=("resid", "v")).needs == (Need("resid"), Need("v"), Need("next_loss", at="before_last"))
    assert make_probe("value_axis", {"sites": "resid, v"}) == ValueAxis(sites=("resid", "v"))


def test_every_token_has_one_label_drawn_from_all():
    rng = np.random.default_rng(0)
    types, entropy = rng.integers(0, 5, 50), rng.uniform(0, 8, 50)
    labels = label_by_type(types, entropy, 30, rng)
    for t in range(5):
        assert np.ptp(labels[types == t], axis=0).max() == 0
    assert np.isin(labels, entropy).all()
    assert len(np.unique(labels[:, 0])) > 1


COUNTED = {"n": 60, "n_unit": "prompt", "underpowered": False}


def made_evaluation(*reason_and_beyond):
    """One target with three exchanges and two control tasks, at two places of which the second cannot be read."""
    rng = np.random.default_rng(0)
    labels = Labels(("next_entropy_bits",), np.arange(60), np.zeros((60, 3)), np.zeros((60, 3), np.float32))
    r2 = np.array([0.7, 0.3, 0.1, 0.1, -0.2, 0.4]) + 0.05 * rng.standard_normal((10, 6))
    nothing, added = np.full((10, 6), np.nan), np.full((10, 60, 1), np.nan)
    reads = [Read(r2, np.sqrt(r2.clip(0.01)), r2, added, False), Read(nothing, nothing, nothing, added, True)]
    points = np.zeros((60, 2))
    places = [Layer("v", layer, points, Scale.of(points, "centred"), n) for layer, n in enumerate((60, 1))]
    return Evaluation("next_entropy_bits", Treatment(labels, (), COUNTED, *reason_and_beyond), places, reads), r2


def said(name, found):
    """The scalars of both places."""
    quantities = QUANTITIES.filled(**Target().slots, drawn="prompt", within="entropies permuted within tokens")
    return [quantities.scalar(name, found, place) for place in range(len(found.value))]


def test_r2_is_the_mean_over_half_splits_with_its_exchanges_for_a_null():
    evaluation, r2 = made_evaluation()
    found, undefined = said("r2", evaluation.r2)
    means = r2.mean(axis=0)
    assert found.value == pytest.approx(means[0]) and found.p == 1 / 4
    assert found.null.value == pytest.approx(means[3:].mean())
    assert found.null.band == pytest.approx(tuple(np.quantile(means[3:], [0.025, 0.975])))
    assert found.interval == pytest.approx(half_split_interval(r2[:, 0], UNEXPLAINED, chance_half_width(means[3:])))
    assert np.isnan(undefined.value) and undefined.null_reason == "nothing varies in these activations"
    assert undefined.underpowered and not found.underpowered


def test_what_depends_on_the_token_alone_reads_zero_beyond_it():
    evaluation, _ = made_evaluation("", True)
    found, void = said("r2_beyond_token", evaluation.r2)
    assert found.value > 0.5 and found.null.name == "refitted on entropies permuted within tokens"
    assert void.value == 0.0 and void.p is None and "last token alone" in void.null_reason
    assert np.isnan(evaluation.correlation.value[1])
    few, _ = made_evaluation("too few share", True)
    assert few.why_undefined(1) == "too few share"


@pytest.mark.parametrize("name", QUANTITIES)
def test_what_was_taken_out_is_said_and_only_then(name):
    is_beyond = name.endswith("_beyond_token")
    assert ("beyond everything the last token determines" in QUANTITIES[name].meaning) == is_beyond


def test_the_best_layer_says_which_it_is():
    evaluation, r2 = made_evaluation()
    added = np.random.default_rng(1).standard_normal((10, 60, 1))
    better = Read(r2 + 0.05, r2, np.where(np.arange(10)[:, None] < 8, r2 + 1, r2 - 1), added, False)
    best = replace(evaluation, reads=[*evaluation.reads, better]).best_layer(3)
    found = QUANTITIES.scalar("best_layer_r2", best)
    assert found.value == pytest.approx((r2[:, 0] + 0.05 * (np.arange(10) < 8)).mean())
    assert "Layer 2 in 80%" in found.meaning and found.p == 1 / 4 and not found.p_over


def test_the_best_of_layers_where_nothing_varies_says_so_and_blames_no_token():
    evaluation, _ = made_evaluation()
    void = replace(evaluation, reads=[evaluation.reads[1]] * 2).best_layer(2)
    assert QUANTITIES.scalar("best_layer_r2", void).null_reason == "nothing varies in these activations"


def test_an_embedding_holds_nothing_beyond_its_token():
    rng = np.random.default_rng(0)
    token, embeddings = rng.integers(0, 12, 240), rng.standard_normal((12, 32))
    probe = replace(SMALL, sites=("v", "resid"))
    stream = rng.standard_normal((4, 240, 32))
    stream[0] = embeddings[token]
    planted = {"resid": stream.astype(np.float32)}
    capture = synthetic_capture(probe.needs, Shape(240), planted=planted, columns={"token": token})
    table = probe.analyse(capture, {}).tables["by_layer"]
    beyond = (table["site"] == "resid") & (table["nuisances"] == "token")
    assert (table["r2"][beyond & (table["layer"] == 0)] == 0).all()
    assert (table["r2"][beyond & (table["layer"] > 0)] != 0).all()


def test_selectivity_is_above_control_tasks_and_its_null_is_zero():
    evaluation, r2 = made_evaluation()
    selective, controls = selectivity(evaluation)
    found, undefined = said("selectivity", selective)
    differences = r2[:, 0] - r2[:, 1:3].mean(axis=1)
    assert found.value == pytest.approx(differences.mean()) and controls[0] == pytest.approx(r2[:, 1:3].mean())
    half = 2.2621572 * np.sqrt(1.1) * differences.std(ddof=1)
    assert found.interval == pytest.approx((found.value - half, found.value + half))
    gap = r2[:, 1].mean() - r2[:, 2].mean()
    assert found.null.value == 0.0
    assert found.null.band[1] == pytest.approx(12.706205 * abs(gap) * np.sqrt(2) * np.sqrt(1.5))
    assert np.isnan(undefined.value) and undefined.null_reason == "nothing varies in these activations"


def test_what_nuisances_tell_is_a_regression_fitted_on_one_half():
    rng = np.random.default_rng(1)
    length = rng.integers(5, 20, 60).astype(float)
    entropy = 0.3 * length + rng.standard_normal(60)
    permuted = np.array([rng.permutation(entropy) for _ in range(19)]).T
    half_splits = [HalfSplit.of(*np.split(rng.permutation(60), 2), np.empty((60, 0))) for _ in range(4)]
    design = Design(np.column_stack([np.ones(60), length]), ("length",))
    (found,) = said("nuisance_r2", predicted_by_nuisances(np.c_[entropy, permuted], design, half_splits, COUNTED))

    def r2(labels):
        by_half_split = []
        for h in half_splits:
            line = np.polyfit(length[h.fitting], labels[h.fitting], 1)
            left = labels[h.held_out] - np.polyval(line, length[h.held_out])
            whole = labels[h.held_out] - labels[h.fitting].mean()
            by_half_split.append(1 - np.square(left).sum() / np.square(whole).sum())
        return np.mean(by_half_split)

    assert found.value == pytest.approx(r2(entropy)) and "length alone predict" in found.meaning
    assert found.null.value == pytest.approx(np.mean([r2(x) for x in permuted.T])) and found.p == 1 / 20
    assert found.interval[0] < found.value < found.interval[1]
    bare = Design(np.ones((60, 1)), ())
    (nothing,) = said("nuisance_r2", predicted_by_nuisances(np.c_[entropy, permuted], bare, half_splits, COUNTED))
    assert nothing.null_reason == "no nuisance varies" and "no nuisance that varies alone predict" in nothing.meaning


TOKEN_COUNTS = np.repeat(np.arange(40), np.r_[80, 40, 20, [10] * 8, [4] * 29][:40])


@cache
def token_world(share, told=0.0):
    """Activations that hold the token and noise, entropies of which the token makes a share and noise `told`."""
    rng, n = np.random.default_rng(0), 300
    token = rng.choice(TOKEN_COUNTS, n)
    of_token = np.random.default_rng(1).standard_normal((40, D + 1))
    noise, domain = rng.standard_normal((n, D)), rng.integers(0, 3, n)
    entropy = np.sqrt(share) * of_token[token, D] + np.sqrt(1 - share) * (
        np.sqrt(told) * noise[:, 3] + np.sqrt(1 - told) * rng.standard_normal(n)
    )
    points = 1.5 * of_token[token, :D] + noise
    return world(points, entropy + 0.5 * domain, token=token, domain=np.array(["a", "b", "c"])[domain])


def test_beyond_the_token_only_what_is_there_is_found():
    without, much = token_world(0.0), token_world(0.6)
    assert much["r2"].value > without["r2"].value + 0.05
    # entropies are the same but for their scale once the token is out
    for name in ("r2_beyond_token", "correlation_beyond_token", "best_layer_r2_beyond_token"):
        assert much[name].value == pytest.approx(without[name].value, abs=1e-6) and much[name].p > 0.05
    assert much["nuisance_r2"].value > 0.2 and "token frequency" in much["nuisance_r2"].meaning
    found = token_world(0.3, told=0.5)
    assert found["r2_beyond_token"].p == 0.01 and 0.2 < found["r2_beyond_token"].value < 0.6
    assert found.standing("r2") == "above" and much.standing("r2") == "within"
    assert [control.scalar for control in found.controls["r2"]] == ["r2_beyond_token"]
    assert any("last tokens" in note and "recurs in their half" in note for note in found.notes)


@pytest.mark.slow
def test_too_few_recurring_tokens_are_underpowered_and_say_how_many_prompts_would_do():
    rng = np.random.default_rng(0)
    token = np.r_[np.arange(200), rng.integers(300, 306, 60)]
    found = world(rng.standard_normal((260, D)), rng.uniform(0, 8, 260), token=token)
    few = found["r2_beyond_token"]
    assert few.underpowered and 55 <= few.n <= 60 and few.enough == -(-200 * 260 // few.n)
    assert not found["r2"].underpowered
    none = world(rng.standard_normal((260, D)), rng.uniform(0, 8, 260), token=np.arange(260))
    assert np.isnan(none["r2_beyond_token"].value) and "share their last token" in none["r2_beyond_token"].null_reason


def test_surprisals_and_tokens_before_the_last_are_of_texts_alone_and_in_their_order():
    needs = ValueAxis().needs
    capture = synthetic_capture(needs, Shape(30))
    assert next(iter(surprisal_of(capture).values())) == pytest.approx(capture[needs[-1]])
    shown = capture.rows_at("before_last").with_column("token_before", np.arange(30), "index")
    found = previous_of(replace(capture, tables={**capture.tables, "before_last": shown.where(np.arange(1, 30))}))
    assert found["second"].tolist() == [-1, *range(1, 30)] and found["previous"].tolist() == [-1, *[0] * 29]
    sequences = synthetic_capture(needs, Shape(10, n_scored=4))
    assert surprisal_of(sequences) == previous_of(sequences) == {}
    prompts = PromptSet("ids", [Prompt(text=text) for text in ("a b c", "a", "b c")])
    ids = [np.array([4, 5, 6]), np.array([7]), np.array([8, 9])]
    rows = row_table(prompts, ids, row_index(prompts, np.array([3, 1, 2]), "before_last"), "before_last", None)
    assert rows["prompt"].tolist() == [0, 2] and rows["token"].tolist() == [5, 8]
    assert rows["token_before"].tolist() == [4, -1]
