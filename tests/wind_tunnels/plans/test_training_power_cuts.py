"""A training after kills and power cuts at every call: whole, or gone on with to the very same weights."""

from hashlib import sha256
from pathlib import Path

import pytest
import torch
from interp.wind_tunnels.plans.train_tunnel import make_plan, train_tunnel
from interp.wind_tunnels.tasks.coin import Coin
from interp.wind_tunnels.training.loop import STATE_NAME

from interp.records.tunnel_card import read_card
from interp.records.unfinished import PARTIAL
from tests.faulty_disk import Died, Disk

SETTINGS = {
    "n_tosses": 3,
    "n_steps": 4,
    "batch": 4,
    "n_copies": 2,
    "n_warmup": 1,
    "d_model": 8,
    "n_heads": 2,
    "n_layers": 1,
}


@pytest.fixture
def plan(monkeypatch):
    monkeypatch.setattr("interp.wind_tunnels.evaluation.checkpoint.N_EVAL", 20)
    return make_plan(Coin, SETTINGS, keep=(0, 2))


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
