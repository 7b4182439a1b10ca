"""Every way of reading gives the same numbers, on the same weights; the meters see what they should."""

import json
import subprocess
import sys
from dataclasses import asdict

import numpy as np
import pytest
import torch

import benchmarks.__main__
from benchmarks.__main__ import Place, run_job, run_jobs
from benchmarks.analysis import probe_seconds
from benchmarks.gpu import Limits, least_seconds, limits
from benchmarks.meters import MIB, ProcessorMeter, own_cores
from benchmarks.methods import METHODS
from benchmarks.shapes import Shape, write_model
from benchmarks.worker import Job, Measured, draw_batches, load_plain, measure, shared_copy
from interp.loading.load import load
from interp.need import Need
from interp.prompt import Prompt, PromptSet
from interp.reading.forward import capture
from interp.testing import Shape as CaptureShape

SIZES = {
    "vocab_size": 101, "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4
}  # fmt: skip
INSTALLED = sorted(name for name, method in METHODS.items() if method.is_installed and method.side is None)


@pytest.fixture(scope="module", params=["gpt_neox", pytest.param("llama", marks=pytest.mark.slow)])
def folder(request, tmp_path_factory):
    further = {"gpt_neox": {"rotary_pct": 0.5}, "llama": {"num_key_value_heads": 2}}[request.param]
    return write_model(Shape(request.param, SIZES | further), tmp_path_factory.mktemp("model"), scale=0.3)


def job(folder, method) -> Job:
    return Job(str(folder), method, batch=2, length=9, n_batches=2)


def read(folder, method):
    with torch.inference_mode():
        module = load_plain(folder, "cpu", "float32")
        batches = draw_batches(job(folder, method), SIZES["vocab_size"])
        return METHODS[method].prepare(shared_copy(module), folder)(batches, lambda: None)


@pytest.fixture(scope="module")
def truth(folder):
    """Values and entropies by the definition, from attention rows that eager attention returns."""
    found = read(folder, "output-attentions")
    return [torch.cat([getattr(r, name) for r in found], dim=1) for name in ("values", "entropy")]


