"""Models whose weights lie in main memory or on disk until they are needed are read like any other."""

import copy

import numpy as np
import pytest
import torch
from accelerate import cpu_offload, disk_offload

import interp
from interp.editing.conditions import read_conditions
from interp.errors import UsageError
from interp.loading.placement import choose_placement
from interp.need import Need
from interp.options import RunOptions
from interp.reading.batches import BatchRows, make_batch, row_index
from interp.reading.forward import capture
from interp.system.offload import brought_in, device_of
from tests.interp.editing.test_conditions import many, token_run
from tests.interp.system.test_processes import sequences
from tests.tiny_models import FAMILIES, fresh_model, tiny_config

CPU = torch.device("cpu")

NEEDS = (
    Need("q_pre"), Need("k", at="all"), Need("z"), Need("resid", at="all"), Need("pattern_entropy"), Need("mlp_out"),
    Need("lens_entropy"), Need("attn_logit"), Need("next_loss", at="followed"), Need("next_log_prob"), Need("W_O"),
    Need("W_V"),
)  # fmt: skip


def offloaded(family: str, to: str, folder) -> torch.nn.Module:
    module = copy.deepcopy(fresh_model(family).module)
    if to == "disk":
        disk_offload(module, str(folder), execution_device=CPU)
    else:
        cpu_offload(module, execution_device=CPU)
    assert all(p.is_meta for p in module.parameters())
    return module


@pytest.mark.parametrize("family, to", [*((family, "memory") for family in FAMILIES), ("llama", "disk")])
def test_an_offloaded_model_is_proved_and_read_like_the_whole_one(family, to, tmp_path):
    """The self-check passes; every kind of site, lens and weights included, has the bits of the model in one place."""
    whole = fresh_model(family)
    model = interp.load(offloaded(family, to, tmp_path))
    assert model.info.device == "offloaded" and all(check.passed for check in model.checks)
    assert {"output", "projections", "head"} <= {check.name for check in model.checks}
    assert model.input_device == CPU
    prompts, ids = sequences(6)
    theirs, ours = capture(whole, prompts, ids, NEEDS), capture(model, prompts, ids, NEEDS)
    for need in NEEDS:
        np.testing.assert_array_equal(ours[need], theirs[need], err_msg=str(need))
    assert all(p.is_meta for p in model.module.parameters())


def test_edits_of_an_offloaded_model_do_what_they_do_to_the_whole_one(tmp_path):
    whole, model = fresh_model("llama"), interp.load(offloaded("llama", "memory", tmp_path), check=False)
    run, conditions = token_run(), many(24)
    theirs, checks = read_conditions(whole, run, conditions), []
    ours = read_conditions(model, run, conditions, checks=checks)
    assert checks and all(check.passed for check in checks)
    for name, readout in theirs.items():
        for what, array in readout.items():
            np.testing.assert_array_equal(ours[name][what], array, err_msg=f"{name} {what}")
    assert (theirs["bypass"]["next_kl"] > 0).any()


def test_weights_are_brought_in_and_sent_away_again(tmp_path):
    module = offloaded("phi", "disk", tmp_path)
    attention = module.model.layers[1].self_attn
    with brought_in(attention):
        assert torch.equal(attention.v_proj.weight, fresh_model("phi").module.model.layers[1].self_attn.v_proj.weight)
        assert module.model.layers[0].self_attn.v_proj.weight.is_meta
    assert attention.v_proj.weight.is_meta
    assert device_of(module.get_input_embeddings()) == CPU


def test_blocks_may_lie_on_several_devices(monkeypatch):
    """Rows are picked on the device of each tensor: index tensors follow, and move back for the next."""
    moved = []
    real = BatchRows.to
    monkeypatch.setattr(BatchRows, "to", lambda self, device: moved.append(device) or real(self, device))
    prompts, ids = sequences(3)
    capture(fresh_model("llama"), prompts, ids, [Need("v"), Need("resid"), Need("pattern_entropy")])
    assert len(moved) >= 3 * 3
    rows = make_batch(ids, np.arange(3), CPU).rows(row_index(prompts, np.array([len(x) for x in ids]), "all"))
    elsewhere = real(rows, torch.device("meta"))
    assert elsewhere.item.is_meta and elsewhere.padded.is_meta and elsewhere.row is rows.row
    assert real(rows, CPU) is rows


def test_every_process_has_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (1 << 34, 1 << 34))
    monkeypatch.setenv("LOCAL_RANK", "6")
    config = tiny_config("llama")
    assert choose_placement(config, 1000, RunOptions()).device == "cuda"
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert choose_placement(config, 1000, RunOptions()).device == "cuda:2"
    assert choose_placement(config, 1000, RunOptions(device="cuda")).device == "cuda:2"
    assert choose_placement(config, 1000, RunOptions(device="cuda:1")).device == "cuda:1"
    with pytest.raises(UsageError, match="over the same devices"):
        choose_placement(config, 1000, RunOptions(device_map="auto"))
