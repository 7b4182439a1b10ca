"""Options of a run that change what is read: untrained weights beside it, no BOS, a binding window."""

import copy
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

import interp
from interp.errors import ModelError, UsageError
from interp.hooks.window import windowed
from interp.loading.untrained import untrained_copy
from interp.need import Need
from interp.prompt import Prompt, PromptSet
from interp.prompting.tokens import as_tokens, words_of
from interp.reading.forward import capture
from interp.running.checkpoints import has_checkpoints
from interp.running.run import run
from interp.system import progress
from tests.interp.hooks.test_attention import token_prompts
from tests.interp.reference import run_reference
from tests.named_prompts import resolve_prompts
from tests.reports.everything import SETTINGS
from tests.tiny_models import tiny_model, wrap

TUNNEL = "tunnel:bijection-gpt-neox"
FAST = {"manifold": SETTINGS["manifold"]}


def test_a_window_on_any_model_equals_the_float64_formula_of_a_windowed_one():
    narrow, plain = tiny_model("mistral"), tiny_model("llama")
    twin = {k.replace("mistral", "llama"): v for k, v in narrow.module.state_dict().items()}
    module = copy.deepcopy(plain.module)
    module.load_state_dict(twin)
    prompts, ids = token_prompts([13])
    needs = [Need("pattern_entropy", at="all"), Need("z", at="all"), Need("next_log_prob")]
    model = wrap(module)
    with windowed(model, 5):
        got = capture(model, prompts, ids, needs)
    truth = run_reference(narrow.module, ids[0])
    for layer, theirs in enumerate(truth.layers):
        assert np.abs(got[needs[1]][layer] - theirs.z.transpose(1, 0, 2)).max() < 1e-4
    ours = capture(narrow, prompts, ids, needs)
    assert np.abs(got[needs[2]] - ours[needs[2]]).max() < 1e-4
    assert np.abs(got[needs[0]] - ours[needs[0]]).max() < 1e-5


def test_the_untrained_twin_is_a_model_of_its_own_with_the_shape_and_not_the_weights_and_stands_in_no_training():
    model = interp.load(TUNNEL)
    twin, label = untrained_copy(model, seed=3)
    assert "initialisation of gpt_neox, seed 3" in label and twin.checks and all(c.passed for c in twin.checks)
    assert twin.fingerprint != model.fingerprint and twin.info.n_parameters == model.info.n_parameters
    assert untrained_copy(model, seed=3)[0].fingerprint == twin.fingerprint
    assert not has_checkpoints(twin)
    record = run(twin, settings=FAST, n_pool=40, out=None, quiet=True)
    assert record.model["name"] == "memory:tunnel:bijection-gpt-neox untrained" and "card" not in record.model
    with pytest.raises(UsageError, match="in memory, and none is named"):
        run(twin, probes=["dynamics"], n_pool=40, out=None, quiet=True)
    assert untrained_copy(twin, seed=1)[0].name == "memory:tunnel:bijection-gpt-neox untrained untrained"
    with pytest.raises(ModelError, match="needs one"):
        untrained_copy(replace(model, info=replace(model.info, device="cpu, cuda:0")))


ASKED = {"settings": FAST, "n_pool": 40, "out": None, "quiet": True}


@pytest.fixture(scope="module")
def plain():
    return run(TUNNEL, **ASKED)


@pytest.mark.slow
def test_several_untrained_twins_are_the_null_of_every_number_with_a_t_band(plain):
    state = torch.get_rng_state()
    record = run(TUNNEL, null="untrained", n_untrained=3, **ASKED)
    assert torch.equal(torch.get_rng_state(), state)
    assert "--null untrained" in record.spec["command"] and "--n-untrained" not in record.spec["command"]
    found, own = record.findings["manifold"], plain.findings["manifold"]
    assert any("Untrained weights: transformers' initialisation" in note for note in found.notes)
    model = interp.load(TUNNEL)
    made = [untrained_copy(model, seed)[0] for seed in range(3)]
    twins = [run(replace(m, info=replace(m.info, name="twin")), **ASKED).findings["manifold"] for m in made]
    table = found.to_frame("against_untrained").set_index("name")
    assert table.loc["entropy_correlation", "trained"] == found["entropy_correlation"].value
    assert table.loc["entropy_correlation", "untrained"] != found["entropy_correlation"].value
    for name in ("pc1_share", "entropy_correlation"):
        values = np.array([twin[name].value for twin in twins])
        half = stats.t.ppf(0.975, 2) * values.std(ddof=1) * np.sqrt(1 + 1 / 3)
        null = found[name].null
        assert null is not None and null.name == "untrained weights, 3 seeds" and found[name].p is None
        assert [null.value, *null.band] == pytest.approx([values.mean(), values.mean() - half, values.mean() + half])
        assert table.loc[name, "own_null"] == own[name].null.value
        assert table.loc[name, "own_p"] == pytest.approx(own[name].p, nan_ok=True) or own[name].p is None
        assert found[name].interval == own[name].interval


def test_one_untrained_twin_stands_beside_and_changes_no_null(plain):
    record = run(TUNNEL, null="untrained", n_untrained=1, **ASKED)
    assert record.findings["manifold"].scalars == plain.findings["manifold"].scalars
    assert "--n-untrained 1" in record.spec["command"]


def test_progress_says_which_untrained_copy_is_read_and_of_what(monkeypatch):
    said = []

    @contextmanager
    def reporting(what, quiet):
        said.append(progress._in_stage(what))
        yield progress.no_report

    monkeypatch.setattr("interp.running.run.reporting", reporting)
    run(TUNNEL, null="untrained", n_untrained=2, **ASKED)
    assert f"untrained copy 2 of 2, reading {TUNNEL} untrained, prompts tunnel:bijection" in said


def test_rows_say_text_and_token_and_begin_without_bos_if_asked(stories):
    model, texts = interp.load(stories), ["Once upon a time", "The dog was happy and"]
    rows = interp.collect(model, texts, ["v"]).rows
    kept, bare = (as_tokens(model, resolve_prompts(texts), [], None, bos=bos) for bos in (True, False))
    assert kept.has_bos and not bare.has_bos
    assert [list(x[1:]) for x in kept.ids] == [list(x) for x in bare.ids]
    assert rows["length"].tolist() == [len(x) for x in kept.ids] and rows["text"].tolist() == texts
    assert tuple(rows["token_string"]) == words_of(model, rows["token"])
    own = PromptSet("own", [Prompt(text=t, columns={"text": "mine"}) for t in texts], units={"text": "label"})
    assert interp.collect(model, own, ["v"]).rows["text"].tolist() == ["mine", "mine"]


@pytest.mark.slow
def test_the_window_in_force_is_what_probes_see(plain):
    record = run(TUNNEL, settings=FAST, n_pool=40, attention_window=4, out=None, quiet=True)
    assert record.spec["attention_window"] == 4
    assert record.findings["manifold"]["entropy_correlation"] != plain.findings["manifold"]["entropy_correlation"]
