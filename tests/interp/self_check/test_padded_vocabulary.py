"""A vocabulary padded by a bias at the head: tokens that are never predicted neither hide an error nor count as one."""

import numpy as np
import pytest
import torch

import interp
from interp.errors import ModelError
from interp.self_check.selfcheck import run_checks
from interp.system.rounding import error_of_logits
from tests.tiny_models import VOCAB, fresh_model, prompts_of, wrap

PADDING = (-100.0, -1e4, -1e9, torch.finfo(torch.float32).min, -torch.inf)
N_REAL = 90
PROMPTS = prompts_of(*np.random.default_rng(0).integers(3, N_REAL, (4, 9)))


def padded(value, family="phi"):
    """Phi has a bias at its head; Llama gets one."""
    module = fresh_model(family).module
    if module.lm_head.bias is None:
        module.lm_head.bias = torch.nn.Parameter(torch.randn(VOCAB) * 0.1)
    with torch.no_grad():
        module.lm_head.bias[N_REAL:] = value
    return module


@pytest.mark.parametrize("family", ["phi", "llama"])
@pytest.mark.parametrize("value", PADDING)
def test_a_padded_model_passes_and_reads_as_the_same_without_its_padding(value, family):
    module = padded(value, family)
    model = interp.load(module)
    sites = ["lens_entropy", "lens_kl", "next_log_prob", "v"]
    got = interp.collect(model, PROMPTS, sites)
    with torch.no_grad():
        logits = torch.stack([module(torch.tensor([p.token_ids])).logits[0, -1, :N_REAL] for p in PROMPTS])
    log_p = logits.double().log_softmax(-1).numpy() / np.log(2)
    assert np.allclose(got["next_log_prob"][:, :N_REAL], log_p, atol=1e-4)
    assert np.allclose(got.rows["next_entropy_bits"], -(np.exp2(log_p) * log_p).sum(-1), atol=1e-4)
    assert (np.exp2(got["next_log_prob"][:, N_REAL:]) < 1e-40).all()
    assert np.isfinite(got["lens_entropy"]).all() and np.isfinite(got["lens_kl"]).all()
    assert np.allclose(got["lens_entropy"][-1], got.rows["next_entropy_bits"], atol=1e-4)
    assert np.allclose(got["lens_kl"][-1], 0, atol=1e-4)


class Wrong(torch.nn.Module):
    """A head that answers otherwise under another attention, in a batch, or always: what the checks are for."""

    def __init__(self, head, is_wrong):
        super().__init__()
        self.weight, self.bias, self.is_wrong = head.weight, head.bias, is_wrong

    def forward(self, x):
        logits = torch.nn.functional.linear(x, self.weight, self.bias)
        return logits * 1.01 if self.is_wrong(x) else logits


@pytest.mark.parametrize("value", PADDING)
@pytest.mark.parametrize("check", ["eager", "head", "batched"])
def test_an_error_of_a_hundredth_is_seen_beside_any_padding(value, check):
    module = padded(value)
    wrong = {
        "eager": lambda x: module.config._attn_implementation == "eager",
        "head": lambda x: True,
        "batched": lambda x: len(x) > 1,
    }
    module.lm_head = Wrong(module.lm_head, wrong[check])
    module.config._attn_implementation = "sdpa"
    model = wrap(module)
    assert check in {each.name for each in run_checks(model) if not each.passed}


def test_padding_that_comes_and_goes_is_an_error():
    logits = torch.randn(3, 8)
    other = logits.clone()
    other[:, 5] = -torch.inf
    assert error_of_logits(other, logits) == error_of_logits(logits, other) == float("inf")
    assert error_of_logits(other, other) == 0
    nothing = torch.full((3, 8), -torch.inf)
    assert error_of_logits(nothing, nothing) == float("inf")
    other[0, 0] = torch.nan
    assert error_of_logits(other, other) == float("inf")


@pytest.mark.parametrize("broken", ["all", "plus", "nan", "weight"])
def test_other_infinities_are_still_refused(broken):
    module = padded(-torch.inf)
    with torch.no_grad():
        if broken == "weight":
            module.lm_head.weight[0, 0] = -torch.inf
        else:
            which = slice(None) if broken == "all" else 0
            module.lm_head.bias[which] = {"all": -torch.inf, "plus": torch.inf, "nan": torch.nan}[broken]
    with pytest.raises(ModelError, match="'finite' failed"):
        interp.load(module)
