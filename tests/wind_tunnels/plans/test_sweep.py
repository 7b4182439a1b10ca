"""Sweeps: the grid, what is done again and what is not, and the statistics over seeds."""

import json

import numpy as np
import pytest
import torch
from interp.wind_tunnels.evaluation.checkpoint import CURVE_NAME
from interp.wind_tunnels.plans import sweep as sweeps
from interp.wind_tunnels.plans.sweep import SWEEP_NAME, cells, refuse_impossible, run_sweep
from interp.wind_tunnels.plans.train_tunnel import make_plan
from interp.wind_tunnels.tasks.bijection import Bijection
from scipy import stats
from typer.testing import CliRunner

from interp.cli.app import app
from interp.errors import UsageError
from interp.records.record import open_run

TINY = {"V": 3, "L": 4, "n_heads": 2, "d_model": 16, "n_steps": 6, "batch": 6, "n_copies": 3, "n_warmup": 2}


def run(folder, varied, n_seeds=1, heard=None):
    def on_begin(plan):
        def on_step(state):
            if heard is not None:
                heard.append((plan.name, state.step))

        return on_step

    return run_sweep("bijection", cells(Bijection, TINY, varied, n_seeds), folder, on_begin)


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


def timeless(cell):
    """What the table of a sweep says of a combination, without the time that it took."""
    return {**cell, "core_seconds": None, "runs": [{**run, "core_seconds": None} for run in cell["runs"]]}


@pytest.mark.slow
def test_side_by_side_a_sweep_is_that_of_one_after_the_other(two_workers, tmp_path):
    varied = {"arch": ["gpt-neox"], "n_layers": [1, 2]}
    together = run(tmp_path / "together", varied, 2)
    torch.set_num_threads(1)
    alone = run(tmp_path / "alone", varied, 2)
    for one, other in zip(together["cells"], alone["cells"], strict=True):
        assert timeless(one) == timeless(other) and [run["seed"] for run in one["runs"]] == [0, 1]


def test_what_cannot_be_trained_is_told_and_stops_nothing(tmp_path, monkeypatch):
    trained = sweeps.train_tunnel

    def failing(plan, *rest):
        if plan.network.d_model == 8:
            raise RuntimeError("out of luck")
        return trained(plan, *rest)

    monkeypatch.setattr(sweeps, "train_tunnel", failing)
    monkeypatch.delitem(TINY, "d_model")
    table = run(tmp_path, {"n_layers": [1], "d_model": [8, 6, 16]})
    unlucky, refused, fine = table["cells"]
    assert "RuntimeError: out of luck" in unlucky["failures"]["0"]
    assert "2 heads do not divide d_model = 6" in refused["failures"]["0"]
    assert refused["figures"]["kl_bits"]["interval_reason"] == "no training was finished"
    assert fine["failures"] == {} and len(fine["runs"]) == 1
    assert fine["figures"]["kl_bits"]["interval_reason"] == "one seed"


def test_fields_set_and_varied_are_refused():
    with pytest.raises(UsageError, match="V is set and varied"):
        cells(Bijection, TINY, {"V": [3, 4]}, 1)
    with pytest.raises(UsageError, match="seeds are counted by --seeds"):
        cells(Bijection, TINY, {"seed": [3, 4]}, 1)


def one_at_a_time(varied, fixed=TINY):
    return cells(Bijection, fixed, varied, 1, design="one-at-a-time")


def test_one_setting_at_a_time_is_varied_where_it_can_be():
    archs = ["gpt-neox", "phi", "llama", "mistral"]
    found = one_at_a_time({"arch": archs, "n_kv_heads": [2, 1], "window": [24, 4], "n_layers": [2, 1]})
    neox, llama = {"arch": "gpt-neox", "n_layers": 2}, {"arch": "llama", "n_kv_heads": 2, "n_layers": 2}
    mistral = {"arch": "mistral", "n_kv_heads": 2, "window": 24, "n_layers": 2}
    assert [(cell.label, cell.against, cell.settings) for cell in found] == [
        ("gpt-neox", "gpt-neox", neox),
        ("phi", "gpt-neox", {"arch": "phi", "n_layers": 2}),
        ("llama", "gpt-neox", llama),
        ("mistral", "gpt-neox", mistral),
        ("llama, n_kv_heads 1", "llama", {**llama, "n_kv_heads": 1}),
        ("mistral, window 4", "mistral", {**mistral, "window": 4}),
        ("gpt-neox, n_layers 1", "gpt-neox", {**neox, "n_layers": 1}),
    ]
    assert not any(cell.failures for cell in found)
    by_label = {cell.label: cell for cell in found}
    for cell in found:  # each differs from what it is compared with in one choice alone
        reference = by_label[cell.against].settings
        common = set(cell.settings) & set(reference)
        assert cell.label == cell.against or sum(cell.settings[n] != reference[n] for n in common) == 1


