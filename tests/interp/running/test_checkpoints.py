"""Checkpoints: which a model has, one in memory at a time, the same tokens, and refusals in words."""

import gc
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from typing import Any, ClassVar

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import interp
from interp.capture import Capture
from interp.errors import InterpError, ModelError, UsageError
from interp.findings import Findings, Scalar
from interp.loading.sources import kept_steps, shipped_tunnels
from interp.need import Need
from interp.options import RunOptions
from interp.probe import Probe, Readout
from interp.prompting.pools import prompts_for
from interp.running import run as runner
from interp.running.checkpoints import checkpoints_of, has_checkpoints, step_of
from interp.running.choose_probes import choose_probes
from interp.running.collect import collect
from interp.running.plan import plan
from interp.running.run import run, specify
from interp.running.spec import RunSpec
from tests.tiny_models import fresh_model, tiny_model

TUNNEL = "tunnel:bijection-gpt-neox"
FAST = {"dynamics": {"n_permutations": 20, "n_bootstrap": 30}}


@dataclass(frozen=True)
class Follower(Probe):
    """Keeps the lengths of the values, and how many rows there were."""

    name: ClassVar[str] = "follower"
    question: ClassVar[str] = "How do the values grow?"
    follows_checkpoints: ClassVar[bool] = True

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need("v"),)

    def read_checkpoint(self, capture: Capture, final: Capture) -> Readout:
        assert capture.rows["token"].tolist() == final.rows["token"].tolist()
        assert capture.rows["stratum"].tolist() == final.rows["stratum"].tolist()
        norm = np.asarray(np.linalg.norm(capture[Need("v")]))
        return {"norm": norm, "n": np.array(capture.rows.n_rows)}

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        arrays = {f"{name}.{key}": np.asarray(x) for name, read in under.items() for key, x in read.items()}
        scalar = Scalar(float(len(under)), "1", interval_reason="a count", null_reason="a count", meaning="checkpoints")
        return Findings(self.name, {"count": scalar}, arrays=arrays, headline=("count",))


@pytest.fixture(scope="module")
def followed():
    return run(TUNNEL, probes=["dynamics"], settings=FAST, n_pool=30, out=None, quiet=True)


def test_a_tunnel_has_the_steps_of_its_folder_in_order_of_training(tunnel):
    kept = list(kept_steps(shipped_tunnels()["bijection-gpt-neox"]))
    found = checkpoints_of(tunnel, [Follower()], ())
    assert [c.step for c in found] == sorted(kept) == [0, 16, 64, 128, 256, 512]
    assert [c.name for c in found] == [str(step) for step in kept]
    assert found[1].model == f"{TUNNEL}@16" and step_of(tunnel) == 1200
    some = checkpoints_of(tunnel, [Follower()], ("512", "step16"))
    assert [c.name for c in some] == ["16", "512"]
    assert checkpoints_of(tunnel, [Follower()], ("16", "512", "1200")) == some, "the end is always read"
    assert has_checkpoints(tunnel)


def test_a_folder_and_a_step_of_a_tunnel_have_those_before_them():
    home = shipped_tunnels()["bijection-gpt-neox"]
    folder = checkpoints_of(interp.load(str(home), check=False), [Follower()], ())
    assert [c.step for c in folder] == [0, 16, 64, 128, 256, 512]
    assert interp.load(folder[2].model, check=False).card["step"] == 64
    at = checkpoints_of(interp.load(str(home / "steps" / "128"), check=False), [Follower()], ())
    assert [c.step for c in at] == [0, 16, 64]
    named = interp.load(f"{TUNNEL}@64", check=False)
    assert [(c.step, c.model) for c in checkpoints_of(named, [Follower()], ())] == [
        (0, f"{TUNNEL}@0"),
        (16, f"{TUNNEL}@16"),
    ]


