"""A task from another package: found by its entry point, trained here, loaded from its own checkpoints."""

import numpy as np
import pytest
from interp.wind_tunnels.evaluation.checkpoint import save
from interp.wind_tunnels.networks.networks import Network
from interp.wind_tunnels.tasks.conformance import check_task
from interp.wind_tunnels.tasks.mixture import Mixture
from interp.wind_tunnels.training.loop import Recipe, train
from interp.wind_tunnels.training.plan import TrainingPlan
from typer.testing import CliRunner

import interp
from interp import registry
from interp.cli.app import app
from interp.errors import UnknownName
from tests.paths import ROOT

GUIDE = (ROOT / "docs" / "how-to" / "tunnels.md").read_text(encoding="utf-8")
"""The guide to tunnels; its example is the task of the other package."""


@pytest.fixture
def their_package(tmp_path, monkeypatch):
    """A package as pip would leave it: a folder of code, and metadata that names its entry point."""
    (example,) = (block for block in GUIDE.split("```python\n") if "class Urn" in block)
    (tmp_path / "my_package.py").write_text(example.partition("```")[0], encoding="utf-8")
    info = tmp_path / "my_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[interp.tunnels]\nurn = my_package:Urn\n")
    with pytest.raises(UnknownName):
        registry.load_entry("tunnel", "urn")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.entries.cache_clear()
    monkeypatch.chdir(tmp_path)  # its networks lie in a folder beside it
    yield
    registry.entries.cache_clear()


def test_a_task_of_another_package_is_trained_loaded_and_mixed(their_package):
    task = registry.load_entry("tunnel", "urn")()
    with pytest.raises(UnknownName):
        interp.load("tunnel:urn-gpt-neox")
    network, recipe = Network(n_layers=1, n_heads=2, d_model=16), Recipe(n_steps=12, batch=20, n_warmup=2)
    plan = TrainingPlan(task, network, recipe)
    save(train(plan), plan, task.checkpoints / "urn-gpt-neox")
    listed = CliRunner().invoke(app, ["list", "tunnels"])
    assert listed.exit_code == 0
    assert "tunnel:urn-gpt-neox" in listed.stdout and "tunnel:bijection-gpt-neox" in listed.stdout
    model = interp.load("tunnel:urn-gpt-neox")
    assert model.task == task
    assert model.module.config.vocab_size == 3
    mixture = Mixture([{"task": "urn", "n_balls": 3}, {"task": "coin", "n_tosses": 3, "layout": "plain"}])
    assert mixture.domains == ("urn", "coin")
    check_task(mixture, np.random.default_rng(0), n=8000)
