"""Sweeps: the grid, what is done again and what is not, and the statistics over seeds."""

import json

import numpy as np
import pytest
from scipy import stats

from interp.errors import UsageError
from wind_tunnels import sweep as sweeps
from wind_tunnels.bijection import Bijection
from wind_tunnels.cards import CURVE_NAME
from wind_tunnels.sweep import SWEEP_NAME, cells, over_seeds, run_sweep

TINY = {"V": 3, "L": 4, "n_heads": 2, "d_model": 16, "n_steps": 6, "batch": 6, "n_copies": 3, "n_warmup": 2}


def run(folder, varied, n_seeds=1, heard=None):
    def begun(plan):
        def on_step(progress):
            if heard is not None:
                heard.append((plan.name, progress.step))

        return on_step

    return run_sweep("bijection", cells(Bijection, TINY, varied, n_seeds), folder, begun)


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
        assert len(set(values)) == 2 and cell["figures"]["kl_bits"]["mean"] == pytest.approx(np.mean(values))
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
    carried = sweeps.carry_out

    def failing(plan, *rest):
        if plan.network.d_model == 8:
            raise RuntimeError("out of luck")
        return carried(plan, *rest)

    monkeypatch.setattr(sweeps, "carry_out", failing)
    monkeypatch.delitem(TINY, "d_model")
    table = run(tmp_path, {"n_layers": [1], "d_model": [8, 6, 16]})
    unlucky, refused, fine = table["cells"]
    assert "RuntimeError: out of luck" in unlucky["failures"]["0"]
    assert "2 heads do not divide d_model = 6" in refused["failures"]["0"]
    assert refused["figures"]["kl_bits"]["interval_reason"] == "no training was finished"
    assert fine["failures"] == {} and len(fine["runs"]) == 1
    assert fine["figures"]["kl_bits"]["interval_reason"] == "one seed"


def test_interval_over_seeds_is_that_of_students_t():
    values = [0.010, 0.012, 0.011, 0.016]
    found = over_seeds(values)
    expected = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert found["interval"] == pytest.approx(expected)
    assert over_seeds([0.001, 0.1])["interval"][0] == 0.0


def test_field_that_is_set_and_varied_is_refused():
    with pytest.raises(UsageError, match="V is set and varied"):
        cells(Bijection, TINY, {"V": [3, 4]}, 1)
    with pytest.raises(UsageError, match="seeds are counted by --seeds"):
        cells(Bijection, TINY, {"seed": [3, 4]}, 1)