@pytest.mark.parametrize("method", [name for name in INSTALLED if name != "floor"])
def test_every_method_reads_the_same(folder, truth, method):
    found = read(folder, method)
    for name, expected in zip(("values", "entropy"), truth, strict=True):
        parts = [getattr(r, name) for r in found]
        if parts[0] is None:
            assert (method, name) == ("ours-last", "entropy")
        else:
            torch.testing.assert_close(torch.cat(parts, dim=1).float(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("method", ["floor", "eager-hooks", "output-attentions", "lens-filtered"])
def test_logits_are_those_of_our_pass(folder, method):
    if method not in INSTALLED:
        pytest.fail(f"{method} cannot run: {METHODS[method].package} belongs to the development packages")
    batches = draw_batches(job(folder, method), SIZES["vocab_size"])
    rows = [row for ids in batches for row in ids.numpy()]
    prompts = PromptSet("same", [Prompt(text=f"text {n}") for n in range(len(rows))])
    model = load(load_plain(folder, "cpu", "float32"), check=False)
    mine = capture(model, prompts, rows, [Need("next_log_prob")])[Need("next_log_prob")]
    logits = torch.cat([r.logits for r in read(folder, method)]).double()
    np.testing.assert_allclose(mine, (torch.log_softmax(logits, -1) / np.log(2)).numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("method", INSTALLED)
def test_a_measurement_has_a_time_of_every_batch_beside_the_floors(folder, method):
    found = measure(job(folder, method))
    assert len(found.seconds) == len(found.floor_seconds) == 2
    assert min(*found.seconds, *found.floor_seconds) > 0
    assert found.bytes >= 0


@pytest.mark.slow
def test_a_measurement_comes_as_json_or_last_words_from_a_process_of_its_own(folder, tmp_path):
    found = run_job(job(folder, "floor"))
    assert isinstance(found, Measured) and len(found.seconds) == 2
    found = run_job(job(tmp_path / "nowhere", "floor"))
    assert isinstance(found, str) and found.startswith("failed (")
    command = [sys.executable, "-m", "benchmarks.worker", json.dumps(asdict(job(folder, "ours-last")))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]).keys() == Measured.__dataclass_fields__.keys()


def test_a_library_that_is_not_installed_has_a_row_that_says_so(folder):
    works = {"w": {"model": "m", "batch": 1, "length": 4, "n_batches": 1}}
    if METHODS["nnterp"].is_installed:
        pytest.fail("nnterp belongs into the benchmarks' own environment alone")
    found = run_jobs(works, {"w": ["nnterp"]}, {"m": folder}, Place(), lambda _: None)
    assert found == {("w", "nnterp"): "nnterp is not installed"}


@pytest.mark.skipif(not own_cores(), reason="the system does not say which cores there are")
def test_what_is_compared_runs_on_one_core_and_the_others_stay_free_for_the_rest(folder, monkeypatch):
    def which(job: Job) -> str:
        return subprocess.run(
            [sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"], capture_output=True, text=True
        ).stdout.strip()

    monkeypatch.setattr(benchmarks.__main__, "run_job", which)
    works = {"w": {"model": "m", "batch": 1, "length": 4, "n_batches": 1}}
    before = own_cores()
    found = run_jobs(works, {"w": ["floor", "ours-same", "ours-last"]}, {"m": folder}, Place(at_once=2), lambda _: None)
    assert set(found.values()) <= {f"[{core}]" for core in before}
    assert own_cores() == before


def test_the_copy_shares_its_weights_and_nothing_else(folder):
    module = load_plain(folder, "cpu", "float32")
    twin = shared_copy(module)
    for mine, theirs in zip(module.parameters(), twin.parameters(), strict=True):
        assert mine is theirs
    twin.set_attn_implementation("eager")
    assert module.config._attn_implementation == "sdpa"


def test_the_meter_sees_memory_that_was_freed_again_and_forgets_it_at_the_next_start():
    meter = ProcessorMeter()
    base = meter.settle()
    meter.start()
    big = np.ones(64 * MIB, dtype=np.uint8)
    del big
    seconds, peak = meter.stop()
    assert seconds > 0
    assert 60 * MIB < peak - base < 80 * MIB
    meter.settle()  # an array that lay between others on the heap is kept until then
    meter.start()
    assert meter.stop()[1] - base < 16 * MIB


def test_the_least_time_is_that_of_the_counted_operations(folder):
    module = load_plain(folder, "cpu", "float32")
    most = limits("cpu", torch.float32, size=256, n_bytes=1 << 20)
    assert most.flops > 0 and most.bandwidth > 0
    once, twice = (least_seconds(module, n, 64, Limits(1.0, 1e30)) for n in (8, 16))
    assert twice == 2 * once
    tiny = least_seconds(module, 1, 1, Limits(1e30, 1.0))
    embedding = module.get_input_embeddings().weight.numel()
    assert tiny == 4 * (sum(p.numel() for p in module.parameters()) - embedding)


def test_a_model_without_weights_in_its_folder_makes_its_own(tmp_path):
    folder = write_model(Shape("mistral", SIZES | {"num_key_value_heads": 2}), tmp_path, has_weights=False)
    assert not (folder / "model.safetensors").exists()
    assert load_plain(folder, "cpu", "bfloat16").dtype == torch.bfloat16
    found = measure(Job(str(folder), "ours-entropy", 2, 9, 1, dtype="bfloat16"))
    assert found.seconds[0] > 0


@pytest.mark.slow
def test_the_analysis_times_every_observational_probe():
    shape = CaptureShape(n_prompts=20, n_layers=2, vocab_size=600)
    assert {"manifold", "attention_entropy", "components"} <= set(probe_seconds(shape))
