"""Sweeps: the grid, what is done again and what is not; trainings side by side, and of one tunnel at once."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from interp.wind_tunnels.evaluation.checkpoint import CURVE_NAME
from interp.wind_tunnels.networks.weights import weights_fingerprint
from interp.wind_tunnels.plans import sweep as sweeps
from interp.wind_tunnels.plans.sweep import SWEEP_NAME, cells, run_sweep
from interp.wind_tunnels.plans.train_tunnel import make_plan, train_tunnel, train_tunnels
from interp.wind_tunnels.studies.over_seeds import plans_over_seeds
from interp.wind_tunnels.studies.tunnel_training import TunnelTraining
from interp.wind_tunnels.tasks.bijection import Bijection
from scipy import stats

from interp.errors import UsageError

TINY = {"V": 3, "L": 4, "n_heads": 2, "d_model": 16, "n_steps": 6, "batch": 6, "n_copies": 3, "n_warmup": 2}


def run(folder, varied, n_seeds=1, heard=None):
    def on_begin(plan):
        def on_step(state):
            if heard is not None:
                heard.append((plan.name, state.step))

        return on_step

    return run_sweep("bijection", cells(Bijection, TINY, varied, n_seeds, crossed=True), folder, on_begin)


def test_sweep_trains_every_combination_with_every_seed_and_repeats_nothing(tmp_path):
    heard: list[tuple[str, int]] = []
    table = run(tmp_path, {"arch": ["gpt-neox", "llama"], "n_layers": [1]}, 2, heard)
    assert [cell["settings"] for cell in table["cells"]] == [
        {"arch": "gpt-neox", "n_layers": 1},
        {"arch": "llama", "n_layers": 1},
    ]
    assert len(heard) == 4 * 6
    for cell in table["cells"]:
        values = [run["figures"]["kl_bits"]["value"] for run in cell["runs"]]
        low, high = stats.t.interval(0.95, 1, loc=np.mean(values), scale=stats.sem(values))
        assert len(set(values)) == 2 and cell["figures"]["kl_bits"]["mean"] == pytest.approx(np.mean(values))
        assert cell["figures"]["kl_bits"]["interval"] == pytest.approx([max(low, 0.0), high])
        assert all(low < value < high for value, (low, high) in zip(
            values, (run["figures"]["kl_bits"]["interval"] for run in cell["runs"]), strict=True))  # fmt: skip
        assert cell["baselines"]["position"]["kl_bits"] > 0 and cell["n_parameters"] > 0
        for one in cell["runs"]:
            curve = (tmp_path / one["folder"] / CURVE_NAME).read_text().splitlines()
            assert curve[0] == "step,stage,excess_bits,core_seconds" and len(curve) == 7
    again: list[tuple[str, int]] = []
    assert run(tmp_path, {"arch": ["gpt-neox", "llama"], "n_layers": [1]}, 2, again) == table
    assert again == []
    assert json.loads((tmp_path / SWEEP_NAME).read_text()) == table


def test_what_cannot_be_trained_is_told_and_stops_nothing(tmp_path, monkeypatch):
    trained = sweeps.train_tunnel

    def failing(plan, *rest):
        if plan.network.d_model == 8:
            raise RuntimeError("out of luck")
        return trained(plan, *rest)

    monkeypatch.setattr(sweeps, "train_tunnel", failing)
    monkeypatch.delitem(TINY, "d_model")
    table = run(tmp_path, {"n_layers": [1], "d_model": [8, 16]})
    unlucky, fine = table["cells"]
    assert "RuntimeError: out of luck" in unlucky["failures"]["0"]
    assert unlucky["figures"]["kl_bits"]["interval_reason"] == "no training was finished"
    assert fine["failures"] == {} and len(fine["runs"]) == 1
    assert fine["figures"]["kl_bits"]["interval_reason"] == "one seed"


@pytest.mark.parametrize(
    ("fixed", "varied", "words"),
    [
        ({}, {"V": [3, 4]}, "V is set and varied"),
        ({}, {"seed": [3, 4]}, "seeds are counted by --seeds"),
        ({}, {"n_layers": []}, "n_layers has no value"),
        ({}, {"n_layers": [{}]}, "n_layers = {}"),
        ({"seed": "x"}, {"n_layers": [1]}, "seed = 'x'"),
        ({"seed": 1.5}, {"n_layers": [1]}, "seed = 1.5"),
    ],
)
def test_fields_and_values_that_make_no_sense_are_refused(fixed, varied, words, without_type_checks):
    with pytest.raises(UsageError, match=words):
        cells(Bijection, TINY | fixed, varied, 1)


def one_at_a_time(varied, fixed=TINY):
    return cells(Bijection, fixed, varied, 1)


def test_one_setting_at_a_time_is_varied_where_it_can_be():
    archs = ["gpt-neox", "phi", "llama", "mistral"]
    found = one_at_a_time({"arch": archs, "n_kv_heads": [2, 1], "window": [24, 4], "n_layers": [2, 1]})
    neox, llama = {"arch": "gpt-neox", "n_layers": 2}, {"arch": "llama", "n_kv_heads": 2, "n_layers": 2}
    mistral = {"arch": "mistral", "n_kv_heads": 2, "window": 24, "n_layers": 2}
    assert [cell.settings for cell in found] == [
        neox, {"arch": "phi", "n_layers": 2}, llama, mistral, {**llama, "n_kv_heads": 1}, {**mistral, "window": 4},
        {**neox, "n_layers": 1},
    ]  # fmt: skip


def test_cells_are_varied_or_crossed_and_keep_powers_of_two():
    found = one_at_a_time({"n_kv_heads": [2, 1]}, {**TINY, "arch": "llama"})
    assert [cell.settings for cell in found] == [{"n_kv_heads": 2}, {"n_kv_heads": 1}]
    found = cells(Bijection, TINY, {"arch": ["gpt-neox", "llama"], "n_layers": [1, 2]}, 1, crossed=True)
    assert [tuple(cell.settings.values()) for cell in found] == [
        ("gpt-neox", 1), ("gpt-neox", 2), ("llama", 1), ("llama", 2),
    ]  # fmt: skip
    assert make_plan(Bijection, {"n_steps": 40}, keep="log").keep == (0, 1, 2, 4, 8, 16, 32)
    (cell,) = cells(Bijection, TINY, {"arch": ["llama"]}, 1, keep="log")
    assert cell.plans[0].keep == (0, 1, 2, 4)


def test_what_no_architecture_has_is_refused_before_anything_is_trained():
    with pytest.raises(UsageError, match="of these none has grouped heads"):
        one_at_a_time({"arch": ["gpt-neox", "phi"], "n_kv_heads": [2, 1]})
    with pytest.raises(UsageError) as refused:
        cells(Bijection, TINY, {"arch": ["phi", "llama"], "n_kv_heads": [2, 1]}, 1, crossed=True)
    said = str(refused.value)
    assert "a sweep with arch = phi, n_kv_heads = 2: nothing was trained" in said
    assert "phi has no grouped heads" in said and "Without --crossed" in said
    assert len(one_at_a_time({"arch": ["phi", "llama"], "n_kv_heads": [2, 1]})) == 3
    with pytest.raises(UsageError, match="2 heads do not divide d_model = 6"):
        one_at_a_time({"d_model": [16, 6]}, {name: value for name, value in TINY.items() if name != "d_model"})


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
