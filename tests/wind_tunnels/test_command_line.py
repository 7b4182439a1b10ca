"""`python -m wind_tunnels`: train, eval, rebuild."""

import pytest
from typer.testing import CliRunner

from interp.errors import UnknownName, UsageError
from interp.tunnel import read_card
from wind_tunnels import __main__ as commands
from wind_tunnels.training import Progress, train

TINY = [
    word
    for setting in (
        "V=3",
        "L=4",
        "n_layers=1",
        "d_model=16",
        "n_heads=2",
        "n_steps=6",
        "batch=6",
        "n_copies=3",
        "n_warmup=2",
    )
    for word in ("--set", setting)
]


def call(*words: str):
    result = CliRunner().invoke(commands.app, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_train_leaves_a_checkpoint_and_its_card_and_nothing_else(tmp_path):
    result = call("train", "bijection", "--arch", "llama", *TINY, "--limit", "kl_bits=9", "--out", str(tmp_path))
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == str(tmp_path / "bijection-llama")
    assert [path.name for path in tmp_path.iterdir()] == ["bijection-llama"]
    card = read_card(tmp_path / "bijection-llama")
    assert card.parameters["V"] == 3 and card.arch == "llama" and card.recipe["n_steps"] == 6
    assert card.figures["kl_bits"].limit == 9.0
    assert f"{card.figures['kl_bits'].value:.5f}" in result.stdout


def test_train_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    steps: list[int] = []

    def stopping(*plan, folder, on_step):
        def stop(progress: Progress) -> None:
            steps.append(progress.step)
            if len(steps) == 4:
                raise KeyboardInterrupt

        return train(*plan, folder=folder, on_step=stop, save_every=2)

    monkeypatch.setattr(commands, "train", stopping)
    first = call("train", "bijection", *TINY, "--out", str(tmp_path))
    assert first.exit_code != 0
    assert [path.name for path in tmp_path.iterdir()] == [".partial"]
    call("train", "bijection", *TINY, "--out", str(tmp_path))
    assert steps == [1, 2, 3, 4, 3, 4, 5, 6]
    assert (tmp_path / "bijection-gpt-neox" / "tunnel.json").exists()


def test_train_never_writes_over_a_checkpoint(tmp_path):
    (tmp_path / "bijection-gpt-neox").mkdir()
    with pytest.raises(UsageError) as refusal:
        call("train", "bijection", *TINY, "--out", str(tmp_path))
    assert "there is something already" in str(refusal.value)


@pytest.mark.parametrize(("gate", "is_told"), [("1e-9", True), ("99.0", False)])
def test_train_tells_when_the_curriculum_did_not_end(gate, is_told, tmp_path):
    sizes = ["--set", "V=4", "--set", "n_steps=15", "--set", f"gate_bits={gate}"]
    result = call("train", "bijection", *TINY, *sizes, "--out", str(tmp_path), "-q")
    assert ("the curriculum ended at stage 1 of 2" in result.stderr) == is_told


def test_eval_measures_a_checkpoint(tmp_path):
    call("train", "bijection", *TINY, "--out", str(tmp_path))
    result = call("eval", str(tmp_path / "bijection-gpt-neox"), "--n", "50")
    assert "kl_bits" in result.stdout and "mae_per_sequence_bits" in result.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", "bijektion"], "Did you mean bijection?"),
        (["train", "bijection", "--arch", "lama"], "Did you mean llama?"),
        (["train", "bijection", "--set", "n_step=3"], "Did you mean n_steps"),
        (["rebuild", "bijection-gptneox"], "Did you mean bijection-gpt-neox?"),
    ],
)
def test_unknown_names_list_the_nearest(words, told, tmp_path):
    with pytest.raises(UnknownName) as refusal:
        call(*words, *(["--out", str(tmp_path)]))
    assert told in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("setting", "told"),
    [("V=1", "one symbol leaves nothing to infer"), ("n_heads=3", "3 heads do not divide"), ("V", "field=value")],
)
def test_impossible_sizes_are_refused_before_anything_is_trained(setting, told, tmp_path):
    with pytest.raises(UsageError) as refusal:
        call("train", "bijection", "--set", setting, "--out", str(tmp_path))
    assert told in str(refusal.value)
    assert list(tmp_path.iterdir()) == []
