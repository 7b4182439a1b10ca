"""What we capture against interp-engine on a copy of the same weights."""

import pytest

pytest.importorskip("interp_engine", reason="interp-engine is not installed: pip install 'interp[oracle]'")

from interp.checking.interp_engine import check_against_interp_engine
from interp.checking.two_sequences import SeamPass
from interp.errors import ModelError
from tests.tiny_models import fresh_model, tiny_model

SITES = {f"interp-engine {site}" for site in ("resid", "v", "z", "attn_out", "mlp_out")}


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_captures_equal_what_interp_engine_reads(family):
    model = tiny_model(family)
    checks = check_against_interp_engine(model)
    assert {check.name for check in checks} == SITES
    assert all(check.passed and check.value < 1e-5 for check in checks), checks
    assert all(f"in {model.info.n_layers} layers" in check.meaning for check in checks)


def test_a_wrong_capture_is_noticed(monkeypatch):
    after = SeamPass.after

    def turned(self, call, z):
        after(self, call, z)
        self.z[-1] = self.z[-1].flip(2)
        return z

    monkeypatch.setattr(SeamPass, "after", turned)
    checks = check_against_interp_engine(fresh_model("llama"))
    assert {check.name for check in checks if not check.passed} == {"interp-engine z"}


def test_a_model_that_it_cannot_read_is_told_in_words(monkeypatch):
    import interp_engine

    def broken(*args, **kwargs):
        raise RuntimeError("no point")

    monkeypatch.setattr(interp_engine, "load_model", broken)
    with pytest.raises(ModelError, match=r"interp-engine cannot read this model \(RuntimeError: .*no point"):
        check_against_interp_engine(tiny_model("llama"))
