"""A whole run on the shipped tunnel and on texts: one pass, a record that repeats, refusals in words."""

import numpy as np
import pytest
from interp.probes.attention_entropy.probe import AttentionEntropy
from interp.probes.causal.probe import Causal
from interp.probes.orthogonality.probe import Orthogonality

import interp
from interp.errors import PromptError, UsageError
from interp.options import RunOptions
from interp.running.choose_probes import choose_probes
from interp.running.passes import passes_of
from interp.running.run import run, specify
from interp.running.spec import RunSpec
from tests.reports.everything import SETTINGS

FAST = {"manifold": SETTINGS["manifold"]}


def counted(model, **asked):
    """The record of a run, and how many sequences each of its passes had."""
    read = []
    handle = model.module.register_forward_pre_hook(
        lambda module, args, kwargs: read.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    try:
        return run(model, out=None, quiet=True, **asked), read
    finally:
        handle.remove()


def test_one_forward_pass_a_prompt_serves_all_probes(tunnel):
    every = ["attention_entropy", "components", "manifold", "orthogonality", "qk_alignment"]
    record, read = counted(tunnel, probes=every, settings={name: SETTINGS[name] for name in every}, n_pool=60)
    assert sum(read) == 60 and all(record.findings[name].headline for name in every)


@pytest.mark.parametrize("names", [["sula"], ["belief"], ["manifold", "sula"]])
def test_prompts_without_a_posterior_are_refused_before_the_model_reads_them(tiny_text_model, monkeypatch, names):
    def read(*_, **__):
        raise AssertionError("the model was run")

    monkeypatch.setattr("interp.editing.conditions.capture", read)
    with pytest.raises(PromptError) as caught:
        run(tiny_text_model, probes=names, prompts="prose", out=None, quiet=True)
    assert str(caught.value) == (
        f"{names[-1]} on the prompts 'prose': the model is compared with the exact posterior of every prompt, and "
        "these have none\n  Leave out --prompts (the set sula is read then), or use a wind tunnel."
    )
    with pytest.raises(AssertionError, match="the model was run"):
        run(tiny_text_model, probes=["manifold"], prompts="prose", out=None, quiet=True)


def test_of_a_group_probes_that_refuse_their_prompts_are_left_out_where_others_are_not(tiny_text_model):
    asked = {"model": tiny_text_model, "probes": ["orthogonality", "all"], "prompts": "prose", "window": 12}
    spec, notes = specified(asked)
    assert "sula" not in spec.probes and {"manifold", "orthogonality"} < set(spec.probes)
    assert "sula left out" in notes[-1] and "workspace left out: `workspace` reads readout_gram" in notes[0]
    with pytest.raises(PromptError, match="sula on the prompts 'prose'"):
        specified(asked | {"probes": ["manifold", "sula"]})
    few = {"model": tiny_text_model, "n_pool": 3, "window": 12}  # and no set of sula's own for this tokenizer
    spec, notes = specified(few | {"probes": "all"})
    assert "sula" not in spec.probes and "manifold" in spec.probes
    said = "\n".join(notes)
    assert "sula left out: 0 words that were tried" in said and "value_axis left out: it needs at least" in said
    with pytest.raises(PromptError, match="labels of one token"):
        specified(few | {"probes": ["all", "sula"]})


def specified(asked):
    """The specification of a run, and the notes on the probes that it leaves out."""
    options = RunOptions(**asked)
    chosen = choose_probes(options.probes, options.settings)
    return specify(options.model, options, chosen)[0], chosen.notes


def test_of_a_group_probes_that_refuse_in_their_conditions_or_analysis_are_left_out(tunnel, monkeypatch, capsys):
    def refuse(*_):
        raise PromptError(asked="this", found="nothing varies", fix="Vary it.")

    group = dict.fromkeys(["attention_entropy", "causal", "orthogonality"], False)
    monkeypatch.setattr("interp.running.choose_probes.probe_names", lambda asked: group | dict.fromkeys(asked, True))
    monkeypatch.setattr(Causal, "conditions", refuse)
    monkeypatch.setattr(Orthogonality, "analyse", refuse)
    asked = {"model": tunnel, "probes": [AttentionEntropy.name], "n_pool": 20, "null": "untrained"}
    record = run(**asked, out=None)
    notes = ["causal left out: nothing varies.", "orthogonality left out: nothing varies."]
    assert record.prompts["notes"][-2:] == notes and all(note in capsys.readouterr().err for note in notes[:1])
    assert [*record.findings] == [*record.spec["probes"]] == record.prompts["probes"] == ["attention_entropy"]
    assert "attention_entropy" in RunSpec.of(record).command and "causal" not in RunSpec.of(record).command
    assert record.spec_hash == specified(asked)[0].hash
    capture = interp.collect(
        tunnel, interp.sampled_prompts(tunnel.task, 20), [*AttentionEntropy().needs, *Orthogonality().needs]
    )
    again = interp.analyse(capture, AttentionEntropy.name)
    assert [*again.findings] == ["attention_entropy"] and again.prompts["notes"][-1] == notes[1]
    with pytest.raises(PromptError, match="nothing varies"):
        run(tunnel, probes=["attention_entropy", "orthogonality"], n_pool=20, out=None, quiet=True)
    del group["attention_entropy"]
    monkeypatch.setattr("interp.running.choose_probes.probe_names", lambda asked: group)
    with pytest.raises(PromptError, match="nothing varies"):
        run(tunnel, probes="all", n_pool=20, out=None, quiet=True)


def test_a_text_run_draws_after_one_capture_and_a_plan_counts_it(tiny_text_model):
    record = run(tiny_text_model, settings=FAST, prompts="mixed", n_pool=120, per_quintile=10, window=12, out=None,
                 quiet=True)  # fmt: skip
    assert record.prompts["n"] == 120 and record.prompts["window"] == 12
    assert record.prompts["draw"] == {"per_quintile": 10, "n_drawn": 50, "note": ""}
    found = record.findings["manifold"]
    assert found["pc1_plus_pc2_share"].n == 50
    assert found["entropy_correlation"].n == 120
    probes = choose_probes([*ON_DRAWN, "orthogonality"]).probes
    base, drawn = passes_of(tiny_text_model, probes, RunOptions(tiny_text_model, **DRAWN_FEW))
    assert (base.n_tokens, drawn.n_tokens) == (120 * 12, 15 * 12)
    assert sorted(probe.name for probe in drawn.probes) == ON_DRAWN
    assert not base.is_edited and not drawn.is_edited


ON_DRAWN = ["attention_entropy", "components", "qk_alignment"]
DRAWN_FEW = {"prompts": "mixed", "n_pool": 120, "per_quintile": 3, "window": 12}


def test_few_drawn_prompts_pass_once_more_for_the_probes_that_read_no_others(tiny_text_model):
    every = [*ON_DRAWN, "orthogonality"]
    record, read = counted(tiny_text_model, probes=every, **DRAWN_FEW)
    assert record.prompts["draw"]["n_drawn"] == 15 and sum(read) == 120 + 15
    assert {"capture", "capture of the drawn"} <= set(record.timings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("interp.prompting.pools._FEW", 0)
        at_once, read = counted(tiny_text_model, probes=every, **DRAWN_FEW)
    assert sum(read) == 120
    n_same = 0
    for name in every:
        for scalar, found in record.findings[name].scalars.items():
            if scalar.startswith("content_sharpening") or (name == "qk_alignment" and "sink" not in scalar):
                continue  # the keys that are lent are those of another prompt
            np.testing.assert_allclose(found.value, at_once.findings[name][scalar].value, 1e-3, 1e-5, err_msg=scalar)
            n_same += 1
    assert n_same > 20


@pytest.mark.parametrize(
    ("asked", "n"),
    [
        ({"probes": ["orthogonality"]}, 120),
        ({"probes": ON_DRAWN, "per_quintile": 5}, 120),
        ({"probes": ON_DRAWN, "per_quintile": None}, 120),
        ({"probes": ["attention_entropy"], "edits": [interp.AblateHeads(layer=0, heads=(1,))]}, None),
    ],
)  # fmt: skip
def test_one_pass_serves_where_many_are_drawn_or_nobody_asks_or_the_run_is_edited(tiny_text_model, asked, n):
    record, read = counted(tiny_text_model, **DRAWN_FEW | asked)
    assert "capture of the drawn" not in record.timings
    assert n is None or sum(read) == n


def test_prompts_that_cannot_be_measured_and_no_probe_are_refused(tiny_text_model, tunnel):
    for model, prompts, error, words in (
        (tunnel, "mixed", UsageError, "a wind tunnel has no text"),
        (tiny_text_model, interp.sampled_prompts(tunnel.task, 5), UsageError, "mean nothing to a language model"),
        (tiny_text_model, ["only one text"], PromptError, "."),
        (tiny_text_model, ["the same text"] * 30, PromptError, "same"),
        (tiny_text_model, ["word " * 5000, "another text"], PromptError, str(tiny_text_model.info.max_positions)),
    ):
        with pytest.raises(error, match=words):
            run(model, prompts=prompts, out=None, quiet=True)
    with pytest.raises(UsageError, match="no probe"):
        run(tunnel, probes=[], out=None, quiet=True)
