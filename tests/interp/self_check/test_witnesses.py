"""What we capture against what TransformerLens and nnsight read from the same weights."""

import sys

import pytest
import torch

from interp.errors import ModelError, UsageError
from interp.self_check import witnesses
from interp.self_check.two_sequences import HookedPass
from interp.self_check.witnesses import WITNESSES, check_against
from tests.interp.test_families import tiny
from tests.tiny_models import FAMILIES, fresh_model, tiny_model

PACKAGES = {name: name.replace("-", "_") for name in WITNESSES}
READS = {
    "transformer-lens": {"q_pre", "k_pre", "v", "z", "pattern"},
    "nnsight": {"resid", "z", "attn_out", "mlp_out", "logits"},
}
CASES = [
    *(("transformer-lens", family) for family in FAMILIES),
    *(("nnsight", family) for family in (*FAMILIES, "gpt2", "gemma2", "granite", "opt", "cohere")),
]


def _installed(witness):
    pytest.importorskip(PACKAGES[witness], reason=f"{witness} is not installed: pip install 'interp[oracle]'")


@pytest.mark.parametrize(("witness", "family"), CASES)
def test_captures_equal_what_another_library_reads_from_the_same_weights(witness, family):
    _installed(witness)
    model = tiny_model(family) if family in FAMILIES else tiny(family)
    checks = check_against(witness, model)
    found = {check.name.removeprefix(f"{witness} ") for check in checks}
    assert found >= READS[witness] if witness == "transformer-lens" else found == READS[witness]
    for check in checks:
        assert check.passed and check.value < 1e-5, (check.name, check.value)
        assert check.name.endswith(" logits") or f"in {model.info.n_layers} layers" in check.meaning


@pytest.mark.parametrize("witness", WITNESSES)
def test_a_wrong_capture_is_noticed_and_the_model_is_left_as_it_was(witness, monkeypatch):
    """The witness can fail: heads in another order are seen in z, and nowhere else."""
    _installed(witness)
    after = HookedPass.after

    def turned(self, call, z):
        after(self, call, z)
        self.z[-1] = self.z[-1].flip(2)
        return z

    monkeypatch.setattr(HookedPass, "after", turned)
    model, ids = fresh_model("llama"), torch.arange(5)[None]
    with torch.inference_mode():
        before = model.module(ids).logits
        checks = check_against(witness, model)
        assert torch.equal(model.module(ids).logits, before)
    assert {check.name for check in checks if not check.passed} == {f"{witness} z"}
    assert model.module.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("witness", WITNESSES)
def test_a_missing_package_and_a_model_that_cannot_be_read_are_told_in_words(witness, monkeypatch):
    def broken(*args):
        raise AssertionError("no adapter")

    monkeypatch.setitem(sys.modules, PACKAGES[witness], None)
    monkeypatch.setitem(sys.modules, f"{PACKAGES[witness]}.model_bridge", None)
    with pytest.raises(UsageError, match=r"pip install 'interp\[oracle\]'"):
        check_against(witness, tiny_model("llama"))
    monkeypatch.setitem(witnesses.WITNESSES, witness, broken)
    with pytest.raises(ModelError, match=rf"{witness} cannot read this model \(AssertionError: no adapter\)"):
        check_against(witness, tiny_model("llama"))