def test_cells_are_varied_or_crossed_and_keep_powers_of_two():
    found = one_at_a_time({"n_kv_heads": [2, 1]}, {**TINY, "arch": "llama"})
    assert [(cell.label, cell.settings) for cell in found] == [
        ("reference", {"n_kv_heads": 2}), ("n_kv_heads 1", {"n_kv_heads": 1}),
    ]  # fmt: skip
    found = cells(Bijection, TINY, {"arch": ["gpt-neox", "llama"], "n_layers": [1, 2]}, 1, design="crossed")
    assert [cell.label for cell in found] == [
        "gpt-neox, n_layers 1", "gpt-neox, n_layers 2", "llama, n_layers 1", "llama, n_layers 2",
    ]  # fmt: skip
    assert {cell.against for cell in found} == {"gpt-neox, n_layers 1"}
    assert make_plan(Bijection, {"n_steps": 40}, keep="log").keep == (0, 1, 2, 4, 8, 16, 32)
    (cell,) = cells(Bijection, TINY, {"arch": ["llama"]}, 1, keep="log")
    assert cell.plans[0].keep == (0, 1, 2, 4)


def test_what_no_architecture_has_is_refused_before_anything_is_trained():
    with pytest.raises(UsageError, match="of these none has grouped heads"):
        one_at_a_time({"arch": ["gpt-neox", "phi"], "n_kv_heads": [2, 1]})
    impossible = cells(Bijection, TINY, {"arch": ["phi", "llama"], "n_kv_heads": [2, 1]}, 1, design="crossed")
    with pytest.raises(UsageError) as refused:
        refuse_impossible(impossible)
    said = str(refused.value)
    assert "phi, n_kv_heads 2 makes no sense, and 1 more make none either; nothing was trained" in said
    assert "phi has no grouped heads" in said and "Without --crossed" in said
    refuse_impossible(one_at_a_time({"arch": ["phi", "llama"], "n_kv_heads": [2, 1]}))


@pytest.mark.slow
def test_sweep_with_probes_measures_every_network_and_compares_the_settings(tmp_path):
    sets = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]
    probe = ["--probe", "manifold", "--n-pool", "30", "--probe-set", "n_permutations=30", "--probe-set", "n_null=20"]
    words = ["tunnel", "sweep", "bijection", "--arch", "gpt-neox,llama", "--depths", "2,1", "--seeds", "2", "--keep",
             "log", *sets, *probe, "--out", str(tmp_path)]  # fmt: skip
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "network 3 of 6, loading and checking" in result.stderr
    page = result.stdout.strip().splitlines()[-1]
    comparison = open_run(page.removesuffix("/report.html")).findings["comparison"]
    frame = comparison.to_frame("differences")
    share = frame[frame["name"] == "pc1_plus_pc2_share"]
    assert share["group"].tolist() == ["gpt-neox", "llama", "gpt-neox, n_layers 1"]
    assert share["against"].tolist() == ["", "gpt-neox", "gpt-neox"] and set(share["n_runs"]) == {2}
    error = frame[(frame["name"] == "kl_bits") & (frame["group"] == "gpt-neox")]["value"].item()
    swept = json.loads((tmp_path / SWEEP_NAME).read_text())
    assert error == pytest.approx(swept["cells"][0]["figures"]["kl_bits"]["mean"])
    assert (tmp_path / "bijection-llama-n_layers2-seed1" / "steps" / "4").is_dir()
    records = sorted((tmp_path / "records").glob("*/run.json"))
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 0 and again.stdout == result.stdout
    assert sorted((tmp_path / "records").glob("*/run.json")) == records and len(records) == 6


def test_unknown_probe_is_refused_before_anything_is_trained(tmp_path):
    words = ["tunnel", "sweep", "bijection", "--arch", "llama", "--probe", "manifolt", "--out", str(tmp_path / "sweep")]
    with pytest.raises(UsageError, match="Did you mean manifold"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert not (tmp_path / "sweep").exists()
