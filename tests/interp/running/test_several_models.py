"""Several models in a row: found or measured, one in memory at a time, failures told, killed and repeated alike."""

import gc
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from interp.wind_tunnels import Bijection
from safetensors.numpy import load_file, save_file
from scipy import stats
from transformers import PreTrainedModel
from typer.testing import CliRunner

import interp
from interp.cli.app import app
from interp.errors import UsageError
from interp.prompting.pools import part_of, parts
from interp.running.several_models import run_many
from tests.interp.running.test_checkpoints import Follower
from tests.plain_probe import PlainProbe
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


def test_parts_processes_and_sets_that_do_not_go_together_are_refused(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="one run of --splits 3: these are 3 runs"):
        interp.run(probes=["manifold"], n_pool=25, splits="3", out=tmp_path, quiet=True)
    record = interp.run(probes=["manifold"], settings=FAST, n_pool=25, splits="2/3", out=tmp_path, quiet=True)
    assert record.prompts["n"] == 8 and "--splits 2/3" in record.spec["command"]
    with pytest.raises(UsageError, match="both select what is read"):
        run_many([MODELS[0]], prompts=("mixed", "fiction"), options={"prompts": "mixed"})
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="several models in 2 processes"):
        run_many(MODELS[:2], options=OPTIONS, out=tmp_path, quiet=True)


def test_parts_are_disjoint_make_the_whole_set_and_are_the_same_again():
    whole = interp.sampled_prompts(Bijection(), n=23)
    dealt = [part_of(whole, part, seed=3) for part in parts("4")]
    ids = [[prompt.token_ids for prompt in each.prompts] for each in dealt]
    assert sorted(map(len, ids)) == [5, 6, 6, 6] and parts("4") == ("1/4", "2/4", "3/4", "4/4")
    together = [one for each in ids for one in each]
    assert sorted(together) == sorted(prompt.token_ids for prompt in whole.prompts)
    assert ids[1] == [prompt.token_ids for prompt in part_of(whole, "2/4", seed=3).prompts]
    assert ids[1] != [prompt.token_ids for prompt in part_of(whole, "2/4", seed=4).prompts]
    rows = [each.posterior for each in dealt]
    assert sum(map(len, rows)) == len(whole.posterior), "what is known exactly of each goes along"


@pytest.mark.slow
def test_splits_are_runs_of_one_model_with_their_spread_over_parts(tmp_path):
    result = CliRunner().invoke(app, ["run", *WORDS, "--n-pool", "60", "--splits", "3", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "over prompt sets" in result.output and "against the reference" not in result.output
    folders = [path.parent for path in tmp_path.glob("[!.]*/run.json")]
    records = {r.spec.get("splits"): r for r in map(interp.open_run, folders) if r.model}
    assert set(records) == {"1/3", "2/3", "3/3"}
    (comparison,) = (r for r in map(interp.open_run, folders) if not r.model)
    table = comparison.findings["comparison"].tables["prompt_sets"]
    row = table.where((table["probe"] == "manifold") & (table["name"] == "pc1_plus_pc2_share"))
    values = [records[f"{i}/3"].findings["manifold"]["pc1_plus_pc2_share"].value for i in (1, 2, 3)]
    half = stats.t.ppf(0.975, 2) * np.std(values, ddof=1) / np.sqrt(3)
    assert row["mean"][0] == pytest.approx(np.mean(values)) and row["deviation"][0] == pytest.approx(
        np.std(values, ddof=1)
    )
    assert (row["low"][0], row["high"][0]) == pytest.approx((np.mean(values) - half, np.mean(values) + half))
    assert row["sets"][0] == "part 1/3; part 2/3; part 3/3" and row["n_sets"][0] == 3 and row["reason"][0] == ""
    assert any("measured on 3 sets of prompts" in note for note in comparison.findings["comparison"].notes)
    again = CliRunner().invoke(app, ["run", *WORDS, "--n-pool", "60", "--splits", "3", "--out", str(tmp_path)])
    assert again.output.count("found, ") == 3 and "measured, " not in again.output


@pytest.mark.slow
def test_two_sets_have_no_interval_over_sets_and_say_why(tmp_path):
    done = run_many([MODELS[0]], options={**OPTIONS, "splits": "2"}, out=tmp_path, quiet=True)
    assert [outcome.model for outcome in done.outcomes] == [f"{MODELS[0]} on part {i}/2" for i in (1, 2)]
    table = done.comparison.findings["comparison"].tables["prompt_sets"]
    assert np.isnan(table["low"]).all() and "p" not in table.columns
    assert set(table["reason"]) <= {"2 sets are too few to estimate a spread", "a set without the number"}


@pytest.mark.slow
def test_named_sets_are_runs_of_their_own(stories, tmp_path):
    words = ["run", "-m", str(stories), *WORDS, "--prompts", "fiction,code,prose", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    (folder,) = tmp_path.glob("comparison-*")
    table = interp.open_run(folder).findings["comparison"].tables["prompt_sets"]
    assert set(table["sets"]) == {"fiction; code; prose"} and set(table["n_sets"]) == {3}
