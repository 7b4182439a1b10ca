"""The self-check runs on every load, by default, and a model that fails it is rejected."""

import pytest
from typer.testing import CliRunner

import interp
from interp.cli.app import app
from interp.errors import ModelError
from interp.loading import load as loading
from tests.tiny_models import tiny_model


@pytest.fixture
def checked(monkeypatch):
    """The names of the models that were checked."""
    names, real = [], loading.check_model
    monkeypatch.setattr(loading, "check_model", lambda model: names.append(model.name) or real(model))
    return names


def test_every_load_checks_the_model_by_default(folder, checked):
    for given in (folder, folder, tiny_model("llama").module):
        model = interp.load(given)
        assert {c.name for c in model.checks} >= {"eager", "restored"}
    assert len(checked) == 3
    assert interp.load(model) is not None and [c.name for c in interp.load(folder, check=False).checks] == ["weights"]
    assert len(checked) == 3


def test_a_run_checks_its_model(folder, checked, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(f"w{i} w{i + 1} w{i + 2}" for i in range(1, 20)))
    asked = ["run", str(folder), "-p", "attention_entropy", "--prompts", str(texts), "--draw", "0", "-q"]
    assert CliRunner().invoke(app, [*asked, "--out", str(tmp_path / "runs")]).exit_code == 0
    (record,) = map(interp.open_run, (tmp_path / "runs").glob("*/"))
    assert len(checked) == 1
    assert {c["name"] for c in record.selfcheck} >= {"finite", "captured", "eager", "restored"}


def test_a_failed_check_rejects_the_model(folder, monkeypatch):
    from interp.self_check import selfcheck

    entries = tuple((*entry[:2], lambda seen: (1.0, 0.0, "error"), entry[3]) for entry in selfcheck._CHECKS)
    monkeypatch.setattr(selfcheck, "_CHECKS", entries)
    with pytest.raises(ModelError, match="self-check"):
        interp.load(folder)
