"""Several models in a row: found or measured, one in memory at a time, failures told, killed and repeated alike."""

import gc
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from safetensors.numpy import load_file, save_file
from transformers import PreTrainedModel
from typer.testing import CliRunner

import interp
from interp.cli.app import app
from interp.errors import UsageError
from interp.running.several_models import RunOutcome, run_many
from tests.interp.running.test_checkpoints import Follower
from tests.plain_probe import PlainProbe
from tests.reports.comparison.test_comparison import made
from tests.reports.everything import SETTINGS
from tests.tiny_models import tiny_model

MODELS = ["tunnel:recall-gpt-neox", "tunnel:mess3-gpt-neox", "tunnel:hmm-fixed-gpt-neox"]
FAST = {"manifold": SETTINGS["manifold"]}
OPTIONS = {"n_pool": 25, "settings": FAST, "report": False}
WORDS = ["--n-pool", "25", *(f"--set=manifold.{name}={value}" for name, value in FAST["manifold"].items())]


@dataclass(frozen=True)
class Exploding(PlainProbe):
    """Fails on networks of one task, after everything was read."""

    task: str = "recall"

    name: ClassVar[str] = "exploding"

    def analyse(self, base, under):
        if self.task in base.model.name:
            raise RuntimeError("out of luck")
        return super().analyse(base, under)


def networks() -> set[int]:
    """The transformers models that are alive."""
    return {id(each) for each in gc.get_objects() if issubclass(type(each), PreTrainedModel)}


def contents(folder: Path) -> dict[str, object]:
    """What a record says: tables byte for byte, `run.json` without times, which say when and not what."""
    said = json.loads((folder / "run.json").read_text())
    for times in ("created", "timings"):
        del said[times]
    for check in said["selfcheck"]:  # made now, or when these files were first read
        del check["when"]
    tables = {path.name: path.read_bytes() for path in sorted((folder / "tables").iterdir())}
    return {"run.json": said, **tables}


def by_model(out: Path) -> dict[str, dict[str, object]]:
    folders = [path.parent for path in sorted(out.glob("[!.]*/run.json"))]
    found = {str(interp.open_run(folder).model.get("name", "comparison")): contents(folder) for folder in folders}
    assert len(found) == len(folders)  # no record was made twice
    return found


def test_a_record_each_and_one_page_and_nothing_is_done_twice(tmp_path, monkeypatch):
    first = run_many(MODELS[:2], options=OPTIONS, out=tmp_path, quiet=True)
    assert [(o.model, o.is_new) for o in first.outcomes] == [(name, True) for name in MODELS[:2]]
    assert first.comparison.path.joinpath("report.html").is_file()
    again = run_many([*MODELS[:2], MODELS[0]], options=OPTIONS, out=tmp_path, quiet=True)
    assert [(o.model, o.is_new) for o in again.outcomes] == [(name, False) for name in MODELS[:2]]
    assert [r.path for r in again.records] == [r.path for r in first.records]
    assert again.comparison.path == first.comparison.path
    other = run_many(MODELS[:1], options={**OPTIONS, "seed": 1}, out=tmp_path, quiet=True)
    assert other.outcomes[0].is_new and other.comparison is None
    monkeypatch.setattr("interp.running.run.code_hash", lambda probe: "of another code")
    assert run_many(MODELS[:1], options=OPTIONS, out=tmp_path, quiet=True).outcomes[0].is_new


