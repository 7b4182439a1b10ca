"""One prompt token by token: the numbers against the softmax of transformers, what is kept, and what is refused."""

import numpy as np
import pytest
import torch

import interp
from interp.errors import PromptError, UsageError
from interp.records.token_strip import TokenStrip, read_strips, write_strips


@pytest.fixture(scope="module")
def sequences(tunnel):
    return interp.sampled_prompts(tunnel.task, 4)


@pytest.fixture(scope="module")
def strip(tunnel, sequences) -> TokenStrip:
    return interp.show_tokens(tunnel, sequences, prompt=2)


def test_weights_and_entropies_are_those_of_the_models_own_eager_attention(tunnel, sequences, strip):
    from transformers import AutoModelForCausalLM

    eager = AutoModelForCausalLM.from_config(tunnel.module.config, attn_implementation="eager").eval()
    eager.load_state_dict(tunnel.module.state_dict())
    ids = torch.tensor([sequences.prompts[2].token_ids])
    with torch.no_grad():
        out = eager(ids, output_attentions=True)
    weights = np.stack([a[0].double().numpy() for a in out.attentions])
    p = out.logits[0].double().softmax(-1).numpy()
    logs = np.log2(np.where(weights > 0, weights, 1.0))
    np.testing.assert_allclose(strip.weights, weights, atol=1e-5)
    np.testing.assert_allclose(strip.entropy, -(weights * logs).sum(-1), atol=1e-4)
    np.testing.assert_allclose(strip.sink, weights[..., 0], atol=1e-5)
    np.testing.assert_allclose(strip.next_entropy, -(p * np.log2(p)).sum(-1), atol=1e-4)


def test_the_strip_holds_the_exact_belief_and_the_edit(sequences, strip, tunnel):
    prompt = sequences.prompts[2]
    known = np.isfinite(strip.belief)
    assert set(np.flatnonzero(known)) == set(prompt.scored)
    expected = prompt.scored_columns["bayes_entropy_bits"]
    np.testing.assert_allclose(strip.belief[list(prompt.scored)], expected, atol=1e-9)
    off = interp.AblateHeads(layer=0, heads=0, by="zero")
    edited = interp.show_tokens(tunnel, sequences, prompt=2, edits=[off])
    assert np.array_equal(edited.entropy[0], strip.entropy[0])
    assert not np.allclose(edited.entropy[1:], strip.entropy[1:])
    with interp.applied(tunnel, off):
        around = interp.show_tokens(tunnel, sequences, prompt=2)
    assert edited.model == around.model == f"{tunnel.name} edited: {off}" != strip.model


def test_a_run_keeps_the_strip_that_comes_back_within_its_steps(tunnel, tmp_path, strip, sequences):
    record = interp.run(
        tunnel, probes="orthogonality", prompts=sequences, show_tokens=(2,), out=tmp_path, report=False, quiet=True
    )
    (shown,) = interp.open_run(record.path).shown
    assert shown.packed() == strip.packed()
    write_strips([strip], tmp_path)
    (back,) = read_strips(tmp_path)
    assert back.tokens == strip.tokens
    np.testing.assert_allclose(back.weights, strip.weights, atol=0.5 / 255 + 1e-9)
    np.testing.assert_allclose(back.entropy, strip.entropy, atol=1e-4)
    np.testing.assert_allclose(back.belief, strip.belief, atol=1e-4)
    assert back.packed() == strip.packed()


def test_prompts_that_are_not_there_or_too_long_are_refused(tunnel, sequences, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="numbered 0 to 3"):
        interp.show_tokens(tunnel, sequences, prompt=4)
    with pytest.raises(UsageError, match="numbered 0 to 3"):
        interp.run(tunnel, prompts=sequences, show_tokens=(9,), out=tmp_path, quiet=True)
    monkeypatch.setattr("interp.running.show_tokens.MOST_WEIGHTS", 12 * 10 * 11 // 2)
    with pytest.raises(PromptError, match="at most 10 tokens"):
        interp.show_tokens(tunnel, sequences)
