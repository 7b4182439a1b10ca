"""Several processes on one run give what one gives; one that ends or hangs ends the run in words."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

import interp
from interp.editing.conditions import capture_edited, read_conditions
from interp.edits import AblateHeads
from interp.errors import UsageError
from interp.need import Need
from interp.prompt import PromptSet
from interp.reading.batches import cut
from interp.reading.forward import capture
from interp.reductions import PromptMean
from interp.system.processes import ALONE, Ranks, here
from tests.captures import assert_captures_agree
from tests.interp.editing.test_conditions import many, token_run
from tests.interp.hooks.test_ropes import prompts_of
from tests.interp.system.thread_ranks import in_ranks
from tests.paths import ROOT
from tests.quick import quick
from tests.reports.everything import SETTINGS
from tests.tiny_models import VOCAB, fresh_model

NEEDS = (
    Need("v"), Need("resid", at="last"), Need("pattern_entropy", at="all"), Need("pattern_entropy_null", at="all"),
    Need("next_log_prob"), Need("lens_kl"), Need("next_loss", at="followed"), Need("W_Q"),
    Need("q", PromptMean(), "all"),
)  # fmt: skip


def sequences(n: int, seed: int = 0, repeated: bool = False) -> tuple[PromptSet, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    ids = [rng.integers(0, VOCAB, size=int(rng.integers(2, 12))) for _ in range(n)]
    if repeated:
        ids = [ids[i % 3] for i in range(n)]
    return prompts_of(*ids), ids


@pytest.mark.parametrize("size, n, repeated", [(2, 11, False), (3, 7, True), (4, 2, False)])
def test_ranks_capture_together_what_one_process_captures(size, n, repeated):
    """Uneven shares, repeated prompts, and more ranks than batches: rows to the bit, moments to 1e-12."""
    prompts, ids = sequences(n, repeated=repeated)
    whole = capture(fresh_model("llama"), prompts, ids, NEEDS, tokens_per_batch=24)
    models = [fresh_model("llama") for _ in range(size)]
    everybodys = in_ranks(size, lambda ranks: capture(models[ranks.rank], prompts, ids, NEEDS, tokens_per_batch=24))
    for parts in everybodys:
        assert_captures_agree(whole, parts, rtol=1e-12, atol=1e-12)  # of float32 the same bits


def test_every_rank_runs_its_own_batches_and_no_other():
    """Each prompt passes once, but for the batch that lends its keys to the next share where a null asks for them."""
    prompts, ids = sequences(12)
    models = [fresh_model("llama") for _ in range(3)]
    read: list[list[int]] = [[] for _ in models]
    for model, mine in zip(models, read, strict=True):
        model.module.register_forward_pre_hook(
            lambda module, args, kwargs, mine=mine: mine.append(len(kwargs["input_ids"])), with_kwargs=True
        )
    in_ranks(3, lambda r: capture(models[r.rank], prompts, ids, [Need("v")], tokens_per_batch=20))
    assert sum(map(sum, read)) == 12 and all(read)
    in_ranks(3, lambda r: capture(models[r.rank], prompts, ids, [Need("qk_cosine_null")], tokens_per_batch=20))
    lent = sum(map(len, read)) - 2 * (n_batches := len(cut(np.array([len(x) for x in ids]), 20)))
    assert lent == 2 and n_batches > 3


CHOSEN = [(2, slice(None)), (3, slice(0, 3)), (3, slice(8, 10))]


@pytest.mark.parametrize("size, chosen", quick(CHOSEN[1:2], CHOSEN))
def test_ranks_read_conditions_as_one_process_does(size, chosen):
    """Many conditions are dealt out, few are shared batch by batch; both give the same bits."""
    models, run = [fresh_model("llama") for _ in range(size)], token_run((9, 6, 9, 4, 7, 8))

    def read(model):
        return read_conditions(model, run, many(24)[chosen], tokens_per_pass=30, checks=[])

    whole = read(models[0])
    for found in in_ranks(size, lambda ranks: read(models[ranks.rank])):
        assert list(found) == list(whole)
        for name, readout in whole.items():
            for key, array in readout.items():
                np.testing.assert_array_equal(found[name][key], array, err_msg=f"{name} {key}")


def test_ranks_capture_an_edited_model_together():
    ids = [np.resize(x, 90) for x in sequences(40, seed=3)[1]]
    prompts = prompts_of(*ids)
    models = [fresh_model("llama") for _ in range(2)]
    edits = (AblateHeads(layer=1, heads=(1,), by="mean"),)
    needs = [Need("v"), Need("pattern_entropy_null"), Need("edit_size"), Need("next_kl")]
    whole = capture_edited(models[0], prompts, ids, needs, edits)
    for parts in in_ranks(2, lambda r: capture_edited(models[r.rank], prompts, ids, needs, edits)):
        assert_captures_agree(whole, parts)


def test_shares_are_even_and_ranks_that_differ_refused():
    for n in range(9):
        for size in range(1, 6):
            shares = [Ranks(rank, size).share(n) for rank in range(size)]
            assert [i for share in shares for i in share] == list(range(n))
            assert max(map(len, shares)) - min(map(len, shares)) <= 1
    with pytest.raises(UsageError, match="weights is not the same everywhere: a in process 1, b in process 2"):
        in_ranks(2, lambda ranks: ranks.agree("the fingerprint of the weights", "ab"[ranks.rank]))


@pytest.mark.slow
def test_one_process_needs_no_distributed_code(monkeypatch):
    import torch.distributed

    for name in ("init_process_group", "new_group", "all_gather_object"):
        monkeypatch.delattr(torch.distributed, name)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    fast = {"manifold": SETTINGS["manifold"]}
    record = interp.run(settings=fast, n_pool=30, out=None, quiet=True)
    assert record.findings["manifold"].headline and "processes" not in record.environment
    assert here() is ALONE and here().union(3) == [3] and here().of_first(4) == 4


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    root = str(ROOT)
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": root, "CUDA_VISIBLE_DEVICES": "", **more}


def start(code: str, size: int = 2, **more: str) -> list[subprocess.Popen]:
    """`code` in `size` processes, as a launcher would start them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    return [
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
            env=environment(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                            MASTER_PORT=port, **more),
        )
        for rank in range(size)
    ]  # fmt: skip


