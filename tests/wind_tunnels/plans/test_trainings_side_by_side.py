"""Trainings side by side, of one tunnel at once, and cut off at every call: whole, or to the very same weights."""

import subprocess
import sys
from dataclasses import replace

import pytest
from interp.wind_tunnels.networks.weights import weights_fingerprint
from interp.wind_tunnels.plans.train_tunnel import train_tunnel, train_tunnels
from interp.wind_tunnels.studies.over_seeds import plans_over_seeds
from interp.wind_tunnels.studies.tunnel_training import TunnelTraining

from interp.errors import UsageError

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
