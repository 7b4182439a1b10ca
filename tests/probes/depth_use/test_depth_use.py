"""Depth and context: copied evidence keeps the exact posterior, cuts are cuts, gains equal their definition."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from interp.probes.depth_use.probe import DepthUse
from interp.wind_tunnels.tasks.bijection import Bijection
from interp.wind_tunnels.tasks.coin import Coin

import interp
from interp.editing.conditions import Run, read_conditions
from interp.errors import UsageError
from interp.information import entropy_bits
from interp.need import Need
from interp.options import RunOptions
from interp.prompt import Prompt, PromptSet
from interp.prompting.pools import prompts_for
from interp.prompting.tunnel_sequences import copied_name, copied_prompts, sampled_prompts
from interp.reading.forward import capture
from interp.testing import Shape, synthetic_capture
from tests.read_back import not_in_tables
from tests.tiny_models import VOCAB, tiny_model

SMALL = DepthUse(n_permutations=99, n_bootstrap=60)
TASK = Bijection(V=4, L=7)


@pytest.mark.parametrize("layout", ["sepvocab", "paired"])
@pytest.mark.parametrize("n_copies", [1, 2, 3])
def test_copied_context_keeps_the_posterior_of_enumeration(layout, n_copies):
    """Every bijection that agrees with what is shown is equally likely, however often it is shown."""
    task = replace(TASK, layout=layout)
    drawn = task.sample(np.random.default_rng(0), 60)
    copied = task.with_copied_context(drawn, 2, n_copies)
    first_value = task.vocab_size - task.V
    assert copied.tokens.shape == (60, 4 * n_copies + 1) and copied.scored.tolist() == [4 * n_copies]
    np.testing.assert_array_equal(copied.posterior[:, 0], drawn.posterior[:, 2])
    np.testing.assert_array_equal(copied.targets[:, 0], drawn.targets[:, 2])
    for tokens, posterior in zip(copied.tokens, copied.posterior[:, 0], strict=True):
        keys, values = tokens[:-1:2], tokens[1::2] - first_value
        agree = [p for p in permutations(range(4)) if all(p[k] == v for k, v in zip(keys, values, strict=True))]
        expected = np.bincount([p[tokens[-1]] for p in agree], minlength=4) / len(agree)
        np.testing.assert_allclose(posterior, expected, atol=1e-12)


def test_copied_context_repeats_pairs_only_where_it_may():
    drawn = TASK.sample(np.random.default_rng(1), 5)
    copied = TASK.with_copied_context(drawn, 3, 2)
    np.testing.assert_array_equal(copied.tokens[:, :6], drawn.tokens[:, :6])
    np.testing.assert_array_equal(copied.tokens[:, 6:12], drawn.tokens[:, :6])
    np.testing.assert_array_equal(copied.tokens[:, 12], drawn.tokens[:, 6])
    assert copied.columns["evidence"].tolist() == [[6]] * 5
    np.testing.assert_allclose(copied.columns["bayes_entropy_bits"], entropy_bits(copied.posterior))
    shape = Shape(n_prompts=8, n_scored=4)
    base = synthetic_capture(SMALL.needs, shape, columns={"evidence": np.tile(np.arange(4), 8)})
    assert all(c.on is None for c in SMALL.conditions(base))
    repeats = {"evidence": np.tile(np.arange(4), 8), "is_repeat": np.arange(32) % 3 == 0}
    legal = synthetic_capture(SMALL.needs, shape, columns=repeats)
    assert {c.on for c in SMALL.conditions(legal)} == {None, "copied:1x1", "copied:1x2"}
    assert all(c.on is None for c in replace(SMALL, copies=1).conditions(legal))
    assert all(c.on is None for c in replace(SMALL, copies=4).conditions(legal))


@pytest.mark.parametrize(
    ("task", "n_shown", "words"),
    [
        (Coin(), 2, "changes the posterior"),
        (Bijection(V=8, L=7, replacement=False), 2, "changes the posterior"),
        (TASK, 4, "Choose up to 6 pairs in all"),
        (TASK, 0, "at least one"),
    ],
)
def test_copies_that_would_change_what_is_known_are_refused(task, n_shown, words):
    with pytest.raises(UsageError, match=words):
        copied_prompts(task, copied_name(n_shown, 2), 4, 0)


def test_copied_prompts_are_the_sequences_of_the_same_seed_and_found_by_name():
    plain, copied = sampled_prompts(TASK, 6, 3), copied_prompts(TASK, "copied:3x2", 6, 3)
    assert [p.token_ids[:6] * 2 + p.token_ids[6:7] for p in plain] == [p.token_ids for p in copied]
    assert copied.unit == "sequence" and len(copied.posterior) == 6 and copied.is_tunnel
    with pytest.raises(UsageError, match="copied:5x2"):
        copied_prompts(TASK, "copied:twice", 6, 3)
    model = interp.load("tunnel:bijection-gpt-neox", check=False)
    assert prompts_for(model, RunOptions(prompts="copied:2x3", n_pool=4)).prompts[0].scored == (12,)


def test_where_nothing_was_read_under_edits_there_are_no_figures():
    assert SMALL.figures(SMALL.analyse(synthetic_capture(SMALL.needs, Shape(n_prompts=6)), {})) == ()


def measured(model, probe, run):
    base = capture(model, run.prompts, run.ids, probe.needs)
    under = read_conditions(model, run, probe.conditions(base))
    return probe.analyse(base, under), under


def test_gains_add_up_and_the_whole_model_is_its_own_reference():
    model = tiny_model("llama")
    ids = [np.random.default_rng(i).integers(0, VOCAB, 6 + i) for i in range(8)]
    run = Run(PromptSet("tokens", [Prompt(token_ids=tuple(x.tolist())) for x in ids]), ids)
    found, under = measured(model, SMALL, run)
    table = found.tables["by_depth"]
    assert table["depth"].tolist() == [0, 1, 2, 3] and set(table["copies"]) == {0}
    assert table["next_kl"][3] == 0 and (table["next_kl"][:3] > 1e-3).all()
    assert np.nansum(table["gain"]) == pytest.approx(table["next_kl"][0] - table["next_kl"][3])
    assert found["last_layer"].value == pytest.approx(table["next_kl"][2])
    assert found["last_layer"].p is None and "never below" in found["last_layer"].null_reason
    whole = capture(model, run.prompts, run.ids, (Need("next_loss", at="followed"), Need("lens_kl"), *SMALL.needs))
    loss, prompt = whole[Need("next_loss", at="followed")], whole.rows_at("followed")["prompt"]
    assert table["loss"][3] == pytest.approx(np.mean([loss[prompt == i].mean() for i in range(8)]), rel=1e-5)
    # a model cut at a depth answers what the lens decodes there, where nothing but the final norm is in between
    np.testing.assert_allclose(table["next_kl"], whole[Need("lens_kl")].mean(axis=1), atol=1e-4)
    assert any("not copied" in note for note in found.notes)
    figures = SMALL.figures(found)
    assert [f.name for f in figures] == ["by_depth_next_kl", "by_depth_loss"]
    assert not_in_tables(found, figures) == []
    curve = figures[0].plot.data[-1]
    assert curve.name == "as drawn" and list(curve.y) == table["next_kl"].tolist()
    assert len(under) == 4
