"""The attention hook and the family table against the float64 reference."""

from operator import attrgetter

import numpy as np
import pytest
import torch
from scipy.stats import entropy

from interp.errors import InterpError, ModelError
from interp.families import iterate_weights
from interp.hooks.attention import ATTENTION, Listener, listening
from interp.information import log_softmax
from interp.need import Need
from interp.prompt import Prompt, PromptSet
from interp.reading.forward import capture
from interp.reading.lens import Lens
from tests.interp.reference import run_reference
from tests.tiny_models import FAMILIES, VOCAB, fresh_model, n_hooks, prompts_of, tiny_model

SITES = ("q", "k", "v", "z", "q_pre", "k_pre", "attn_out", "mlp_out", "resid")


def token_prompts(lengths, scored=None):
    rng = np.random.default_rng(0)
    ids = [rng.integers(0, VOCAB, size=n) for n in lengths]
    return prompts_of(*ids, scored=scored), ids


def relative(a, b):
    return np.abs(a - b).max() / np.abs(b).max()


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture(scope="module")
def read(family):
    """The model, what it has at sites of one prompt of 13 tokens, and what the float64 reference has."""
    model, (prompts, ids) = tiny_model(family), token_prompts([13])

    def sites(*names, at="scored"):
        needs = [Need(name, at=at) for name in names]
        got = capture(model, prompts, ids, needs)
        return {need.site: got[need] for need in needs} | {"bits": got.rows["next_entropy_bits"]}

    return model, sites, run_reference(model.module, ids[0])


def test_every_captured_tensor_equals_the_float64_formula(read):
    _, sites, truth = read
    got = sites(*SITES, at="all")
    for layer, theirs in enumerate(truth.layers):
        for site in SITES:
            expected = getattr(theirs, site)
            expected = expected.transpose(1, 0, 2) if expected.ndim == 3 else expected
            assert got[site][layer].shape == expected.shape
            assert relative(got[site][layer], expected) < 2e-5, (site, layer)
    assert relative(got["resid"][-1], truth.final_resid) < 2e-5


def test_attention_statistics_equal_the_float64_formula_with_and_without_a_window(read, family):
    _, sites, truth = read
    got = sites("pattern_entropy", "pattern_entropy_normalised", "pattern_entropy_no_first", "sink_mass", at="all")
    for layer, theirs in enumerate(truth.layers):
        a = theirs.pattern
        bits, visible = entropy(a, base=2, axis=-1).T, (a > 0).sum(-1).T
        assert visible.max() == (5 if family == "mistral" else 13)
        assert np.abs(got["pattern_entropy"][layer] - bits).max() < 2e-5
        assert np.abs(got["sink_mass"][layer] - a[..., 0].T).max() < 1e-5
        normalised = got["pattern_entropy_normalised"][layer][1:]
        assert np.abs(normalised - bits[1:] / np.log2(visible[1:])).max() < 2e-5
        no_first = entropy(a[:, 1:, 1:], base=2, axis=-1).T
        assert np.abs(got["pattern_entropy_no_first"][layer][1:] - no_first).max() < 2e-5


def test_what_is_decoded_at_every_depth_equals_the_float64_formula(read):
    _, sites, truth = read
    got = sites("next_log_prob", "lens_log_prob", "lens_entropy", "lens_kl")
    final = log_softmax(truth.logits[-1]) / np.log(2)
    assert np.abs(got["next_log_prob"][0] - final).max() < 1e-4
    assert abs(got["bits"][0] + np.sum(np.exp2(final) * final)) < 1e-5
    assert np.abs(got["lens_log_prob"][-1, 0] - final).max() < 1e-4
    assert np.abs(got["lens_kl"][-1]).max() < 1e-5
    for depth in range(4):
        decoded = got["lens_log_prob"][depth, 0].astype(np.float64)
        assert np.exp2(decoded).sum() == pytest.approx(1, abs=1e-5)
        assert got["lens_entropy"][depth, 0] == pytest.approx(-np.sum(np.exp2(decoded) * decoded), abs=1e-4)
        kl = np.sum(np.exp2(final) * (final - decoded))
        assert got["lens_kl"][depth, 0] == pytest.approx(kl, abs=1e-4)


def test_attributed_logits_add_up_to_the_predicted_tokens_logit(read):
    model, sites, truth = read
    got, logits = sites("attn_logit", "mlp_logit", "resid"), truth.logits[-1]
    head = model.module.get_output_embeddings()
    bias = 0.0 if head.bias is None else (head.bias - head.bias.mean())[logits.argmax()].item()
    token = torch.tensor([int(logits.argmax())])
    final, embedded = (torch.from_numpy(got["resid"][depth]) for depth in (-1, 0))
    with torch.inference_mode():
        start = float((embedded * Lens(model).direction(final, token)).sum())
        w = head.weight[token] - head.weight.mean(0)
        norm = attrgetter(model.family.final_norm)(model.module)
        shift = 0.0 if getattr(norm, "bias", None) is None else float((norm.bias * w).sum())
    parts = start + got["attn_logit"].sum() + got["mlp_logit"].sum()
    assert parts + shift + bias == pytest.approx(logits.max() - logits.mean(), rel=1e-4)


