"""The gradient laws of attention: exact in float64 on every kind of head, and a law that is nearly right is caught."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, GptOssConfig, Lfm2Config, MambaConfig

import interp
from interp.errors import ModelError, UsageError
from interp.hooks.layer_gradients import (
    ScoredSequence,
    in_float64,
    layer_gradients,
    loss_bits,
    loss_with_values,
    queries_and_keys,
    relative_error,
    step_all_weights,
)
from tests.tiny_models import FAMILIES, VOCAB, fresh_model, tiny_model, wrap

EXACT = 1e-10
LAWS = {"scores", "values", "queries", "keys", "rows"}


def text(seed: int = 0) -> ScoredSequence:
    return ScoredSequence.of_text(torch.from_numpy(np.random.default_rng(seed).integers(0, VOCAB, 17)))


@pytest.mark.parametrize("family", FAMILIES)
def test_laws_hold_in_every_layer_of_every_family(family):
    model = in_float64(tiny_model(family))
    for layer in range(model.info.n_layers):
        found = layer_gradients(model, layer, text())
        assert set(found.residuals()) == LAWS
        assert max(found.residuals().values()) < EXACT
        assert min(found.residuals_of_wrong_laws().values()) > 1e-3


@pytest.mark.parametrize("name", ["bijection-gpt-neox", "bijection-mistral-short"])
def test_laws_hold_in_trained_tunnels_at_their_scored_positions(name):
    model = in_float64(interp.load(f"tunnel:{name}", check=False))
    drawn = model.task.sample(np.random.default_rng(1), 3)
    for tokens, targets in zip(drawn.tokens, drawn.targets, strict=True):
        sequence = ScoredSequence(*map(torch.from_numpy, (tokens, drawn.scored, targets)))
        for layer in range(model.info.n_layers):
            assert max(layer_gradients(model, layer, sequence).residuals().values()) < EXACT


_SMALL = {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8,
          "num_key_value_heads": 2, "initializer_range": 0.3, "sliding_window": 6}  # fmt: skip
CAPPED = Gemma2Config(**_SMALL, intermediate_size=64, attn_logit_softcapping=1.5)
WITH_SINKS = GptOssConfig(**_SMALL, intermediate_size=16, num_local_experts=4, num_experts_per_tok=2, pad_token_id=0,
                          eos_token_id=1)  # fmt: skip


@pytest.mark.parametrize(("config", "left_out"), [(CAPPED, "softcap"), (WITH_SINKS, "sink")])
def test_laws_hold_where_scores_are_capped_and_beside_a_learnt_sink(config, left_out):
    torch.manual_seed(0)
    module = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for name, parameter in module.named_parameters():
        if name.endswith("sinks"):
            torch.nn.init.normal_(parameter)
    model = in_float64(wrap(module))
    for layer in range(2):
        found = layer_gradients(model, layer, text())
        assert max(found.residuals().values()) < EXACT
        assert max(replace(found, **{left_out: None}).residuals().values()) > 1e-3


def test_gradients_are_those_of_the_whole_model():
    """∂L/∂W_V by autograd on the weights is Σ_j x_jᵀ ∂L/∂v_j with the layer's own inputs."""
    model = in_float64(fresh_model("llama"))
    inputs: list[torch.Tensor] = []
    values = model.family.attention_modules(model.module)[1].v_proj
    values.register_forward_pre_hook(lambda module, args: inputs.append(args[0].detach()))
    law = layer_gradients(model, 1, text()).value_law()
    by_law = torch.hstack([*(inputs[0][0].mT @ law)])
    values.weight.requires_grad_(True)
    with torch.enable_grad():
        (by_autograd,) = torch.autograd.grad(loss_bits(model, text()), [values.weight])
    assert relative_error(by_autograd.mT, by_law) < EXACT


def test_responsibilities_are_those_of_the_kernel_before_and_after_a_step():
    model = in_float64(tiny_model("mistral"))
    found = layer_gradients(model, 0, text())
    z = found.alpha @ found.v.repeat_interleave(found.n_shared, dim=0)
    assert relative_error(found.z, z) < EXACT
    position = torch.arange(17)
    seen = (position[:, None] >= position) & (position[:, None] - position < 5)
    assert torch.equal(found.visible[0], seen)
    assert not found.d_scores[:, ~seen].any()
    assert torch.allclose(found.alpha.sum(dim=-1), torch.ones(4, 17, dtype=torch.float64), atol=1e-12)
    model = in_float64(fresh_model("phi"))
    found = layer_gradients(model, 2, text())
    before = loss_bits(model, text())
    step_all_weights(model, [text(), text(1)], 1e-3)
    after = found.alpha_after(*queries_and_keys(model, 2, text()))
    assert torch.equal(after, layer_gradients(model, 2, text()).alpha)
    assert not torch.equal(after, found.alpha)
    assert loss_bits(model, text()) < before
    assert not any(p.requires_grad or p.grad is not None for p in model.module.parameters())


