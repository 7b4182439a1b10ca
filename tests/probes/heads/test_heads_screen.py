"""The screen of `heads`: who is measured, what numbers are then taken over, and how far the screen is trusted."""

from dataclasses import replace

import numpy as np
import pytest
from interp.probes.heads.choice import Choice
from interp.probes.heads.edits import UNEDITED, Plan
from interp.probes.heads.estimates import agreement, missed
from interp.probes.heads.probe import SULA, Heads
from interp.probes.heads.quantities import QUANTITIES
from interp.probes.measures.harm import Scores
from interp.probes.measures.prompt_effects import top_head

import interp
from interp.editing.conditions import Run, read_conditions
from interp.editing.screen import read_screen
from interp.errors import UsageError
from interp.loading.load import load
from interp.prompting.tunnel_sequences import sampled_prompts
from interp.reading.forward import capture
from interp.testing import Shape, synthetic_capture
from tests.probes.heads.test_heads import SMALL, flips, text_capture, units

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
            more = own.get(c.name.removeprefix(SULA), 0.1) * (not c.name.endswith(UNEDITED)) + noise * rng.normal(
                size=len(c.prompts)
            )
            before = error[c.prompts] if c.on is None else np.ones(len(c.prompts))
            under[c.name] = {"next_kl": np.abs(more), "size": np.full(len(c.prompts), 0.5)} | dict.fromkeys(
                ("posterior_kl", "entropy_error", "loss"), before + more
            )
        following = [c for c in probe.further_conditions(base, under) if c.name not in under]
    return asked, under


def those_chosen(harm):
    """The three most harmful heads, and the layers whose harm, the same 0.1 for all, is most above their heads' own."""
    first, second, _ = np.argsort(harm.reshape(3, 4).sum(axis=1))
    return np.unique([*np.argsort(-harm)[:3], *4 * first + np.arange(4), *4 * second + np.arange(4)])


def harms(n=12, seed=0):
    return np.random.default_rng(seed).permutation(np.geomspace(0.01, 5, n))


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


def test_random_sets_are_measured_and_the_layer_with_subspaces_named():
    base, harm = synthetic_capture(SMALL.needs, Shape(n_prompts=30)), harms()
    _, under = rounds(SCREENED, base, harm)
    plan, found = SCREENED._plan(base.model), SCREENED.analyse(base, under)
    assert plan.set_sizes == (2, 4) and all(np.isin(s, plan.sample).all() for s in plan.sets(4))
    summed = np.mean([harm[s].sum() for s in plan.sets(4)])
    assert found.tables["sets"]["summed"][1] == pytest.approx(summed)
    assert "among the 6 random ones" in found["compounding"].meaning
    has_null = np.isfinite(found.tables["by_head"]["null"])
    layer = int(found["top_head_layer"].value)
    assert set(found.tables["by_head"]["layer"][has_null]) == {layer} and found["top_head_effect"].null is not None
    assert f"measured in layer {layer} only" in SCREENED.figures(found)[0].reading


def test_findings_say_what_they_are_taken_over():
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


def test_on_sula_the_heads_of_the_primary_ablation_are_tried():
    probe, base = replace(SCREENED, n_sula=12), text_capture()
    asked, under = rounds(probe, base, harms())
    plan = probe._plan(base.model)
    on_sula = [name for name in asked[1] if name.startswith(SULA)]
    assert on_sula == [
        SULA + name for name, _ in plan.heads("zero", Choice.of(plan, under, "next_kl").measured("zero"), 1)
    ]
    table = probe.analyse(base, under).tables["sula_by_head"]
    assert np.isfinite(table["posterior_kl"]).sum() == len(on_sula)


N_ALL, N_SCREENED, N_SAMPLED = 270, 20, 40


def world(seed, noise):
    """Heavy-tailed harm of 270 heads, what a noisy screen says of it, and the choice that follows."""
    rng = np.random.default_rng([3, seed])
    harm = rng.lognormal(0, 1.5, N_ALL)
    screened = harm * np.exp(noise * rng.normal(size=N_ALL))
    plan = Plan(30, 9, 4, ("zero",), 1, 0, 1, seed, N_SCREENED, N_SAMPLED)
    choice = Choice(plan, {"zero": np.tile(screened, (4, 1))})
    return harm, screened, choice, np.tile(harm[choice.measured("zero")], (4, 1))


def ranks(values):
    return np.argsort(np.argsort(values))


def test_agreement_in_rank_is_that_of_all_heads_and_its_interval_covers_it():
    errors, covered = [], 0
    scores = Scores({}, UNEDITED, units(4), flips(4))
    for seed in range(300):
        harm, screened, choice, effects = world(seed, 1.0)
        counts = np.random.default_rng(seed).multinomial(N_SAMPLED, np.full(N_SAMPLED, 1 / N_SAMPLED), 300)
        found = QUANTITIES.scalar("screen_agreement", agreement(scores, choice, effects, "next_kl", counts))
        truth = np.corrcoef(ranks(harm), ranks(screened))[0, 1]
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
    base = capture(model, run.prompts, run.ids, probe.needs)
    screen = probe.screening(base)
    under = {} if screen is None else read_screen(model, run, screen)
    under |= read_conditions(model, run, probe.conditions(base))
    while further := [c for c in probe.further_conditions(base, under) if c.name not in under]:
        under |= read_conditions(model, run, further)
    return probe.analyse(base, under)


@pytest.mark.slow
def test_the_head_of_a_look_up_that_gradients_do_not_see_is_found_through_its_layer():
    """Layer 0 head 1 of the shipped tunnel writes the keys that layer 1 looks up with saturated attention."""
    of_all = found_in("bijection-gpt-neox")
    found = found_in("bijection-gpt-neox", screen="on", n_screened=2, n_sampled=4)
    by_head = found.tables["by_head"]
    assert (
        by_head["screened"][1] < 0.01 * by_head["posterior_kl"][1]
        and "layer 0 head 1" in of_all["top_head_ratio"].meaning
    )
    assert any("all of layers 0 and 1" in note for note in found.notes)
    for name in ("top_head_ratio", "top_head_effect", "top_head_layer"):
        assert found[name].value == pytest.approx(of_all[name].value, rel=1e-4)


def test_a_run_screens_where_it_is_told_to_and_refuses_what_has_no_slope():
    settings = {"heads": {"screen": "on", "n_screened": 2, "n_sampled": 8, "n_prompts": 8, "how": "zero", "n_random": 2,
                          "n_sets": 1, "n_permutations": 19, "n_bootstrap": 20}}  # fmt: skip
    record = interp.run(probes=["heads"], settings=settings, n_pool=20, out=None, quiet=True)
    found = record.findings["heads"]
    assert found["screen_agreement"].n == 8 and np.isfinite(found["top_head_effect"].value)
    assert found["top_head_effect"].null is not None
    base = synthetic_capture(SMALL.needs, Shape(n_prompts=20))
    with pytest.raises(UsageError, match="has a kink"):
        replace(SCREENED, measure="entropy_error").screening(base)
    with pytest.raises(UsageError, match="Draw more heads"):
        list(Heads(n_screened=40, n_sampled=40).conditions(base))