def test_projection_weights_per_head_reproduce_the_captured_values(read):
    model, sites, _ = read
    got, weights = sites("z", "attn_out", at="all"), sites("W_V", "W_O")
    assert weights["W_V"].shape == (3, model.info.n_kv_heads, 48, 12)
    for layer in range(3):
        mixed = np.einsum("phd,hdm->pm", got["z"][layer], weights["W_O"][layer])
        module = model.family.attention_modules(model.module)[layer]
        bias = model.family.output_weight(module, model.family.head_shape(model.module.config))[1]
        mixed = mixed if bias is None else mixed + bias.detach().numpy()
        assert relative(mixed, got["attn_out"][layer]) < 1e-5


def test_rows_stand_at_scored_or_named_positions():
    prompts, ids = token_prompts([10, 10], scored=(2, 5, 9))
    got = capture(tiny_model("llama"), prompts, ids, [Need("v"), Need("v", at="all"), Need("pattern_entropy"),
                                                      Need("pattern_entropy", at="all")])  # fmt: skip
    assert got.rows["position"].tolist() == [2, 5, 9, 2, 5, 9]
    picked = [2, 5, 9, 12, 15, 19]
    for site in ("v", "pattern_entropy"):
        assert np.abs(got[Need(site)] - got[Need(site, at="all")][:, picked]).max() < 1e-5
    prompts = PromptSet("p", [Prompt(token_ids=(1, 2, 3, 4), columns={"mark": 2})] * 2, units={"mark": "tokens"})
    ids = [np.array(p.token_ids) for p in prompts]
    got = capture(tiny_model("phi"), prompts, ids, [Need("v", at="mark"), Need("v", at="all")])
    assert np.array_equal(got[Need("v", at="mark")], got[Need("v", at="all")][:, [2, 6]])
    outside = PromptSet("p", [Prompt(token_ids=(1, 2), columns={"mark": 2})], units={"mark": "tokens"})
    with pytest.raises(InterpError, match="the prompt has 2 tokens"):
        capture(tiny_model("phi"), outside, [np.array([1, 2])], [Need("v", at="mark")])


def test_logits_are_computed_at_scored_rows_grouped_by_heads_without_a_hook_left():
    model = tiny_model("llama")
    seen = []
    handle = model.module.lm_head.register_forward_hook(lambda m, a, out: seen.append(tuple(out.shape)))
    capture(model, *token_prompts([8, 8, 3]), [Need("v")])
    handle.remove()
    assert seen == [(1, 3, VOCAB)]
    got = capture(tiny_model("llama"), *token_prompts([5]), [Need("v"), Need("k"), Need("q"), Need("z")])
    assert [got[Need(s)].shape[2] for s in ("v", "k", "q", "z")] == [2, 2, 4, 4]
    model = fresh_model("llama")
    capture(model, *token_prompts([4]), [Need(site) for site in SITES])
    assert n_hooks(model.module) == 0


class ScaleValues(Listener):
    def before(self, call):
        call.v = call.v * 2.0


def test_listening_restores_the_model_after_success_and_after_an_exception(family):
    """Nested listeners act in order and leave in order."""
    model = tiny_model(family)
    ids = torch.arange(6)[None]
    with torch.inference_mode():
        before = model.module(ids).logits
        with listening(model, ScaleValues()):
            once = model.module(ids).logits
            with listening(model, ScaleValues()):
                twice = model.module(ids).logits
            assert torch.equal(model.module(ids).logits, once)
        assert not torch.equal(once, before) and not torch.equal(twice, once)
        with pytest.raises(KeyboardInterrupt), listening(model, ScaleValues()):
            raise KeyboardInterrupt
        assert torch.equal(model.module(ids).logits, before)
    assert model.module.config._attn_implementation == "sdpa"


def test_two_models_of_one_configuration_do_not_mix():
    one, two = fresh_model("llama"), fresh_model("llama")
    two.module.config = one.module.config
    for m in two.module.modules():
        if hasattr(m, "config"):
            m.config = one.module.config
    ids = torch.arange(6)[None]
    with torch.inference_mode():
        before = two.module(ids).logits
        with listening(one, ScaleValues()):
            assert torch.allclose(two.module(ids).logits, before, atol=1e-5)


def test_attention_is_softcapped_by_its_formula_and_other_keywords_are_refused():
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    q = torch.zeros(1, 1, 2, 4)
    with pytest.raises(ModelError, match="position_bias"):
        ALL_ATTENTION_FUNCTIONS[ATTENTION](torch.nn.Identity(), q, q, q, None, position_bias=torch.zeros(1))
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, h, 7, 8) for h in (4, 2, 2))
    z, _ = ALL_ATTENTION_FUNCTIONS[ATTENTION](torch.nn.Identity(), q, k, v, None, scaling=3.0, softcap=2.0)
    s = torch.tanh((q @ k.repeat_interleave(2, 1).mT) * 3.0 / 2.0) * 2.0
    s = s.masked_fill(torch.ones(7, 7).triu(1).bool(), -torch.inf)
    assert torch.allclose(z, (s.softmax(-1) @ v.repeat_interleave(2, 1)).transpose(1, 2), atol=1e-5)


def test_absent_activations_are_an_error_and_weights_are_views():
    model = tiny_model("llama")
    first = next(iterate_weights(model.module, model.family, "W_K"))
    assert first.untyped_storage().data_ptr() == (
        model.module.model.layers[0].self_attn.k_proj.weight.untyped_storage().data_ptr()
    )
    with pytest.raises(KeyError, match="there is no captured need of this name"):
        capture(model, *token_prompts([4]), [Need("v")])[Need("k")]
