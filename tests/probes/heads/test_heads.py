"""Heads: planted ones are found and absent ones inert, numbers equal their definitions, error rates, the screen."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from interp.probes.heads.choice import Choice
from interp.probes.heads.edits import PARTS, UNEDITED, Plan
from interp.probes.heads.estimates import agreement, error_ratio, missed, top_head
from interp.probes.heads.figures import _map
from interp.probes.heads.probe import Heads
from interp.probes.heads.quantities import QUANTITIES
from interp.probes.measures.harm import Scores, choose_prompts, chosen_measure, units_of
from interp.probes.measures.sign_flips import harm_estimates
from interp.wind_tunnels.networks.networks import Network, build
from interp.wind_tunnels.tasks.bijection import Bijection
from scipy import stats

import interp
from interp.editing.conditions import Run, read_conditions
from interp.editing.screen import read_screen
from interp.errors import PromptError, UsageError
from interp.information import entropy_bits, kl_bits
from interp.loading.load import load
from interp.need import Need
from interp.prompt import Prompt, PromptSet
from interp.prompting.tunnel_sequences import sampled_prompts
from interp.reading.forward import capture
from interp.statistics.units import Units
from interp.table import Table
from interp.testing import Shape, check_probe, synthetic_capture
from tests.read_back import not_in_tables
from tests.tiny_models import VOCAB, fresh_model, wrap

SMALL = Heads(n_random=3, n_sets=2, n_donors=2, n_permutations=99, n_bootstrap=60)
OUTCOMES = np.arange(5)


class Fed(Heads):
    """The probe on simulated readouts, for the conformance check, which gives none."""

    def analyse(self, base, under):
        return super().analyse(base, under or noisy(self, base))


@pytest.mark.parametrize("shape", [Shape(n_prompts=40), Shape(n_prompts=30, n_scored=4)])
def test_conformance_with_read_outs(shape):
    probe = Fed(**SMALL.parameters())
    found = check_probe(probe, synthetic_capture(probe.needs, shape))
    assert {"top_head_ratio", "top_head_ratio_resample", "top_head_ratio_entropy_error", "bypass_ratio_min",
            "late_attention_off", "compounding"} <= set(found.scalars)  # fmt: skip
    assert [f.name for f in probe.figures(found)] == [
        "map_zero", "map_mean", "map_resample", "ranked", "by_layer", "sets",
    ]  # fmt: skip
    assert not_in_tables(found, probe.figures(found)) == []
    heat = probe.figures(found)[2].plot.data[0]
    np.testing.assert_array_equal(np.asarray(heat.z), column(found, "posterior_kl", "resample", None).reshape(3, 4).T)


def test_the_map_marks_heads_above_and_below_their_null_and_only_the_first_map_does():
    n = np.arange(6)
    null = {"null": np.where(n < 3, 1.0, np.nan), "null_low": np.full(6, 0.5), "null_high": np.full(6, 1.5)}
    harm = np.array([2.0, 1.0, 0.1, 9.0, 9.0, 9.0])
    columns = {
        "how": np.repeat(["zero", "mean"], 3), "layer": np.zeros(6, int), "head": n % 3, "posterior_kl": harm,
        "posterior_kl_low": harm - 0.05, "posterior_kl_high": harm + 0.05, **null,
    }  # fmt: skip
    table = Table(columns, dict.fromkeys(columns, "1"))
    first, second = _map(table, "zero"), _map(table, "mean")
    _, more, less = first.plot.data
    assert (more.y.tolist(), less.y.tolist()) == ([0], [2]) and more.name == "more harm than the null"
    assert more.x.tolist() == less.x.tolist() == [0] and "Rings" in first.reading
    assert len(second.plot.data) == 1 and "the first ablation has it" in second.reading


def text_capture(n=30):
    base = synthetic_capture(SMALL.needs, Shape(n_prompts=n))
    return replace(base, posterior=None, prompts=replace(base.prompts, posterior=None, outcome_ids=None))


def test_texts_without_a_posterior_are_measured_by_change_and_loss():
    base = text_capture()
    found = SMALL.analyse(base, noisy(SMALL, base))
    assert {"next_kl", "loss"} <= set(found.tables["by_head"].columns)
    assert "posterior_kl" not in found.tables["by_head"] and "loss" in found.scalars
    assert {"top_head_ratio", "top_head_ratio_loss", "bypass_ratio_min", "late_attention_off"} <= set(found.scalars)


def token_run(model, n=12):
    """Random tokens; the posterior is nine parts what the model itself answers, one part uniform: any edit is harm."""
    rng = np.random.default_rng(0)
    ids = [rng.integers(0, VOCAB, 9) for _ in range(n)]
    prompts = [Prompt(token_ids=tuple(x.tolist()), scored=(3, 8)) for x in ids]
    posterior = 0.9 * restricted(model.module, ids) + 0.1 / len(OUTCOMES)
    return Run(PromptSet("tokens", prompts, posterior=posterior, outcome_ids=OUTCOMES), ids)


def restricted(module, ids):
    """The model's distribution over the outcomes at the scored positions, `[row, outcome]`."""
    with torch.inference_mode():
        logits = module(input_ids=torch.from_numpy(np.stack(ids))).logits[:, [3, -1]].double()
    return torch.softmax(logits[..., OUTCOMES], dim=-1).flatten(0, 1).numpy()