@pytest.mark.slow
def test_progress_says_which_run_and_inside_it_which_stage_and_prompts(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("interp.system.progress._SECONDS_BETWEEN_LINES", 0.0)
    run_many(MODELS[:2], options=OPTIONS, out=tmp_path)
    said = capsys.readouterr().err
    for i, name in enumerate(MODELS[:2], 1):
        task = name.removeprefix("tunnel:").removesuffix("-gpt-neox")
        assert f"run {i} of 2, loading and checking {name}\n" in said
        assert f"run {i} of 2, reading {name}, prompts tunnel:{task}: 25 of 25 after" in said
        assert f"run {i} of 2, analyses: 1 of 1 after" in said
    assert "comparison: 2 of 2 after" in said and "run 3" not in said and "\r" not in said


@pytest.mark.slow
def test_weights_or_prompts_that_changed_under_their_name_are_measured_again(tmp_path, tiny_folders):
    folder, texts = tmp_path / "model", tmp_path / "texts.jsonl"
    shutil.copytree(tiny_folders["llama"], folder)
    lines = [json.dumps({"text": f"w{i} w{2 * i} w3 w{i}"}) for i in range(1, 13)]
    texts.write_text("\n".join(lines))
    os.utime(folder / "model.safetensors", (0, 0))
    options = {**OPTIONS, "n_pool": None, "per_quintile": None, "prompts": str(texts)}

    def is_new():
        (outcome,) = run_many([str(folder)], options=options, out=tmp_path / "out", quiet=True).outcomes
        assert outcome.failure == ""
        return outcome.is_new

    assert is_new() and not is_new()
    texts.write_text("\n".join(lines[:-1]))
    assert is_new() and not is_new()
    weights = load_file(folder / "model.safetensors")
    save_file({name: 1.1 * w for name, w in weights.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    os.utime(folder / "model.safetensors", (0, 0))
    assert is_new() and not is_new()


@pytest.mark.slow
def test_one_model_is_in_memory_at_a_time_even_after_one_that_failed(tmp_path):
    before, heard = networks(), []

    def hear(outcome):
        heard.append((outcome.record is not None, networks() - before))

    gc.disable()  # what is freed is freed by us, and not by a collection that happened to come
    try:
        run_many(MODELS[:2], options={"n_pool": 25, "probes": [Exploding()]}, out=tmp_path, on_outcome=hear, quiet=True)
    finally:
        gc.enable()
    assert heard == [(False, set()), (True, set())]


def test_what_fails_is_told_and_stops_nothing(tmp_path):
    options = {"n_pool": 25, "probes": [Exploding()]}
    many = run_many([MODELS[0], "nonsense", MODELS[1]], options=options, out=tmp_path, quiet=True)
    unforeseen, refused, fine = many.outcomes
    assert "Traceback" in unforeseen.failure and "RuntimeError: out of luck" in unforeseen.failure
    assert refused.failure.startswith("model 'nonsense': there is no model of this name")
    assert fine.record is not None and many.comparison is None and many.failures == (unforeseen, refused)


@pytest.mark.slow
def test_the_command_line_says_what_became_of_each_and_exits_with_1(tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{}", encoding="utf-8")
    words = ["run", "--model", f"{MODELS[0]},{broken}", "-m", MODELS[1], *WORDS, "--out", str(tmp_path / "runs")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    assert f"{MODELS[0]}: measured" in result.stdout and f"FAILED: {broken}" in result.stderr
    assert result.stdout.strip().splitlines()[-1].endswith("report.html") and "against" in result.stdout
    again = CliRunner().invoke(app, [*words[:2], ",".join(MODELS[:2]), *WORDS, *words[-2:]])
    assert again.exit_code == 0 and again.stdout.count(": found") == 2


@pytest.mark.slow
def test_revisions_are_runs_of_their_own(tmp_path, revisions, use_cache):
    use_cache(revisions)
    texts = tmp_path / "texts.jsonl"
    texts.write_text("\n".join(json.dumps({"text": f"w1 w{n} w3 w{2 * n} w5"}) for n in range(6, 16)))
    options = {**OPTIONS, "n_pool": None, "per_quintile": None, "prompts": str(texts)}
    many = run_many(["pythia-70m"], revisions=["main", "step9"], options=options, out=tmp_path, quiet=True)
    assert [o.model for o in many.outcomes] == ["pythia-70m@main", "pythia-70m@step9"]
    main, missing = many.outcomes
    assert main.record is not None and main.record.spec["revision"] == "main"
    assert missing.record is None and "step9" in missing.failure


def test_revisions_are_checkpoints_of_one_run_where_all_probes_follow_them(tmp_path):
    steps = ["0", "64", "512"]
    asked = {"revisions": steps, "options": {"n_pool": 20, "probes": [Follower()]}, "out": tmp_path, "quiet": True}
    (outcome,) = run_many(["tunnel:bijection-gpt-neox"], **asked).outcomes
    assert outcome.failure == "" and list(outcome.record.spec["checkpoints"]) == steps
    assert {f"{step}.norm" for step in steps} <= set(outcome.record.findings["follower"].arrays)
    assert [o.is_new for o in run_many(["tunnel:bijection-gpt-neox"], **asked).outcomes] == [False]


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    "models, more, said",
    [
        ([], {}, "no model is named"),
        (tiny_model("llama"), {}, "a Model is among the models"),
        (MODELS[:1], {"options": {"probs": ["manifold"]}}, "Did you mean probes"),
        (MODELS[:1], {"options": {"out": "x"}}, "interp.run_many has an argument of this name"),
        (MODELS[:1], {"options": {"probes": ["manifolt"]}}, "Did you mean manifold"),
        (MODELS[:1], {"revisions": ["a"], "options": {"revision": "b"}}, "both select the weights"),
    ],
)
def test_wrong_use_is_refused_before_anything_is_measured(tmp_path, models, more, said):
    with pytest.raises(UsageError) as refused:
        run_many(models, **more, out=tmp_path, quiet=True)
    assert said in str(refused.value) and not any(tmp_path.iterdir())


def test_processes_and_sets_that_do_not_go_together_are_refused(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="both select what is read"):
        run_many([MODELS[0]], prompts=("mixed", "fiction"), options={"prompts": "mixed"})
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="several models in 2 processes"):
        run_many(MODELS[:2], options=OPTIONS, out=tmp_path, quiet=True)


@pytest.mark.slow
def test_named_sets_are_runs_of_their_own(stories, tmp_path):
    words = ["run", "-m", str(stories), *WORDS, "--prompts", "fiction,code,prose", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    (folder,) = tmp_path.glob("comparison-*")
    table = interp.open_run(folder).findings["comparison"].tables["differences"]
    assert dict(zip(table["group"], table["against"], strict=True)) == {
        "fiction": "", "code": "fiction", "prose": "fiction"
    }  # fmt: skip


def test_several_models_are_compared_on_the_same_set(monkeypatch, tmp_path):
    def outcome(name, asked):
        folder = tmp_path / name.replace(" ", "-")
        return RunOutcome(name, made(str(asked.model), 1.0).write(folder), True)

    monkeypatch.setattr("interp.running.several_models._outcome", outcome)
    many = run_many(["a", "b"], prompts=["one", "two", "one"], out=tmp_path, quiet=True)
    table = many.comparison.findings["comparison"].tables["differences"]
    assert dict(zip(table["group"], table["against"], strict=True)) == {
        "a on one": "", "a on two": "", "b on one": "a on one", "b on two": "a on two"
    }  # fmt: skip
