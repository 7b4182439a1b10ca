"""The patterns of another model: an explicit softmax of its queries and keys times own values, and what is refused."""

import json
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import softmax
from transformers import AutoModelForCausalLM

import interp
from interp.editing.conditions import capture_edited
from interp.editing.edit_files import read_edits
from interp.edits import PatternsOf, RemoveAxis
from interp.errors import ModelError, UsageError
from interp.hooks.attention import Listener, listening
from interp.loading.load import with_donors
from interp.need import Need
from interp.prompt import Prompt, PromptSet
from tests.tiny_models import FAMILIES, VOCAB, tiny_config, tiny_model, wrap
from tests.tokenised import of_words

LENGTHS = (9, 7, 9)
IDS = [np.random.default_rng([6, i]).integers(0, VOCAB, size=n) for i, n in enumerate(LENGTHS)]
PROMPTS = PromptSet("tokens", [Prompt(text=f"{i}", scored=None) for i in range(3)])


def another_model(family, seed=7, **changes):
    torch.manual_seed(seed)
    config = tiny_config(family, initializer_range=0.2, **changes)
    module = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    return wrap(module, f"another {family}")


class Kept(Listener):
    def __init__(self):
        self.calls, self.z = {}, {}

    def before(self, call):
        self.calls[call.layer] = replace(call)

    def after(self, call, z):
        self.z[call.layer] = z
        return z


def heard(model, ids, *edits):
    kept = Kept()
    with torch.inference_mode(), interp.applied(model, *edits) if edits else nullcontext(), listening(model, kept):
        return kept, model.module(input_ids=ids, use_cache=False).logits


def explicit_rows(call, window):
    """softmax(q k / sqrt(d)) over keys not after the query, nor further back than the window; heads share keys."""
    q, k = call.q.double().numpy(), call.k.double().numpy()
    k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
    s = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(q.shape[-1])
    i, j = np.mgrid[: s.shape[2], : s.shape[3]]
    return softmax(np.where((j <= i) & (i - j < (window or 10**6)), s, -np.inf), axis=-1)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layer", [(), 1])