def test_steps_models_and_probes_that_cannot_be_followed_are_refused(tiny_folders, tunnel):
    steps = f"step 7 of {TUNNEL}: it has the steps 0, 16, 64, 128, 256, 512, and is itself at 1200"
    for asked, words in ((("7",), steps), (("0", "x"), "step x of"), (("512",), r"there are 1 \(512\)")):
        with pytest.raises(UsageError, match=words):
            checkpoints_of(tunnel, [Follower()], asked)
    with pytest.raises(UsageError, match=r"512 of tunnel:bijection-gpt-neox@64.*\n?.*the model is at step 64"):
        checkpoints_of(interp.load(f"{TUNNEL}@64", check=False), [Follower()], ("0", "16", "512"))
    llama = interp.load("tunnel:bijection-llama", check=False)
    assert not has_checkpoints(llama)
    with pytest.raises(UsageError, match=r"there are none.*\n.*keep steps in the training"):
        run(llama, probes=["dynamics"], out=None, quiet=True)
    with pytest.raises(UsageError, match="no hub model, and step1 is no folder"):
        checkpoints_of(interp.load(tiny_folders["llama"], check=False), [Follower()], ("step1", "step2"))
    memory = interp.load(tiny_model("gpt_neox").module, check=False)
    with pytest.raises(UsageError, match="no hub model, and no folders are named"):
        checkpoints_of(memory, [Follower()], ())
    with pytest.raises(UsageError, match="no probe of this run follows a training"):
        run(tunnel, probes=["manifold"], checkpoints=["0", "16"], n_pool=10, out=None, quiet=True)
    edit = interp.RemoveAxis(layer=0, axis=np.eye(64)[0])
    with pytest.raises(UsageError, match=r"dynamics with --edit.*\n?.*from its first checkpoint"):
        run(tunnel, probes=["dynamics"], edits=[edit], n_pool=10, out=None, quiet=True)
    with pytest.raises(UsageError, match="the first checkpoint is the untrained model"):
        run(tunnel, probes=["dynamics"], null="untrained", n_pool=10, out=None, quiet=True)


@pytest.mark.parametrize("asked", [[0, 16], np.array([0, 16]), (Path("0"), "16"), "0,16"], ids=type)
@pytest.mark.usefixtures("without_type_checks")
def test_checkpoints_are_numbers_paths_or_names(asked: Any):
    assert RunOptions(checkpoints=asked).checkpoints == ("0", "16")
    one: Any = 16
    assert RunOptions(checkpoints=one).checkpoints == ("16",)


def test_the_record_says_what_was_read_and_how_to_read_it_again(followed):
    known = followed.model["checkpoints"]
    assert [entry["step"] for entry in known] == [0, 16, 64, 128, 256, 512, 1200]
    assert len({entry["fingerprint"] for entry in known}) == 7
    assert known[-1]["fingerprint"] == followed.model["fingerprint"]
    assert known[2]["fingerprint"] == interp.load(f"{TUNNEL}@64", check=False).fingerprint
    assert "--checkpoints 0,16,64,128,256,512" in followed.spec["command"]
    old = {key: value for key, value in followed.spec.items() if key != "checkpoints"}
    assert RunSpec.of(followed).checkpoints == ("0", "16", "64", "128", "256", "512")
    assert RunSpec.from_json(old).checkpoints == ()


def test_other_probes_run_beside_it_and_everything_leaves_it_out_where_there_is_no_training(tunnel):
    record = run(tunnel, probes=[Follower(), "attention_entropy"], n_pool=20, out=None, quiet=True)
    assert list(record.findings) == ["follower", "attention_entropy"]
    found = record.findings["follower"]
    assert found["count"].value == 7
    arrays = found.arrays
    assert arrays["1200.n"] == 20 * 12
    alone = interp.load(f"{TUNNEL}@128", check=False)
    prompts = prompts_for(alone, RunOptions(n_pool=20))
    assert arrays["128.norm"] == pytest.approx(np.linalg.norm(collect(alone, prompts, ["v"])[Need("v")]), rel=1e-5)


def test_everything_on_a_model_without_checkpoints_is_everything_else():
    names = {}
    for name in ("tunnel:bijection-llama", TUNNEL):
        model = interp.load(name, check=False)
        spec, _ = specify(model, RunOptions(name, n_pool=10), choose_probes("everything"))
        names[name] = sorted({"dynamics", "manifold"} & {*spec.probes})
    assert names == {"tunnel:bijection-llama": ["manifold"], TUNNEL: ["dynamics", "manifold"]}


TEXTS = tuple(" ".join(f"w{(7 * i + j * j) % 90 + 1}" for j in range(5 + i % 6)) for i in range(24))


def test_revisions_of_a_hub_model_are_read_on_the_drawn_prompts(revisions, use_cache):
    use_cache(revisions)
    asked = ["step1000", "step1", "step64"]
    record = run(
        "pythia-70m", probes=[Follower()], prompts=TEXTS, checkpoints=asked, per_quintile=3, out=None, quiet=True
    )
    arrays = record.findings["follower"].arrays
    assert [key for key in arrays if key.endswith("norm")] == ["1.norm", "64.norm", "1000.norm"]
    assert arrays["1.n"] == arrays["1000.n"] == 15, "three of each fifth"
    known = record.model["checkpoints"]
    assert [(entry["name"], entry["step"]) for entry in known] == [("step1", 1), ("step64", 64), ("step1000", 1000)]
    assert known[-1]["fingerprint"] == record.model["fingerprint"], "main is the last step, and not read twice"
    assert len({entry["revision"] for entry in known}) == 3
    assert record.spec["command"] == "", "prompts in memory have no name"
    assert RunSpec.of(record).checkpoints == ("step1", "step64", "step1000")