def test_the_loss_is_the_mean_surprise_and_a_small_step_changes_it_as_predicted():
    model = tiny_model("phi")
    sequence = text()
    with torch.no_grad():
        log_p = model.module(sequence.ids[None]).logits[0, :-1].double().log_softmax(dim=-1) / np.log(2)
    by_hand = -log_p.gather(-1, sequence.ids[1:, None]).mean()
    assert layer_gradients(in_float64(model), 0, sequence).loss_bits == pytest.approx(float(by_hand), abs=1e-5)
    model = in_float64(tiny_model("gpt_neox"))
    found = layer_gradients(model, 1, text())
    assert loss_with_values(model, 1, text(), found.v) == pytest.approx(found.loss_bits, abs=1e-12)
    rate = 1e-4 / float(found.d_v.norm())
    ahead, back = (loss_with_values(model, 1, text(), found.v - s * rate * found.value_law()) for s in (1, -1))
    assert (ahead - back) / 2 == pytest.approx(-rate * float(found.d_v.square().sum()), rel=1e-4)


def test_a_step_is_as_long_as_asked_goes_down_the_mean_gradient_and_leaves_the_model_itself():
    original = fresh_model("llama")
    model = in_float64(original)
    assert (original.module.dtype, model.module.dtype, model.info.dtype) == (torch.float32, torch.float64, "float64")
    held = {name: t.clone() for name, t in original.module.state_dict().items()}
    before = [p.clone() for p in model.module.parameters()]
    for p in model.module.parameters():
        p.requires_grad_(True)
    with torch.enable_grad():
        loss = (loss_bits(model, text()) + loss_bits(model, text(1))) / 2
        gradient = torch.autograd.grad(loss, list(model.module.parameters()))
    step_all_weights(model, [text(), text(1)], 0.01)
    moved = torch.cat([(p - b).ravel() for p, b in zip(model.module.parameters(), before, strict=True)])
    downhill = -torch.cat([g.ravel() for g in gradient])
    length = torch.cat([b.ravel() for b in before]).norm()
    assert float(moved.norm() / length) == pytest.approx(0.01, rel=1e-9)
    assert float(torch.nn.functional.cosine_similarity(moved, downhill, dim=0)) == pytest.approx(1, abs=1e-9)
    assert all(torch.equal(t, held[name]) for name, t in original.module.state_dict().items())


def test_what_has_no_such_gradients_is_refused():
    with pytest.raises(UsageError, match="this model has no attention"):
        in_float64(wrap(AutoModelForCausalLM.from_config(MambaConfig(**_SMALL, state_size=4)).eval()))
    tiny = tiny_model("llama")
    with pytest.raises(ModelError, match="quantised"):
        in_float64(replace(tiny, info=replace(tiny.info, quantisation="int8")))
    with pytest.raises(ModelError, match=r"it needs 80000\.0 GB"):
        in_float64(replace(tiny, info=replace(tiny.info, n_parameters=5 * 10**12)), n_copies=2)
    with pytest.raises(UsageError, match="layers 0 to 2"):
        layer_gradients(in_float64(tiny), 3, text())
    lfm2 = Lfm2Config(**_SMALL, layer_types=["conv", "full_attention"])
    hybrid = in_float64(interp.load(AutoModelForCausalLM.from_config(lfm2).eval(), check=False))
    for read in (layer_gradients, queries_and_keys):
        with pytest.raises(UsageError, match=r"layer 0 of .* has no attention"):
            read(hybrid, 0, text())
    second = layer_gradients(hybrid, 1, text())
    assert second.v.shape == (2, 17, 8) and torch.equal(layer_gradients(hybrid, -1, text()).v, second.v)


def test_a_layer_can_be_counted_from_the_end():
    model = in_float64(tiny_model("llama"))
    values = torch.zeros_like(layer_gradients(model, 2, text()).v)
    assert loss_with_values(model, -1, text(), values) == loss_with_values(model, 2, text(), values)
    assert torch.equal(queries_and_keys(model, -1, text())[0], queries_and_keys(model, 2, text())[0])