def test_head_outputs_are_the_donors_attention_rows_times_own_values(family, layer):
    model, donor = tiny_model(family), another_model(family)
    ids = torch.from_numpy(np.stack([IDS[0], IDS[2]]))
    window = getattr(model.module.config, "sliding_window", None)
    theirs, _ = heard(donor, ids)
    own, plain = heard(model, ids)
    edited, logits = heard(model, ids, PatternsOf(donor=donor, layer=layer))
    for n in range(model.info.n_layers):
        rows = explicit_rows((theirs if layer in ((), n) else edited).calls[n], window)
        v = edited.calls[n].v.double().numpy()
        z = np.einsum("bhij,bhjd->bihd", rows, np.repeat(v, rows.shape[1] // v.shape[1], axis=1))
        assert np.abs(edited.z[n].numpy() - z).max() < 2e-5 * np.abs(z).max()
    assert (logits - plain).abs().max() > 1e-2
    again, restored = heard(model, ids)
    assert torch.equal(restored, plain) and torch.equal(again.z[0], own.z[0])


def test_dose_0_and_a_donor_with_the_same_weights_change_no_bit():
    model = tiny_model("llama")
    twin = wrap(AutoModelForCausalLM.from_config(model.module.config, attn_implementation="sdpa").eval(), "twin")
    twin.module.load_state_dict(model.module.state_dict())
    ids = torch.from_numpy(IDS[0])[None]
    plain = heard(model, ids)[1]
    assert torch.equal(heard(model, ids, PatternsOf(donor=twin))[1], plain)
    assert torch.equal(heard(model, ids, PatternsOf(donor=another_model("llama"), dose=0.0))[1], plain)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_capture_with_a_donor_is_proved_and_reads_the_donors_patterns(family):
    model, donor = tiny_model(family), another_model(family)
    needs = [Need("pattern_entropy"), Need("v"), Need("next_log_prob")]
    checks = []
    edited = capture_edited(model, PROMPTS, IDS, needs, [PatternsOf(donor=donor)], checks=checks)
    theirs, own = (interp.reading.forward.capture(m, PROMPTS, IDS, needs) for m in (donor, model))
    np.testing.assert_allclose(edited[needs[0]], theirs[needs[0]], atol=1e-5)
    np.testing.assert_array_equal(edited[needs[1]][0], own[needs[1]][0])
    assert np.abs(edited[needs[2]] - own[needs[2]]).max() > 0.01
    assert {"edit read-back", "edit reached", "edit donor", "edit dose 0", "edit restored"} == {c.name for c in checks}
    assert all(check.passed for check in checks) and donor.fingerprint[:16] in checks[0].detail


def test_a_donor_whose_patterns_do_not_arrive_is_found_out(monkeypatch):
    from interp.editing.donor_patterns import DonorPatterns

    take = DonorPatterns.take
    monkeypatch.setattr(DonorPatterns, "take", lambda self, site, layer: take(self, site, layer).flip(1))
    with pytest.raises(ModelError, match="'edit donor' failed"):
        capture_edited(
            tiny_model("llama"), PROMPTS, IDS, [Need("v")], [PatternsOf(donor=another_model("llama"))], checks=[]
        )


def test_donors_compose_with_other_edits_and_with_one_another():
    model, one, other = tiny_model("llama"), another_model("llama"), another_model("llama", seed=8)
    ids = torch.from_numpy(IDS[0])[None]
    both, _ = heard(model, ids, PatternsOf(donor=one, layer=0), PatternsOf(donor=other, layer=2))
    for layer, donor in ((0, one), (2, other)):
        assert torch.equal(both.calls[layer].q, heard(donor, ids)[0].calls[layer].q)
    axis = np.random.default_rng(0).standard_normal(24)
    capture_edited(
        model, PROMPTS, IDS, [Need("v")], [PatternsOf(donor=one), RemoveAxis(layer=1, axis=axis)], checks=(found := [])
    )
    assert {"edit donor", "edit pattern"} <= {check.name for check in found}


@pytest.mark.parametrize(("changes", "words"), [
    ({"num_hidden_layers": 2}, "the layers of"), ({"num_attention_heads": 8, "head_dim": 12}, "the heads of"),
    ({"vocab_size": 77}, "the vocabularies of"), ({"head_dim": 24}, "the head sizes of"),
    ({"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}, "the rotary settings of"),
])  # fmt: skip
def test_a_donor_of_another_shape_or_rotary_setting_is_refused(changes, words):
    with pytest.raises(UsageError, match=words):
        heard(tiny_model("llama"), torch.from_numpy(IDS[0])[None], PatternsOf(donor=another_model("llama", **changes)))


def test_a_donor_with_another_window_other_tokens_or_none_at_all_is_refused():
    ids = torch.from_numpy(IDS[0])[None]
    mistral, llama = tiny_model("mistral"), tiny_model("llama")
    with pytest.raises(UsageError, match="the attention windows of"):
        heard(mistral, ids, PatternsOf(donor=another_model("mistral", sliding_window=3)))
    words = of_words("<unk>", "a"), of_words("<unk>", "b")
    spoken, foreign = (replace(m, tokenizer=w) for m, w in zip((llama, another_model("llama")), words, strict=True))
    with pytest.raises(UsageError, match="different tokens"):
        heard(spoken, ids, PatternsOf(donor=foreign))
    with pytest.raises(UsageError, match="are the same object"):
        heard(llama, ids, PatternsOf(donor=llama))
    with pytest.raises(UsageError, match="is a name, not a loaded model"):
        heard(llama, ids, PatternsOf(donor="pythia-410m"))
    with pytest.raises(UsageError, match="Give a model"):
        PatternsOf(donor=3)
    with pytest.raises(UsageError, match="leave `at` out"):
        PatternsOf(donor="x", at="last")
    with pytest.raises(UsageError, match="the layers 0 to 2"):
        heard(llama, ids, PatternsOf(donor=another_model("llama"), layer=3))
    with (
        interp.applied(llama, PatternsOf(donor=another_model("llama"))),
        pytest.raises(UsageError, match="no token ids"),
    ):
        llama.module(inputs_embeds=torch.zeros(1, 3, 48))


def test_a_file_names_a_donor_by_model_step_or_folder(tmp_path):
    step = "tunnel:bijection-gpt-neox@256"
    content = [
        {"kind": "patterns", "donor": step},
        {"kind": "patterns", "donor": "steps/7", "layer": [0, 2], "dose": 0.5},
    ]
    (tmp_path / "steps" / "7").mkdir(parents=True)
    (tmp_path / "edits.json").write_text(json.dumps({"edits": content}))
    first, second = read_edits(tmp_path / "edits.json")
    assert first == PatternsOf(donor=step) and first.to_json()["donor"] == step
    assert second.donor == str(tmp_path / "steps" / "7") and second.layer == (0, 2)
    model = interp.load("tunnel:bijection-gpt-neox", check=False)
    (loaded,) = with_donors([first], model.info)
    assert loaded.donor.card["step"] == 256 and loaded == first


def test_a_run_reads_the_final_network_with_the_patterns_of_a_step():
    asked = {"probes": "attention_entropy", "n_pool": 30, "out": None, "quiet": True, "settings": {
        "attention_entropy": {"n_permutations": 20, "n_bootstrap": 20},
    }}  # fmt: skip
    edits = [{"kind": "patterns", "donor": "tunnel:bijection-gpt-neox@256"}]
    record = interp.run("tunnel:bijection-gpt-neox", edits=edits, **asked)
    donor = interp.run("tunnel:bijection-gpt-neox@256", **asked)
    mine, theirs = (r.findings["attention_entropy"].tables["by_layer"] for r in (record, donor))
    entropy = next(name for name in mine.columns if "entropy" in name)
    np.testing.assert_allclose(mine[entropy], theirs[entropy], atol=1e-5)
    assert record.spec["edits"][0]["donor"] == "tunnel:bijection-gpt-neox@256"
    assert any(check["name"] == "edit donor" and check["passed"] for check in record.selfcheck)