def test_folders_of_a_training_of_ones_own_are_its_checkpoints(tmp_path, tiny_folders):
    for i, step in enumerate(steps := (500, 0, 1000, 2000)):
        copytree(tiny_folders["llama"], folder := tmp_path / f"checkpoint-{step}")
        weights = load_file(folder / "model.safetensors")
        scaled = {name: (1 + i) * value for name, value in weights.items()}
        save_file(scaled, folder / "model.safetensors", metadata={"format": "pt"})
    earlier = [str(tmp_path / f"checkpoint-{step}") for step in steps[:3]]
    asked = {"probes": [Follower()], "prompts": TEXTS, "checkpoints": earlier, "out": None, "quiet": True}
    known = run(str(tmp_path / "checkpoint-2000"), **asked).model["checkpoints"]
    assert [entry["step"] for entry in known] == sorted(steps)
    assert known[1]["fingerprint"] == interp.load(earlier[0], check=False).fingerprint
    assert known[0]["fingerprint"] == interp.load(earlier[1], check=False).fingerprint
    with pytest.raises(UsageError, match="the model is at step 500, and the model must be the last"):
        run(earlier[0], **asked)
    with pytest.raises(UsageError, match="does not contain the training step"):
        run(str(tmp_path / "checkpoint-2000"), **asked | {"checkpoints": [*earlier, str(tmp_path)]})
    end = interp.load(tmp_path / "checkpoint-2000")
    in_memory = interp.load(end.module, tokenizer=end.tokenizer)
    assert [entry["step"] for entry in run(in_memory, **asked).model["checkpoints"]] == [0, 500, 1000, None]
    planned = plan(model=str(tmp_path / "checkpoint-2000"), probes="dynamics", checkpoints=earlier)
    assert planned.steps[1].n > 3 and planned.download == 0


def test_a_hub_model_without_revisions_or_at_one_is_refused_beyond_it(revisions, use_cache):
    use_cache(revisions)
    for asked, words in (
        ((), "there are none.*\n.*--revisions step1,step512,step143000"),
        (("step1", "step64"), r"there are 2 \(step1, step64\)"),
        (("step1", "step64", "early-bird"), "early-bird.*\n?.*does not contain the training step"),
    ):
        with pytest.raises(UsageError, match=words):
            run("pythia-70m", probes=["dynamics"], prompts=TEXTS, checkpoints=asked, out=None, quiet=True)
    with pytest.raises(InterpError, match="step7"):
        run("pythia-70m", probes=["dynamics"], settings=FAST, prompts=TEXTS, checkpoints=["step1", "step64", "step7"],
            out=None, quiet=True)  # fmt: skip
    use_cache(revisions)
    model = interp.load("pythia-70m@step64", check=False)
    assert step_of(model) == 64 and step_of(interp.load("pythia-70m", check=False)) is None
    with pytest.raises(UsageError, match="step1000 of pythia-70m@step64"):
        checkpoints_of(model, [Follower()], ("step0", "step1", "step1000"))


def test_one_model_is_in_memory_at_a_time(monkeypatch):
    """The run's own is gone before the first checkpoint is loaded, and each before the next."""
    modules, load_as_asked = [], runner.load_as_asked

    def watched(*args, **keywords):
        assert all(ref() is None for ref in modules), f"model {len(modules)} is still there"
        model = load_as_asked(*args, **keywords)
        modules.append(weakref.ref(model.module))
        return model

    monkeypatch.setattr(runner, "load_as_asked", watched)
    gc.disable()  # nothing may wait for the collector
    try:
        run(TUNNEL, probes=[Follower()], n_pool=4, checkpoints=["0", "64"], out=None, quiet=True)
    finally:
        gc.enable()
    assert len(modules) == 3


def test_another_architecture_is_no_checkpoint(monkeypatch):
    loaded = [runner.load_as_asked, lambda options: fresh_model("llama", num_hidden_layers=2)]
    monkeypatch.setattr(runner, "load_as_asked", lambda options: loaded.pop(0)(options))
    with pytest.raises(ModelError, match=r"it is another architecture \(.*layers: 2 there, 3 here"):
        run(TUNNEL, probes=[Follower()], n_pool=4, checkpoints=["0", "64"], out=None, quiet=True)


def test_a_probe_that_says_it_follows_has_to_say_what_it_keeps(tunnel):
    class Mute(Follower):
        read_checkpoint = Probe.read_checkpoint

    with pytest.raises(NotImplementedError, match="does not say what it keeps"):
        run(tunnel, probes=[Mute()], n_pool=5, out=None, quiet=True)
