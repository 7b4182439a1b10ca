"""A task from another package: found by its entry point, trained here, loaded from its own checkpoints."""

import textwrap
from pathlib import Path

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
from interp.tunnel import Task

THEIR_TASK = """
    '''Witnesses: a hidden bit, and reports of it that are right with probability `honesty`.'''

    from dataclasses import dataclass
    from pathlib import Path
    from typing import ClassVar

    import numpy as np

    from interp.information import entropy_bits
    from interp.tunnel import Sequences, Task

    @dataclass(frozen=True)
    class Witnesses(Task):
        n_reports: int = 4
        honesty: float = 0.75

        name: ClassVar[str] = "witnesses"
        question: ClassVar[str] = "Does the network weigh reports that contradict one another?"
        checkpoints: ClassVar[Path] = Path(__file__).parent / "trained"

        @property
        def vocab_size(self):
            return 4  # two reports, two answers

        @property
        def n_positions(self):
            return self.n_reports

        def sample(self, rng, n):
            bit = rng.integers(2, size=(n, 1))
            reports = np.where(rng.random((n, self.n_reports)) < self.honesty, bit, 1 - bit)
            votes = np.cumsum(2 * reports - 1, axis=1)
            odds = (self.honesty / (1 - self.honesty)) ** votes
            posterior = np.stack([1 / (1 + odds), odds / (1 + odds)], axis=2)
            position = np.broadcast_to(np.arange(self.n_reports), reports.shape)
            columns = {
                "position": position, "evidence": position + 1, "bayes_entropy_bits": entropy_bits(posterior)
            }
            return Sequences(
                reports, np.arange(self.n_reports), np.broadcast_to(2 + bit, reports.shape).copy(), posterior,
                np.array([2, 3]), columns, np.full(n, self.name),
            )
"""


@pytest.fixture
def their_package(tmp_path, monkeypatch):
    """A package as pip would leave it: a folder of code, and metadata that names its entry point."""
    package = tmp_path / "their_tunnels"
    package.mkdir()
    (package / "__init__.py").write_text(textwrap.dedent(THEIR_TASK))
    info = tmp_path / "their_tunnels-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-tunnels\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[interp.tunnels]\nwitnesses = their_tunnels:Witnesses\n")
    with pytest.raises(UnknownName):
        registry.load_entry("tunnel", "witnesses")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.entries.cache_clear()
    yield package
    registry.entries.cache_clear()


def trained(task: Task, folder: Path) -> None:
    network, recipe = Network(n_layers=1, n_heads=2, d_model=16), Recipe(n_steps=12, batch=20, n_warmup=2)
    plan = TrainingPlan(task, network, recipe)
    save(train(plan), plan, folder)


def test_a_task_of_another_package_is_trained_loaded_and_mixed(their_package):
    task = registry.load_entry("tunnel", "witnesses")()
    check_task(task, np.random.default_rng(0), n=4000)
    with pytest.raises(UnknownName):
        interp.load("tunnel:witnesses-gpt-neox")
    trained(task, their_package / "trained" / "witnesses-gpt-neox")
    listed = CliRunner().invoke(app, ["list", "tunnels"])
    assert listed.exit_code == 0
    assert "tunnel:witnesses-gpt-neox" in listed.stdout and "tunnel:bijection-gpt-neox" in listed.stdout
    model = interp.load("tunnel:witnesses-gpt-neox")
    assert model.task == task
    assert model.module.config.vocab_size == 4
    mixture = Mixture([{"task": "witnesses", "n_reports": 3}, {"task": "coin", "n_tosses": 3, "layout": "plain"}])
    assert mixture.domains == ("witnesses", "coin")
    check_task(mixture, np.random.default_rng(0), n=8000)