def test_processes_exchange_exactly():
    code = """
import torch
from interp.system.processes import here, joined, n_started
assert n_started() == 2 and here().is_alone
with joined() as r:
    assert here() is r and r.union(("x", r.rank)) == [("x", 0), ("x", 1)]
    assert r.of_first({"n": r.rank}) == {"n": 0}
    sent = torch.tensor([-0.0, float("nan"), 1e-30]).bfloat16()
    assert all(torch.equal(x.view(torch.int16), sent.view(torch.int16)) for x in r.union(sent))
assert here().is_alone
print("done")
"""
    for process in start(code):
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out.strip()) == (0, "done"), err


DIES, HANGS = "r.union(None); r.rank and sys.exit('memory ran out here')", "r.rank and sys.stdin.read()"


@pytest.mark.slow
@pytest.mark.parametrize(("second", "said"), [(DIES, "another process ended or does"), (HANGS, "RANK_TIMEOUT")])
def test_a_process_that_dies_or_hangs_ends_the_others_in_words(second, said):
    code = f"""
import sys
from interp.system.processes import joined
from interp.errors import InterpError
try:
    with joined() as r:
        {second}
        r.union(1)
except InterpError as error:
    sys.exit(f"interp: {{error}}")
"""
    first, other = start(code, INTERP_RANK_TIMEOUT="5")
    told = first.communicate(timeout=120)[1]
    assert first.returncode == 1 and said in told, told
    assert second is HANGS or "memory ran out here" in other.communicate(timeout=120)[1]
    other.communicate(input="", timeout=120)


@pytest.mark.slow
def test_accelerate_launch_leaves_one_record_with_the_numbers_of_one_process(tmp_path):
    """Observational and causal probes, on a tunnel: every scalar and table is that of a single process."""
    words = ["interp", "run", "--probe", "manifold,attention_entropy", "--n-pool", "41", "--out"]
    fast = ["--set", "manifold.n_permutations=50", "--set", "manifold.n_null=20"]
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2",
              "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "-m"]  # fmt: skip
    commands = {"one": [sys.executable, "-m"], "two": launch}
    for name, command in commands.items():
        done = subprocess.run(
            [*command, *words, str(tmp_path / name), *fast], capture_output=True, text=True, env=environment()
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("report.html") == 1
    folders = {name: list((tmp_path / name).iterdir()) for name in commands}
    assert [len(found) for found in folders.values()] == [1, 1]
    one, two = (json.loads((folders[name][0] / "run.json").read_text()) for name in commands)
    assert two["environment"]["processes"] == 2 and "processes" not in one["environment"]
    assert one["spec_hash"] == two["spec_hash"]
    assert one["findings"] == two["findings"]
    assert (folders["two"][0] / "report.html").exists()
