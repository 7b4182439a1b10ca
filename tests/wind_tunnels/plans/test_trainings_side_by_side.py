"""Trainings side by side, of one tunnel at once, and cut off at every call: whole, or to the very same weights."""

import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from interp.wind_tunnels.networks.weights import weights_fingerprint
from interp.wind_tunnels.plans.settings import read_settings
from interp.wind_tunnels.plans.train_tunnel import make_plan, train_tunnel, train_tunnels
from interp.wind_tunnels.studies.over_seeds import plans_over_seeds
from interp.wind_tunnels.studies.tunnel_training import TunnelTraining
from interp.wind_tunnels.tasks.coin import Coin
from interp.wind_tunnels.training.loop import STATE_NAME

from interp.errors import UsageError
from interp.records.tunnel_card import read_card
from interp.records.unfinished import PARTIAL
from tests.faulty_disk import Died, Disk

QUICK = ("n_tosses=3", "n_steps=20", "batch=4", "n_warmup=1", "d_model=8", "n_heads=2", "n_layers=1")


@pytest.mark.slow
def test_trainings_side_by_side_are_those_of_one_after_the_other(two_workers, tmp_path):
    plans = plans_over_seeds(TunnelTraining("coin", QUICK, (3, 1, 2)), keep=(0, 10))
    ready = train_tunnel(plans[1], tmp_path / "together")
    told = []
    together = train_tunnels(plans, tmp_path / "together", lambda done, total: told.append((done, total)))
    alone = [train_tunnel(plan, tmp_path / "alone") for plan in plans]
    assert together[1].folder == ready.folder and told == [(2, 3), (3, 3)]
    for one, other in zip(together, alone, strict=True):
        assert one.folder.name == other.folder.name
        assert one.card.figures == other.card.figures
        for step in ("", "steps/0", "steps/10"):
            assert weights_fingerprint(one.folder / step) == weights_fingerprint(other.folder / step)


@pytest.mark.slow
def test_a_refusal_in_one_of_them_is_that_of_a_training_by_itself(two_workers, tmp_path):
    plans = [
        replace(plan, variant=f"new-{i}")
        for i, plan in enumerate(plans_over_seeds(TunnelTraining("coin", QUICK, (1, 2))))
    ]
    (tmp_path / "file").touch()
    with pytest.raises(UsageError) as by_itself:
        train_tunnel(plans[0], tmp_path / "file")
    with pytest.raises(UsageError) as caught:
        train_tunnels(plans, tmp_path / "file", lambda *_: None)
    assert str(caught.value) == str(by_itself.value)


def test_seeds_are_named_once():
    with pytest.raises(UsageError, match="Write seeds=4 instead"):
        plans_over_seeds(TunnelTraining("coin", (*QUICK, "seed=4"), (1, 2)))


@pytest.mark.slow
def test_two_trainings_of_one_tunnel_leave_one_folder(tmp_path):
    words = ["coin", *(word for setting in QUICK for word in ("--set", setting)), "--out", str(tmp_path)]
    call = [sys.executable, "-m", "interp", "tunnel", "train", *words]
    both = [subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    (folder,) = tmp_path.iterdir()
    assert (folder / "model.safetensors").is_file() and (folder / "tunnel.json").is_file()


@pytest.fixture
def plan(monkeypatch):
    monkeypatch.setattr("interp.wind_tunnels.evaluation.checkpoint.N_EVAL", 20)
    return make_plan(Coin, read_settings(QUICK) | {"n_steps": 4, "n_copies": 2}, keep=(0, 2))


def weights(folder: Path) -> dict[str, str]:
    """Of every network that was kept, as bytes: an unfinished folder may hold half a card, which loading refuses."""
    whole = [f for f in folder.rglob("model.safetensors") if not any(part.endswith(".writing") for part in f.parts)]
    return {str(f.parent.relative_to(folder)): sha256(f.read_bytes()).hexdigest() for f in whole}


@pytest.mark.stress
def test_a_training_survives_kills_and_power_cuts_at_any_call(tmp_path, plan):
    alone = weights(train_tunnel(plan, tmp_path / "alone").folder)
    assert set(alone) == {".", "steps/0", "steps/2"}
    step, n_states, seen, begun, left = -1, 0, set(), 0, set()
    while True:
        step += 1
        folder = tmp_path / f"disk{step}"
        folder.mkdir()
        with Disk(folder, die_at=step) as disk:
            is_done = True
            try:
                train_tunnel(plan, disk.folder / "runs")
            except Died:
                is_done = False
            for state in disk.states(tmp_path / "state"):
                n_states += 1
                target, work = state / "runs" / plan.name, state / "runs" / PARTIAL / plan.digest
                assert not is_done or target.is_dir()
                found = weights(target) if target.is_dir() else weights(work / "steps")
                assert target.is_dir() is (found == alone) and set(found.values()) <= set(alone.values())
                if target.is_dir():
                    read_card(target)
                if (work / STATE_NAME).is_file():
                    torch.load(work / STATE_NAME, weights_only=True)
                    begun += 1
                mark = (target.is_dir(), (work / STATE_NAME).is_file(), *found, disk.steps[-1].split()[0])
                if mark not in seen:  # one of each kind is gone on with
                    seen.add(mark)
                    left.add(frozenset(weights(train_tunnel(plan, state / "runs").folder).items()))
        if is_done:
            break
    assert left == {frozenset(alone.items())} and len(seen) > 8 and begun and n_states > step > 30