def measured(model, probe, run):
    base = capture(model, run.prompts, run.ids, probe.needs)
    screen = probe.screening(base)
    under = {} if screen is None else read_screen(model, run, screen)
    under |= read_conditions(model, run, probe.conditions(base))
    while further := [c for c in probe.further_conditions(base, under) if c.name not in under]:
        under |= read_conditions(model, run, further)
    return probe.analyse(base, under), under


def without(model, heads, layer=1):
    """A copy of a Llama whose W_O reads none of these heads of a layer."""
    module = copy.deepcopy(model.module)
    weight = module.model.layers[layer].self_attn.o_proj.weight
    for head in heads:
        weight.data[:, head * model.info.d_head : (head + 1) * model.info.d_head] = 0
    return wrap(module)


def column(found, name, how="zero", layer=1):
    table = found.tables["by_head"]
    at = slice(None) if layer is None else table["layer"][table["how"] == how] == layer
    return table[name][table["how"] == how][at]


def test_a_head_that_nobody_reads_has_no_effect_and_its_neighbour_on_the_same_values_has():
    model = without(fresh_model("llama"), [0])
    found, _ = measured(model, SMALL, token_run(model))
    for how in ("zero", "mean", "resample"):
        for name in ("posterior_kl", "entropy_error", "next_kl"):
            harm = column(found, name, how)
            assert harm[0] == pytest.approx(0, abs=1e-6)
            assert name == "entropy_error" or (harm[1:] > 1e-4).all()
    assert any("share 2 KV heads" in note for note in found.notes)


def test_effects_equal_those_of_a_model_with_the_weights_taken_out():
    model = fresh_model("llama")
    run = token_run(model)
    found, under = measured(model, SMALL, run)
    p = run.prompts.posterior

    def errors(module):
        q = restricted(module, run.ids)
        return np.stack([kl_bits(p, q), np.abs(entropy_bits(q) - entropy_bits(p))]).reshape(2, 12, 2).mean(axis=2)

    before = errors(model.module)
    assert found["posterior_kl"].value == pytest.approx(before[0].mean(), abs=1e-6)
    for head in range(4):
        harm = (errors(without(model, [head]).module) - before).mean(axis=1)
        assert column(found, "posterior_kl")[head] == pytest.approx(harm[0], abs=1e-5)
        assert column(found, "entropy_error")[head] == pytest.approx(harm[1], abs=1e-5)
    everybody = without(without(model, range(4), 1), range(4), 2)
    assert found["late_attention_off"].value == pytest.approx(errors(everybody.module)[1].mean(), abs=1e-5)
    assert found["late_attention_off"].null.value == pytest.approx(before[1].mean(), abs=1e-6)
    table = found.tables["by_layer"]
    ratios = table.where(table["part"] == PARTS[0])
    errors_bypassed = [under[f"{PARTS[0]} {layer}"]["entropy_error"].mean() for layer in range(3)]
    np.testing.assert_allclose(ratios["ratio"], errors_bypassed / before[1].mean(), rtol=1e-4)
    assert found["bypass_ratio_min"].value == pytest.approx(ratios["ratio"].min())


