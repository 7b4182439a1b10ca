"""`interp tunnel`: train, eval, sweep, rebuild."""

import json
import re
import shutil
from pathlib import Path

import pytest
from interp.wind_tunnels.plans import train_tunnel
from interp.wind_tunnels.tasks.bijection import Bijection
from interp.wind_tunnels.training.loop import TrainingState, train
from typer.testing import CliRunner

import interp
from interp.cli.app import app
from interp.errors import InterpError, ModelError, UnknownName, UsageError
from interp.records.tunnel_card import read_card
from tests.quick import quick

TINY = [
    word
    for setting in ("V=3", "L=4", "d_model=16", "n_heads=2", "n_steps=6", "batch=6", "n_copies=3", "n_warmup=2")
    for word in ("--set", setting)
]
FLAT = [*TINY, "--set", "n_layers=1"]


def call(*words: str):
    result = CliRunner().invoke(app, ["tunnel", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with one tunnel, kept at steps 0 and 4 too."""
    folder = tmp_path_factory.mktemp("runs")
    call("train", "bijection", *FLAT, "--keep", "0,4", "--seed", "3", "--out", str(folder), "-q")
    return folder


def tuned(origin, out) -> tuple[str, ...]:
    """The words that train on from a checkpoint, on a task with fewer observations."""
    few = [word for setting in ("V=3", "L=3", "n_steps=3") for word in ("--set", setting)]
    return ("train", "bijection", "--init", str(origin), *few, "--variant", "tuned", "--out", str(out), "-q")


def test_train_leaves_a_checkpoint_and_its_card_and_nothing_else(tmp_path):
    words = ("train", "bijection", "--arch", "llama", *FLAT, "--limit", "kl_bits=9", "--out", str(tmp_path))
    result = call(*words)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == str(tmp_path / "bijection-llama")
    assert [path.name for path in tmp_path.iterdir()] == ["bijection-llama"]
    left = {path.name for path in (tmp_path / "bijection-llama").iterdir()}
    assert left == {
        "config.json",
        "curve.csv",
        "generation_config.json",
        "model.safetensors",
        "tunnel.json",
    }
    card = read_card(tmp_path / "bijection-llama")
    assert card.parameters["V"] == 3 and card.arch == "llama" and card.recipe["n_steps"] == 6
    assert card.figures["kl_bits"].limit == 9.0
    assert f"{card.figures['kl_bits'].value:.5f}" in result.stdout
    again = call(*words)  # what is finished is read, not trained
    assert again.stdout == result.stdout and "step" not in again.stderr
    with pytest.raises(UsageError, match="there is something else already"):
        call(*(word.replace("kl_bits=9", "kl_bits=8") for word in words))


def test_train_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    steps: list[int] = []

    def stopping(plan, folder, on_step):
        def stop(state: TrainingState) -> None:
            steps.append(state.step)
            if len(steps) == 4:
                raise KeyboardInterrupt

        return train(plan, folder=folder, on_step=stop, save_every=2)

    monkeypatch.setattr(train_tunnel, "train", stopping)
    first = call("train", "bijection", *FLAT, "--out", str(tmp_path))
    assert first.exit_code != 0
    assert [path.name for path in tmp_path.iterdir()] == [".partial"]
    call("train", "bijection", *FLAT, "--out", str(tmp_path))
    assert steps == [1, 2, 3, 4, 3, 4, 5, 6]
    assert (tmp_path / "bijection-gpt-neox" / "tunnel.json").exists()


@pytest.mark.slow
def test_train_never_writes_over_something_else(runs, tmp_path):
    (tmp_path / "bijection-gpt-neox").mkdir()
    for folder, words in (
        (tmp_path, FLAT),
        (runs, [*FLAT, "--seed", "4"]),
        (runs, [*FLAT, "--seed", "3", "--keep", "5"]),
    ):
        with pytest.raises(UsageError) as refusal:
            call("train", "bijection", *words, "--out", str(folder))
        assert "there is something else already" in str(refusal.value)


@pytest.mark.parametrize(("gate", "is_told"), quick([("1e-9", True)], [("1e-9", True), ("99.0", False)]))
def test_train_tells_when_the_curriculum_did_not_end(gate, is_told, tmp_path):
    sizes = [word.replace("V=3", "V=4").replace("n_steps=6", "n_steps=15") for word in FLAT]
    result = call("train", "bijection", *sizes, "--set", f"gate_bits={gate}", "--out", str(tmp_path), "-q")
    assert ("the curriculum ended at stage 1 of 2" in result.stderr) == is_told


@pytest.mark.slow
def test_layers_of_attention_are_a_setting(tmp_path):
    call("train", "bijection", *TINY, "--set", "attention_layers=0", "--variant", "x", "--out", str(tmp_path), "-q")
    assert list(read_card(tmp_path / "bijection-gpt-neox-x").network["attention_layers"]) == [0]


def test_training_starts_from_a_checkpoint_and_its_card_says_so(runs, tmp_path):
    origin = str(runs / "bijection-gpt-neox")
    call(*tuned(origin, tmp_path), "--set", "n_distinct=4")
    card = read_card(tmp_path / "bijection-gpt-neox-tuned")
    assert card.init == {"tunnel": "bijection-gpt-neox", "fingerprint": interp.load(origin, check=False).fingerprint}
    assert card.network == read_card(runs / "bijection-gpt-neox").network
    with pytest.raises(UsageError, match="the checkpoint fixes the network"):
        call("train", "bijection", "--init", origin, *FLAT, "--out", str(tmp_path))
    with pytest.raises(UsageError, match="the task has 10 token ids, the checkpoint 6"):
        call("train", "bijection", "--init", origin, "--set", "V=5", "--out", str(tmp_path))
    with pytest.raises(InterpError, match="nothing-here"):
        call("train", "bijection", "--init", str(tmp_path / "nothing-here"), "--out", str(tmp_path))


@pytest.mark.slow
def test_rebuild_starts_from_the_checkpoint_that_the_card_names_and_from_no_other(runs, tmp_path, monkeypatch):
    home = shutil.copytree(runs, tmp_path / "home")
    call(*tuned(home / "bijection-gpt-neox", home))
    monkeypatch.setattr(Bijection, "checkpoints", home)
    assert "bit for bit the same weights" in call("rebuild", "bijection-gpt-neox-tuned", "-q").stdout
    card = json.loads((home / "bijection-gpt-neox-tuned" / "tunnel.json").read_text())
    named = {**card, "init": {"tunnel": "bijection-gpt-neox", "fingerprint": "0" * 64}}
    (home / "bijection-gpt-neox-tuned" / "tunnel.json").write_text(json.dumps(named))
    with pytest.raises(ModelError, match="the weights shipped under that name have changed since"):
        call("rebuild", "bijection-gpt-neox-tuned", "-q")


def evaluated(path, out, *more):
    result = call("eval", str(path), "--n", "2000", "--out", str(out), *more)
    return result.stdout, interp.open_run(Path(result.stdout.splitlines()[-1]).parent)["tunnel_evaluation"]


def test_eval_measures_a_checkpoint_by_position_and_beyond_its_length(runs, tmp_path):
    said, found = evaluated(runs / "bijection-gpt-neox", tmp_path, "--length", "7")
    kl = found["kl_bits"]
    assert kl.n == 2000 and kl.interval[0] < kl.value < kl.interval[1] and f"{kl.value:.3g} bits" in said
    assert found["kl_bits_jump"].value > 0 and "kl_bits_jump" in said and "at step 6" in said
    assert found.tables["by_position"]["position"].tolist() == [*range(0, 7, 2)]
    assert found.tables["by_position_longer"]["position"].tolist() == [*range(0, 13, 2)]
    assert "kl_bits_jump" not in evaluated(runs / "bijection-gpt-neox", tmp_path)[0]


@pytest.mark.slow
def test_eval_measures_a_step_and_wants_a_card(runs, tmp_path):
    values = []
    for step in (0, 4):
        said, found = evaluated(runs / "bijection-gpt-neox" / "steps" / str(step), tmp_path)
        assert f"at step {step}," in said
        values.append(found["kl_bits"].value)
    assert values[0] != values[1]
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "config.json").write_bytes((runs / "bijection-gpt-neox" / "config.json").read_bytes())
    with pytest.raises(ModelError, match=r"there is no tunnel\.json"):
        call("eval", str(bare))


def test_sweep_prints_a_row_for_each_combination_and_fails_where_one_does(tmp_path):
    words = ("sweep", "bijection", *TINY, "--arch", "gpt-neox,llama", "--kv-heads", "1", "--vary", "n_layers=[1]",
             "--out", str(tmp_path), "-q")  # fmt: skip
    (tmp_path / "bijection-gpt-neox-n_layers1-seed0").mkdir()
    result = call(*words)
    assert result.exit_code == 1
    assert "FAILED: arch = gpt-neox, n_layers = 1, seed 0" in result.stdout
    assert "there is something else already" in result.stdout and "n_kv_heads" in result.stdout
    table = json.loads((tmp_path / "sweep.json").read_text())
    assert [len(cell["runs"]) for cell in table["cells"]] == [0, 1]
    assert f"{table['cells'][1]['figures']['kl_bits']['mean']:.4f} (one seed; " in result.stdout
    with pytest.raises(UsageError, match="gpt-neox has no grouped heads"):
        call(*words, "--crossed")
    fine = call("sweep", "bijection", *FLAT, "--arch", "llama", "--seeds", "2", "--out", str(tmp_path / "fine"))
    assert fine.exit_code == 0
    assert all(f"training {i} of 2, bijection-llama-seed{i - 1}: step" in fine.stderr for i in (1, 2))


@pytest.mark.slow
def test_rebuild_of_a_shipped_tunnel_takes_its_steps_again(runs, monkeypatch, tmp_path):
    monkeypatch.setattr(Bijection, "checkpoints", runs)
    result = call("rebuild", "bijection-gpt-neox", "--out", str(tmp_path), "-q")
    assert "bijection-gpt-neox: bit for bit the same weights, " in result.stdout
    assert {path.name for path in (tmp_path / "bijection-gpt-neox" / "steps").iterdir()} == {"0", "4"}


TRAIN = ("train", "bijection")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", "bijektion"], "Did you mean bijection or "),
        ([*TRAIN, "--arch", "lama"], "Did you mean llama"),
        ([*TRAIN, "--set", "n_step=3"], "Did you mean n_steps"),
        ([*TRAIN, "--set", "foo=3"], "Known: L, V, "),
        ([*TRAIN, "--limit", "kl_bit=3"], "Did you mean kl_bits"),
        ([*TRAIN, "--limit", "kl_bits_beyond_window=3"], "Did you mean kl_bits? "),
        ([*TRAIN, "--limit", "beyond_horizon.tvd=3"], "there is no figure"),
        (["rebuild", "bijection-gptneox"], "Did you mean bijection-gpt-neox "),
        ([*TRAIN, "--set", "V=1"], "V is a whole number, 2 or more."),
        ([*TRAIN, "--set", "V"], "field=value"),
        ([*TRAIN, "--set", "batch=90000000"], "GB of memory"),
        ([*TRAIN, "--set", "L=9000000"], "GB of memory"),
        ([*TRAIN, "--limit", "kl_bits=low"], "Give a number"),
        ([*TRAIN, "--limit", "kl_bits=nan"], "it is not finite"),
        ([*TRAIN, "--set", "replacement=False", "--set", "L=99"], "99 distinct keys"),
        ([*TRAIN, "--seed", "4", "--set", "seed=3"], "the setting seed: it is given more than once: 3 and 4"),
        ([*TRAIN, "--set", "V=3", "--set", "V=4"], "the setting V: it is given more than once"),
        ([*TRAIN, "--keep", "9999"], "the training has the steps 0 to 1200"),
        ([*TRAIN, "--variant", "a b"], "it cannot be part of a model name and a folder name"),
    ],
)
def test_unknown_names_and_impossible_wishes_are_refused_before_anything_is_trained(words, told, tmp_path):
    with pytest.raises(UsageError, match=re.escape(told)) as refusal:
        call(*words, "--out", str(tmp_path))
    assert isinstance(refusal.value, UnknownName) == told.startswith(("Did you", "Known", "there is no"))
    assert list(tmp_path.iterdir()) == []
