"""Runs leave nothing behind in their process: no hook, thread, file or memory; two models at once do not mix."""

import gc
import threading
from pathlib import Path

import numpy as np
import psutil
import torch

import interp
from interp.editing.conditions import read_conditions
from interp.need import Need
from interp.reading.forward import capture
from interp.running.run import run
from tests.interp.editing.test_conditions import many, token_run
from tests.interp.records.test_unfinished import Sums
from tests.interp.system.test_processes import sequences
from tests.tiny_models import fresh_model, n_hooks

OPTIONS = {"probes": [Sums()], "n_pool": 24, "report": False, "quiet": True}


def held(module: torch.nn.Module) -> dict[str, int]:
    process = psutil.Process()
    gc.collect()
    return {
        "hooks": n_hooks(module),
        "threads": threading.active_count(),
        "files": process.num_fds(),
        "tensors": sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects()),
    }


def left_behind(n: int, out: Path) -> tuple[dict[str, int], dict[str, int], list[float]]:
    """What is held after the third run and after the last, and the megabytes of memory after every run."""
    model = interp.load("tunnel:bijection-gpt-neox")
    memory, first = [], {}
    for i in range(n):
        run(model, **OPTIONS, seed=i, out=out)
        gc.collect()
        memory.append(psutil.Process().memory_info().rss / 1e6)
        if i == 2:
            first = held(model.module)
    return first, held(model.module), memory


def test_runs_and_conditions_that_fail_leave_nothing_behind(tmp_path):
    first, last, memory = left_behind(8, tmp_path)
    assert last == first
    assert memory[-1] - memory[4] < 20, memory
    model = fresh_model("llama")
    before = n_hooks(model.module)
    for _ in range(3):
        read_conditions(model, token_run(), many(24))
        assert n_hooks(model.module) == before


def test_two_models_that_take_turns_do_not_mix():
    prompts, ids = sequences(8)
    needs = [Need("v"), Need("resid"), Need("next_log_prob"), Need("pattern_entropy_null")]
    models = {"llama": fresh_model("llama"), "gpt_neox": fresh_model("gpt_neox")}
    alone = {name: capture(model, prompts, ids, needs) for name, model in models.items()}
    inner = []

    def meanwhile(done, total):
        inner.append(capture(models["gpt_neox"], prompts, ids, needs))

    outer = capture(models["llama"], prompts, ids, needs, tokens_per_batch=24, progress=meanwhile)
    assert len(inner) > 2
    for need in needs:
        np.testing.assert_allclose(outer[need], alone["llama"][need], atol=1e-5)
        for each in inner:
            np.testing.assert_array_equal(each[need], alone["gpt_neox"][need])