@pytest.mark.parametrize("cluster", [np.arange(20) // 5, np.arange(20) % 7, np.minimum(np.arange(20), 12)])
def test_no_cluster_ranks_heads_and_judges_them(cluster):
    base = synthetic_capture(SMALL.needs, Shape(20), columns={"cluster": cluster})
    judged = SMALL._held_out(SMALL._scores(base, {}))
    assert judged.any() and not judged.all()
    assert not set(cluster[judged]) & set(cluster[~judged])


def test_the_worst_heads_are_ranked_on_one_half_and_removed_together():
    model = fresh_model("llama")
    run = token_run(model, n=20)
    base = capture(model, run.prompts, run.ids, SMALL.needs)
    under = read_conditions(model, run, SMALL.conditions(base))
    plan = SMALL._plan(base.model)
    ranked = ~SMALL._held_out(SMALL._scores(base, under))
    assert ranked.sum() == 10
    harm = [
        (under[plan.single("zero", h)]["posterior_kl"] - under[UNEDITED]["posterior_kl"])[ranked].mean()
        for h in range(12)
    ]
    order = np.argsort(harm)[::-1]
    for condition in SMALL.further_conditions(base, under):
        removed = {4 * e.layer + h for e in condition.edits for h in e.heads}
        assert removed == set(order[: len(removed)].tolist()) and f"top {len(removed)} heads" == condition.name
        assert condition.name not in under
    assert [c.name for c in SMALL.further_conditions(base, under)] == ["top 2 heads", "top 4 heads", "top 8 heads"]


def test_a_network_without_attention_has_layers_alone():
    task = Bijection(V=5, L=5)
    model = load(build(Network(arch="lstm", n_layers=2, d_model=16), task, torch.Generator().manual_seed(0)))
    prompts = sampled_prompts(task, 8, 0)
    found, _ = measured(model, SMALL, Run(prompts, [np.array(p.token_ids) for p in prompts]))
    assert set(found.tables) == {"by_layer"} and "top_head_ratio" not in found.scalars
    assert found.headline == ("bypass_ratio_min",) and any("no attention heads" in note for note in found.notes)


def units(n, n_bootstrap=200, seed=0):
    number = np.arange(n)
    weights = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=n_bootstrap)
    return Units(number, number, number, weights, "sequence")


def flips(n, n_permutations=199, seed=1):
    return np.random.default_rng(seed).choice([-1.0, 1.0], size=(n_permutations, n))


def test_top_head_equals_its_definition():
    effects = np.random.default_rng(0).gamma(2, 1, (40, 5)) * [1, 4, 2, 1, 0.5]
    found = top_head(effects, units(40), flips(40, 99))
    mean = effects.mean(axis=0)
    assert (found.top, found.second) == (1, 2)
    assert found.ratio[0] == pytest.approx(mean[1] / mean[2])
    assert found.share[0] == pytest.approx(mean[1] / mean.sum()) and found.p == 0.01
    again = units(40).weights[7] @ effects / 40
    assert found.ratio[1 + 7] == pytest.approx(again[1] / again[2])
    gaps = []
    for sign, ratio in zip(flips(40, 99), found.permuted_ratio, strict=True):
        swapped = np.where(sign[:, None] < 0, effects[:, [2, 1]], effects[:, [1, 2]]).mean(axis=0)
        assert ratio == pytest.approx(swapped.max() / swapped.min())
        gaps.append(np.ptp(swapped))
    near = top_head(effects[:, [0, 3]], units(40), flips(40, 99))
    own = np.abs(flips(40, 99) @ (effects[:, 0] - effects[:, 3])) / 40
    assert near.p == (1 + (own >= abs(mean[0] - mean[3])).sum()) / 100
    assert found.p == (1 + (np.array(gaps) >= mean[1] - mean[2]).sum()) / 100


def test_every_layer_is_needed_only_where_every_one_is():
    """One layer of four does nothing: the intersection-union p stays at or below the nominal rate."""
    called = 0
    for seed in range(200):
        rng = np.random.default_rng([8, seed])
        baseline = rng.gamma(4, 0.1, 30)
        harm = rng.normal([0.0, 0.5, 0.5, 0.5], 0.2, (30, 4))
        found = error_ratio(baseline[:, None] + harm, baseline, units(30, 60, seed), flips(30, seed=seed))
        called += found.p.max() <= 0.05
        assert found.value.argmin() == 0
    assert called / 200 < 0.05 + 0.05
    needed = error_ratio(baseline[:, None] * 3.0 * np.ones(4), baseline, units(30), flips(30))
    assert needed.p.max() == 0.005
    np.testing.assert_allclose(needed.value, 3.0)
    np.testing.assert_allclose(needed.interval, 3.0)


def test_an_entry_that_some_units_do_not_feel_is_tested_like_any_other():
    effects = np.random.default_rng(3).normal(0.2, 1, (12, 3))
    effects[4, 1], effects[7, 2] = 0.0, np.nan
    signs = flips(12)
    n = np.array([12, 12, 11])
    spread = np.sqrt(np.nansum(np.square(effects), axis=0)) / n
    observed = np.abs(np.nanmean(effects, axis=0)) / spread
    flipped = np.abs(signs @ np.nan_to_num(effects)) / n / spread
    expected = [(1 + (flipped.max(axis=1) >= x - 1e-12).sum()) / 200 for x in observed]
    found = harm_estimates(effects, units(12), signs)
    np.testing.assert_allclose(found.p, expected)
    np.testing.assert_allclose(found.value, np.nanmean(effects, axis=0))


def test_the_share_of_harm_leaves_heads_that_help_out():
    effects = np.array([[3.0, 1.0, -5.0], [5.0, 1.0, -1.0]])
    found = top_head(effects, units(2, 40), flips(2))
    assert found.share[0] == 4 / 5 and found.ratio[0] == 4
    np.testing.assert_allclose(np.unique(found.share[1:].round(9)), [0.75, 0.8, 5 / 6])
    nothing = top_head(-np.ones((4, 2)), units(4, 10), flips(4))
    assert np.isnan([nothing.ratio[0], nothing.share[0]]).all() and nothing.p == 1


def test_tables_hold_what_they_say():
    base = synthetic_capture(SMALL.needs, Shape(n_prompts=30))
    under = noisy(SMALL, base)
    found, plan = SMALL.analyse(base, under), SMALL._plan(base.model)
    before = under[UNEDITED]["posterior_kl"]

    def harm(name):
        return under[name]["posterior_kl"] - before

    draws = [harm(plan.single("resample", 7, draw)).mean() for draw in range(2)]
    assert column(found, "posterior_kl", "resample", 1)[3] == pytest.approx(np.mean(draws))
    assert column(found, "donor_sd", "resample", 1)[3] == pytest.approx(np.std(draws, ddof=1))
    random = [harm(name).mean() for name in plan.random(1)]
    for name, value in (("null", np.mean(random)), ("null_low", min(random)), ("null_high", max(random))):
        assert column(found, name)[0] == pytest.approx(value) and np.isnan(column(found, name, "mean")).all()
    sets, judged = found.tables["sets"], SMALL._held_out(SMALL._scores(base, under))
    assert sets["top"][1] == pytest.approx(harm(plan.top(4))[judged].mean())
    members = [sum(harm(plan.single("zero", h)).mean() for h in chosen.tolist()) for chosen in plan.sets(4)]
    joint = [harm(plan.set_of(4, i)).mean() for i in range(2)]
    assert sets["summed"][1] == pytest.approx(np.mean(members)) and sets["joint"][1] == pytest.approx(np.mean(joint))
    assert sets["excess"][1] == pytest.approx(np.mean(joint) - np.mean(members))
    assert (sets["joint_least"][1], sets["joint_most"][1]) == pytest.approx((min(joint), max(joint)))


@pytest.mark.parametrize(("n", "few"), [(19, True), (20, False)])
def test_fewer_than_twenty_prompts_are_underpowered(n, few):
    base = synthetic_capture(SMALL.needs, Shape(n_prompts=n))
    found = SMALL.analyse(base, noisy(SMALL, base))
    assert all(scalar.underpowered == few and scalar.n == n for scalar in found.scalars.values())


def test_measures_and_prompts_that_cannot_be_read_are_refused():
    exact, text = synthetic_capture(SMALL.needs, Shape(n_prompts=4)), text_capture(4)
    assert chosen_measure("auto", exact.prompts) == "posterior_kl" and chosen_measure("auto", text.prompts) == "next_kl"
    with pytest.raises(UsageError, match="carry no exact posterior"):
        list(replace(SMALL, measure="entropy_error").conditions(text))
    with pytest.raises(UsageError, match="auto or one of posterior_kl"):
        list(replace(SMALL, measure="loss").conditions(exact))
    with pytest.raises(PromptError, match="there is 1 prompt"):
        list(SMALL.conditions(synthetic_capture(SMALL.needs, Shape(n_prompts=1))))


def test_conditions_run_on_the_drawn_prompts_and_of_sula_on_the_main_ones_alone():
    drawn = np.arange(20) % 2 == 0
    base = synthetic_capture(SMALL.needs, Shape(n_prompts=20), columns={"drawn": drawn})
    assert {tuple(c.prompts) for c in SMALL.conditions(base)} == {tuple(range(0, 20, 2))}
    few = {tuple(c.prompts) for c in replace(SMALL, n_prompts=4).conditions(base)}
    assert len(few) == 1 and len(next(iter(few))) == 4 and set(next(iter(few))) <= set(range(0, 20, 2))
    condition = np.array(["main", "shuffled", "padded"])[np.arange(30) % 3]
    base = synthetic_capture(SMALL.needs, Shape(n_prompts=30), columns={"condition": condition})
    assert {tuple(c.prompts) for c in SMALL.conditions(base)} == {tuple(range(0, 30, 3))}


SCREENED = replace(SMALL, screen="on", n_screened=3, n_sampled=6)
"""Twelve heads: three that the screen ranks highest, and six at random."""


def read_screens(probe, base, harm):
    """What the screen says, where it is right of every ablation: `harm` `[head]` of every prompt."""
    screen = probe.screening(base)
    n, n_layers = len(screen.prompts), base.model.n_layers
    whole = np.tile(harm, (n, 1)).reshape(n, n_layers, -1)
    return {name: {"slope": whole / 2, "curvature": whole} for name in screen.edits}


def rounds(probe, base, harm, noise=0.0):
    """Every condition that a run asks for, in rounds, and what was read under it."""
    rng = np.random.default_rng(0)
    under, asked = read_screens(probe, base, harm) if probe.screening(base) else {}, []
    plan = probe._plan(base.model)
    own = {plan.single(how, head, draw): harm[head] for how, draw in plan.kinds for head in range(plan.n_all)}
    error = rng.gamma(4, 0.05, len(base.prompts))
    following = list(probe.conditions(base))
    while following:
        asked.append([c.name for c in following])
        for c in following:
            more = own.get(c.name, 0.1) * (c.name != UNEDITED) + noise * rng.normal(size=len(c.prompts))
            before = error[c.prompts]
            under[c.name] = {"next_kl": np.abs(more), "size": np.full(len(c.prompts), 0.5)} | dict.fromkeys(
                ("posterior_kl", "entropy_error", "loss"), before + more
            )
        following = [c for c in probe.further_conditions(base, under) if c.name not in under]
    return asked, under


def noisy(probe, base):
    """What is read under every condition of a probe, where harm is noisy."""
    return rounds(probe, base, harms(base.model.n_layers * base.model.n_heads), noise=0.1)[1]


def those_chosen(harm):
    """The three most harmful heads, and the layers whose harm, the same 0.1 for all, is most above their heads' own."""
    first, second, _ = np.argsort(harm.reshape(3, 4).sum(axis=1))
    return np.unique([*np.argsort(-harm)[:3], *4 * first + np.arange(4), *4 * second + np.arange(4)])


def harms(n=12):
    return np.random.default_rng(0).permutation(np.geomspace(0.01, 5, n))


def test_the_heads_of_a_small_model_are_all_measured_and_those_of_a_large_one_screened():
    small = synthetic_capture(SMALL.needs, Shape(n_prompts=20))
    large = synthetic_capture(SMALL.needs, Shape(n_prompts=20, n_layers=12, n_heads=16))
    assert SMALL.screening(small) is None and SMALL.screening(large) is not None
    deep = synthetic_capture(SMALL.needs, Shape(n_prompts=20, n_layers=18, n_heads=4))  # few heads, many subspaces
    assert Heads().screening(deep) is not None
    assert Heads().screening(synthetic_capture(SMALL.needs, Shape(n_prompts=20, n_layers=6, n_heads=6))) is None
    assert replace(SMALL, screen="off").screening(large) is None
    assert replace(SMALL, screen="on", n_screened=3, n_sampled=6).screening(small) is not None
    assert replace(SMALL, measure="entropy_error").screening(large) is None


def test_rounds_ask_for_the_screens_choice_and_the_sample_then_for_subspaces_of_the_worst_heads_layer():
    base, harm = synthetic_capture(SMALL.needs, Shape(n_prompts=30)), harms()
    (first, second, third), _ = rounds(SCREENED, base, harm)
    plan = SCREENED._plan(base.model)
    assert not any("draw" in name or "subspace" in name for name in first)
    chosen = those_chosen(harm)
    measured = [plan.single("zero", h) for h in np.union1d(chosen, plan.sample).tolist()]
    others = [plan.single(how, h, d) for how, d in plan.kinds[1:] for h in chosen.tolist()]
    assert second == measured + others
    assert third == [*plan.random(int(harm.argmax()) // 4), plan.top(2), plan.top(4)]


def test_what_is_planned_is_what_is_asked_for_but_for_heads_that_are_drawn_and_chosen():
    base, harm = synthetic_capture(SMALL.needs, Shape(n_prompts=30)), harms()
    for probe in (SCREENED, SMALL):
        asked, _ = rounds(probe, base, harm)
        screen, *planned = probe.planned(base.model, 30, is_text=False)
        assert (screen.n == 2 + probe.n_draws + 1) == (probe.screen == "on")
        planned = planned if probe.screen == "on" else [screen, *planned]
        real = sum(len(names) for names in asked) - 1  # the baseline
        assert (
            real
            <= sum(each.n for each in planned)
            <= real + (9 + len(probe._plan(base.model).kinds) * 3) * (probe.screen == "on")
        )


def test_findings_say_what_they_are_taken_over_and_name_the_layer_with_subspaces():
    base, harm = synthetic_capture(SMALL.needs, Shape(n_prompts=30)), harms()
    _, under = rounds(SCREENED, base, harm)
    found, plan = SCREENED.analyse(base, under), SCREENED._plan(base.model)
    table = found.tables["by_head"].where(found.tables["by_head"]["how"] == "zero")
    measured = np.union1d(those_chosen(harm), plan.sample)
    np.testing.assert_array_equal(np.flatnonzero(np.isfinite(table["posterior_kl"])), measured)
    np.testing.assert_allclose(table["posterior_kl"][measured], harm[measured])
    np.testing.assert_allclose(table["screened"], harm)
    np.testing.assert_array_equal(np.flatnonzero(table["chosen"] == "not measured"), np.setdiff1d(range(12), measured))
    assert np.isnan(table["posterior_kl_p"]).sum() == 12 - len(measured)
    for name in ("top_head_ratio", "top_head_share", "top_head_effect", "top_head_layer", "top_head_ratio_resample"):
        assert "of 12 heads" in found[name].meaning, name
    assert found["top_head_ratio"].value == pytest.approx(np.sort(harm)[-1] / np.sort(harm)[-2])
    assert np.isnan(found["top_head_share_mean"].value)
    assert found["screen_agreement"].value == pytest.approx(1) and found["screen_agreement"].n == 6
    assert found["screen_missed"].value == 0 and "screen_agreement" in found.headline
    assert any("saturated" in note for note in found.notes)
    names = [f.name for f in SCREENED.figures(found)]
    assert names == ["map_zero", "map_mean", "map_resample", "ranked", "screen", "by_layer", "sets"]
    assert "heads were not measured" in SCREENED.figures(found)[0].reading
    assert plan.set_sizes == (2, 4) and all(np.isin(s, plan.sample).all() for s in plan.sets(4))
    summed = np.mean([harm[s].sum() for s in plan.sets(4)])
    assert found.tables["sets"]["summed"][1] == pytest.approx(summed)
    assert "among the 6 random ones" in found["compounding"].meaning
    has_null = np.isfinite(found.tables["by_head"]["null"])
    layer = int(found["top_head_layer"].value)
    assert set(found.tables["by_head"]["layer"][has_null]) == {layer} and found["top_head_effect"].null is not None
    assert f"measured in layer {layer} only" in SCREENED.figures(found)[0].reading


N_ALL, N_SCREENED, N_SAMPLED = 270, 20, 40


def world(seed, noise):
    """Heavy-tailed harm of 270 heads, what a noisy screen says of it, and the choice that follows."""
    rng = np.random.default_rng([3, seed])
    harm = rng.lognormal(0, 1.5, N_ALL)
    screened = harm * np.exp(noise * rng.normal(size=N_ALL))
    plan = Plan(30, 9, 4, ("zero",), 1, 0, 1, seed, N_SCREENED, N_SAMPLED)
    choice = Choice(plan, {"zero": np.tile(screened, (4, 1))})
    return harm, screened, choice, np.tile(harm[choice.measured("zero")], (4, 1))


def test_agreement_in_rank_is_that_of_all_heads_and_its_interval_covers_it():
    errors, covered = [], 0
    scores = Scores({}, UNEDITED, units(4), flips(4))
    for seed in range(300):
        harm, screened, choice, effects = world(seed, 1.0)
        counts = np.random.default_rng(seed).multinomial(N_SAMPLED, np.full(N_SAMPLED, 1 / N_SAMPLED), 300)
        found = QUANTITIES.scalar("screen_agreement", agreement(scores, choice, effects, "next_kl", counts))
        truth = stats.spearmanr(harm, screened).statistic
        errors.append(found.value - truth)
        covered += found.interval[0] <= truth <= found.interval[1]
    assert abs(np.mean(errors)) < 0.02 and 0.92 <= covered / 300 <= 0.99


def test_the_share_counts_all_heads_without_bias_and_its_interval_covers_the_truth():
    sums, covered = [], 0
    for seed in range(300):
        harm, _, choice, effects = world(seed, 0.7)
        stands_for = choice.stands_for(300, np.random.default_rng(seed))
        found = top_head(effects, units(4, 300), flips(4), stands_for)
        sums.append(effects[0] @ stands_for[0] / harm.sum())
        truth = effects[0, found.top] / harm.sum()
        low, high = np.quantile(found.share[1:], [0.025, 0.975])
        covered += low <= truth <= high
        assert stands_for[0].sum() == pytest.approx(N_ALL)
    assert abs(np.mean(sums) - 1) < 3 * np.std(sums) / 300**0.5 and covered / 300 > 0.88


def test_heads_that_the_screen_misses_are_counted():
    covered = 0
    for seed in range(200):
        harm, _screened, choice, effects = world(seed, 4.0)
        found = QUANTITIES.scalar("screen_missed", missed(choice, effects, "next_kl"))
        chosen = choice.chosen("zero")
        others = np.setdiff1d(np.arange(N_ALL), chosen)
        truth = (harm[others] > np.sort(harm[chosen])[-2]).mean()
        covered += found.interval[0] <= truth <= found.interval[1]
        assert found.n == len(choice.passed_over) >= N_SAMPLED - N_SCREENED
    assert covered / 200 >= 0.95


def test_the_sample_is_even_and_the_screen_ranks_as_the_ablation():
    drawn = [world(seed, 1.0)[2].plan.sample for seed in range(400)]
    counts = np.bincount(np.concatenate(drawn), minlength=N_ALL)
    assert all(len(set(s.tolist())) == N_SAMPLED for s in drawn)
    assert np.square(counts - counts.mean()).sum() / counts.mean() < N_ALL + 4 * (2 * N_ALL) ** 0.5
    found = found_in("mess3-gpt-neox", screen="on", n_screened=2, n_sampled=8)
    assert found["screen_agreement"].value > 0.9 and found["screen_agreement"].n == 8
    of_all = found_in("mess3-gpt-neox")
    for name in ("top_head_ratio", "top_head_share", "top_head_effect", "top_head_layer"):
        assert found[name].value == pytest.approx(of_all[name].value, rel=1e-4)


def found_in(name, **fields):
    """The findings of the first ablation in a shipped tunnel."""
    model = load(f"tunnel:{name}", check=False)
    prompts = sampled_prompts(model.task, 40, 0)
    run = Run(prompts, [np.array(p.token_ids) for p in prompts])
    probe = replace(SMALL, how=("zero",), n_random=2, n_sets=1, n_draws=8, **fields)
    return measured(model, probe, run)[0]


def test_a_run_screens_where_it_is_told_to_and_refuses_what_has_no_slope():
    settings = {"heads": {"screen": "on", "n_screened": 2, "n_sampled": 8, "n_prompts": 8, "how": "zero", "n_random": 2,
                          "n_sets": 1, "n_permutations": 19, "n_bootstrap": 20}}  # fmt: skip
    record = interp.run(probes=["heads"], settings=settings, n_pool=20, out=None, quiet=True)
    found = record.findings["heads"]
    assert found["screen_agreement"].n == 8 and np.isfinite(found["top_head_effect"].value)
    assert found["top_head_effect"].null is not None
    base = synthetic_capture(SMALL.needs, Shape(n_prompts=20))
    with pytest.raises(UsageError, match="has a kink"):
        replace(SCREENED, measure="entropy_error").refuse_fields(None)
    with pytest.raises(UsageError, match="Draw more heads"):
        list(Heads(n_screened=40, n_sampled=40).conditions(base))


NEED = (Need("next_kl"),)


def base(cluster):
    return synthetic_capture(NEED, Shape(len(cluster)), columns={"cluster": cluster})


@pytest.mark.parametrize(
    "cluster",
    [np.arange(200) // 5, np.arange(200) % 40, np.repeat(np.arange(45), np.r_[np.full(5, 24), np.full(40, 2)])],
    ids=["near-copies", "copies far apart", "unequal"],
)
def test_prompts_are_drawn_evenly_over_the_clusters(cluster):
    """Of every five prompts one is drawn: a cluster of five gives one, one of 24 gives four or five."""
    capture, times = base(cluster), np.zeros(len(cluster))
    n = len(cluster) // 5
    for seed in range(300):
        chosen = choose_prompts(capture, n, seed)
        assert len(chosen) == n and (np.diff(chosen) > 0).all()
        of_cluster = np.bincount(cluster[chosen], minlength=cluster.max() + 1)
        share = np.bincount(cluster) / 5
        assert (np.abs(of_cluster - share) < 1).all()
        times[chosen] += 1
    assert times.std() < 2 * np.sqrt(300 * 0.2 * 0.8) and times.min() > 25


def test_prompts_that_stand_by_themselves_are_drawn_at_random():
    chosen = choose_prompts(base(np.arange(100)), 30, 7)
    np.testing.assert_array_equal(chosen, np.sort(np.random.default_rng([7, 3]).choice(100, 30, replace=False)))


@pytest.mark.parametrize(("n", "is_stratified"), [(50, True), (20, False)])
def test_prompts_are_resampled_within_strata_only_where_they_were_chosen_within_them(n, is_stratified):
    columns = {"stratum": np.arange(100) % 5, "drawn": np.arange(100) < 50}
    capture = synthetic_capture(NEED, Shape(100), columns=columns)
    units = units_of(capture, choose_prompts(capture, n, 0), 60, np.random.default_rng(0))
    of_stratum = units.weights[:, columns["stratum"][units.index] == 0].sum(axis=1)
    assert units.n == n and (np.ptp(of_stratum) < 1e-9) == is_stratified
