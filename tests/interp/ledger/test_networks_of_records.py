"""Networks that one source trains and another reads: only those of the record count, whatever lies in the folder."""

import shutil
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar

import pytest

from interp import registry
from interp.findings import Findings, Scalar
from interp.ledger.claims import read_claims
from interp.ledger.evidence import Evidence, gather_evidence
from interp.study import Study
from tests.quick import quick
from wind_tunnels.networks.weights import weights_fingerprint
from wind_tunnels.plans.train_tunnel import make_plan, train_tunnels
from wind_tunnels.studies.over_seeds import fingerprint_table
from wind_tunnels.tasks.bijection import Bijection

CLAIMS = """
format = 1
paper = "paper9"
title = "A paper"
citation = "Somebody (2030)"
[[source]]
name = "trained"
title = "three networks"
study = "three_networks"
scales.smoke = {}
[[source]]
name = "read"
title = "what is in them"
study = "networks_read"
settings = { tunnels = "{trained}/bijection-gpt-neox-seed*" }
scales.smoke = {}
[[claim]]
number = 1
title = "They are read"
says = "Three."
measure = "How many."
[[claim.part]]
label = "number"
read = { source = "read", of = "networks_read", field = "n" }
rule = { kind = "positive" }
"""
SMALL = {"V": 3, "L": 3, "n_layers": 1, "d_model": 8, "n_heads": 2, "n_steps": 2, "batch": 3, "n_copies": 3}


@dataclass(frozen=True)
class ThreeNetworks(Study):
    name: ClassVar[str] = "three_networks"
    question: ClassVar[str] = "Which?"

    def measure(self, work, progress):
        plans = [make_plan(Bijection, {**SMALL, "seed": seed}, variant=f"seed{seed}") for seed in (1, 2, 3)]
        trained = [training.folder for training in train_tunnels(plans, work, progress)]
        models = fingerprint_table((folder.name, weights_fingerprint(folder)) for folder in trained)
        return counted(self.name, models)


@dataclass(frozen=True)
class NetworksRead(Study):
    tunnels: str = ""

    name: ClassVar[str] = "networks_read"
    question: ClassVar[str] = "How many?"

    def measure(self, work, progress):
        pattern = Path(self.tunnels)
        folders = sorted(pattern.parent.glob(pattern.name))
        return counted(self.name, fingerprint_table((each.name, weights_fingerprint(each)) for each in folders))


def counted(name, models):
    n = Scalar(float(models.n_rows), "1", interval_reason="exact", null_reason="exact", meaning="networks")
    return Findings(name, {"n": n}, {"models": models}, headline=("n",))


@pytest.fixture
def gathered(tmp_path, monkeypatch):
    """Carries out both sources in one folder, as often as it is called."""
    known = registry.entries
    mine = {study.name: EntryPoint(study.name, f"{__name__}:{study.__name__}", "interp.studies")
            for study in (ThreeNetworks, NetworksRead)}  # fmt: skip
    monkeypatch.setattr(registry, "entries", lambda kind: mine if kind == "study" else known(kind))
    file = tmp_path / "paper9.toml"
    file.write_text(CLAIMS, encoding="utf-8")

    def gather() -> tuple[Evidence, Evidence]:
        found = gather_evidence(read_claims(file), ["read"], [], "smoke", tmp_path / "runs", quiet=True)
        return found["trained", ""], found["read", ""]

    return gather


def n_read(evidence):
    assert evidence.record is not None, evidence.reason
    return evidence.record.findings["networks_read"]["n"].value


@pytest.mark.slow
def test_networks_that_are_gone_are_trained_again_and_read_again(gathered):
    trained, read = gathered()
    assert n_read(read) == 3
    again = gathered()
    assert [each.record.path for each in again] == [trained.record.path, read.record.path]  # nothing was done
    for seed in (1, 3):
        shutil.rmtree(trained.work / f"bijection-gpt-neox-seed{seed}")
    repaired, once_more = gathered()
    assert repaired.record.path != trained.record.path
    assert n_read(once_more) == 3
    assert once_more.record.path == read.record.path  # the same weights, bit for bit: what was read of them holds


@pytest.mark.slow
def test_a_record_over_other_networks_does_not_stand_for_these(gathered):
    trained, read = gathered()
    one = next(trained.work.glob("*seed1"))
    away = shutil.move(one, trained.work / "away")
    shutil.rmtree(read.record.path)
    part = NetworksRead(tunnels=f"{trained.work}/bijection-gpt-neox-seed*")
    from interp.running.study import run_study

    run_study(part, out=trained.record.path.parent, quiet=True)  # as it was once done with two of three
    shutil.move(away, one)
    assert n_read(gathered()[1]) == 3


@pytest.mark.parametrize("how", quick(["exchanged"], ["exchanged", "added", "damaged"]))
def test_networks_that_the_record_does_not_name_are_told_and_not_read(gathered, how):
    trained, _ = gathered()
    first, second = (trained.work / f"bijection-gpt-neox-seed{seed}" for seed in (1, 2))
    if how == "exchanged":
        shutil.copy(first / "model.safetensors", second / "model.safetensors")
    elif how == "added":
        second = trained.work / "bijection-gpt-neox-seed4"
        shutil.copytree(first, second)
    else:
        (second / "model.safetensors").write_bytes(b"nothing")
    shutil.rmtree(trained.work / "bijection-gpt-neox-seed3")  # a repair must not take the stranger into a new record
    read = gathered()[1]
    assert read.record is None and read.failed
    assert second.name in read.reason and "move it away" in read.reason
    shutil.rmtree(second)
    assert n_read(gathered()[1]) == 3
