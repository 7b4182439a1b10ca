"""What we capture against nnsight's trace of the same weights."""

import sys

import pytest
import torch

from interp.errors import ModelError, UsageError
from tests.interp.test_families import tiny
from tests.tiny_models import FAMILIES, fresh_model, tiny_model

pytest.importorskip("nnsight", reason="nnsight is not installed: pip install 'interp[oracle]'")

from interp.checking.nnsight import check_against_nnsight
from interp.checking.two_sequences import SeamPass

SITES = {"nnsight resid", "nnsight z", "nnsight attn_out", "nnsight mlp_out", "nnsight logits"}


@pytest.mark.parametrize("family", [*FAMILIES, "gpt2", "gemma2", "granite", "opt", "cohere"])
def test_captures_equal_what_nnsight_traces(family):
    model = tiny_model(family) if family in FAMILIES else tiny(family)
    checks = check_against_nnsight(model)
    assert {check.name for check in checks} == SITES
    for check in checks:
        assert check.passed and check.value < 1e-5, (check.name, check.value)
        assert check.name == "nnsight logits" or f"in {model.info.n_layers} layers" in check.meaning


def test_a_wrong_capture_is_noticed(monkeypatch):
    """The witness can fail: heads in another order are seen in z, and nowhere else."""
    after = SeamPass.after

    def turned(self, call, z):
        after(self, call, z)
        self.z[-1] = self.z[-1].flip(2)
        return z

    monkeypatch.setattr(SeamPass, "after", turned)
    checks = check_against_nnsight(fresh_model("llama"))
    assert {check.name for check in checks if not check.passed} == {"nnsight z"}


def test_the_witness_leaves_the_model_as_it_was():
    model, ids = fresh_model("llama"), torch.arange(5)[None]
    with torch.inference_mode():
        before = model.module(ids).logits
        check_against_nnsight(model)
        assert torch.equal(model.module(ids).logits, before)
    assert model.module.config._attn_implementation == "sdpa"


def test_a_missing_package_and_a_model_that_cannot_be_traced_are_told_in_words(monkeypatch):
    import nnsight

    def broken(*args, **kwargs):
        raise RuntimeError("no envoy")

    monkeypatch.setattr(nnsight, "NNsight", broken)
    with pytest.raises(ModelError, match=r"cannot trace this model \(RuntimeError: .*no envoy"):
        check_against_nnsight(tiny_model("llama"))
    monkeypatch.setitem(sys.modules, "nnsight", None)
    with pytest.raises(UsageError, match=r"pip install 'interp\[oracle\]'"):
        check_against_nnsight(tiny_model("llama"))
