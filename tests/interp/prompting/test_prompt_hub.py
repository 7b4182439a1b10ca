"""Data sets from hubs and folders: the rows a file would give, a seeded draw, and every refusal in words."""

import json
import logging
import shutil

import numpy as np
import pytest
from datasets import config as datasets_config
from datasets import load_dataset_builder, utils

from interp.errors import UsageError
from interp.prompting.hub import HubName
from tests.hub_server import GATED, Fault, serving
from tests.interp.prompting.test_prompt_files import as_jsonl, as_parquet
from tests.named_prompts import resolve_prompts

ROWS = [{"text": f"text {i} and", "domain": "ab"[i % 2], "k": i, "h_bits": i / 4} for i in range(40)]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache of `datasets` for every test."""
    folder = tmp_path / "cache of datasets"
    monkeypatch.setattr(datasets_config, "HF_DATASETS_CACHE", folder)
    return folder


def folder_of(home, rows, name="train.jsonl"):
    """A folder `set` under `home` with the rows in a file of that name; its path."""
    path = home / "set" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(as_parquet(rows) if path.suffix == ".parquet" else as_jsonl(rows).encode())
    return path.parent


def configured(home, *names):
    folder = home / "several"
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "data.jsonl").write_text(as_jsonl([{"text": f"from {name}"}]))
    listed = "".join(f"- config_name: {name}\n  data_files: {name}/data.jsonl\n" for name in names)
    (folder / "README.md").write_text(f"---\nconfigs:\n{listed}---\n")
    return folder


def refusal(name, **options):
    with pytest.raises(UsageError) as caught:
        resolve_prompts(name, **options)
    return caught.value


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_data_set_gives_the_texts_columns_and_hash_of_a_file_of_its_rows(tmp_path, ending):
    folder = folder_of(tmp_path, ROWS, f"train.{ending}")
    found, file = resolve_prompts(f"hf:{folder}"), resolve_prompts(folder / f"train.{ending}")
    assert [p.text for p in found] == [row["text"] for row in ROWS]
    assert found.units == file.units == {"domain": "label", "k": "1", "h_bits": "bits"}
    assert found.content_hash == file.content_hash
    assert found.source == f"all 40 rows of {folder} (train)" and found.seed is None


def test_a_pool_is_the_draw_of_a_file_or_of_the_first_rows(tmp_path):
    folder = folder_of(tmp_path, ROWS)
    found = resolve_prompts(f"hf:{folder}", n_pool=12, seed=5)
    file = resolve_prompts(folder / "train.jsonl", n_pool=12, seed=5)
    assert found.content_hash == file.content_hash != resolve_prompts(f"hf:{folder}", n_pool=12).content_hash
    assert found.source == f"12 drawn (seed 5) from all 40 rows of {folder} (train)" and found.seed == 5
    assert "41 prompts of hf:" in str(refusal(f"hf:{folder}", n_pool=41))
    folder = folder_of(tmp_path, [{"text": f"row {i} and"} for i in range(12_000)], "train.parquet")
    for n_pool, n in ((None, 1000), (30, 30)):
        found = resolve_prompts(f"hf:{folder}", n_pool=n_pool, seed=2)
        places = [int(p.text.split()[1]) for p in found]
        expected = np.random.default_rng(2).permutation(10 * n)[:n]
        assert places == sorted(expected.tolist())
        assert found.source == f"{n} drawn (seed 2) from the first {10 * n} rows of {folder} (train)"


def test_configuration_split_and_column_are_parts_of_the_name(tmp_path):
    folder = folder_of(tmp_path, [{"question": "why is", "answer": "so"}, {"question": "who is", "answer": "he"}])
    folder_of(tmp_path, [{"question": "what is", "answer": "it"}], "test.jsonl")
    found = resolve_prompts(f"hf:{folder}::test:question")
    assert [(p.text, p.columns["answer"]) for p in found] == [("what is", "it")]
    assert [p.text for p in resolve_prompts(f"hf:{folder}:::question")] == ["why is", "who is"]
    assert [p.text for p in resolve_prompts(f"hf:{folder}", text_column="answer")] == ["so", "he"]
    assert [p.text for p in resolve_prompts(f"hf:{configured(tmp_path, 'a', 'b')}:b")] == ["from b"]
    assert "says 'question'" in refusal(f"hf:{folder}:::question", text_column="answer").found


def test_names_and_messages_say_every_part(tmp_path):
    assert refusal("hf:").found == refusal("hf::train").found == "it names no data set"
    assert refusal("hf:a:b:c:d:e").found == "it has 5 parts"
    assert HubName.parse("hf:gsm8k:main:train:question") == HubName("gsm8k", "main", "train", "question")
    assert HubName.parse("hf:owner/name::test") == HubName("owner/name", None, "test", None)
    for name in ("hf:a", "hf:a:b", "hf:a::c", "hf:a:::d", "hf:a:b:c:d"):
        assert str(HubName.parse(name)) == name
    folder = folder_of(tmp_path, [{"question": "a", "answer": "b"}])
    assert str(refusal(f"hf:{folder}::train")) == (
        f"the prompts hf:{folder}::train: it has no column 'text'; it has 'question', 'answer'\n"
        "  Name the one that holds the texts as the fourth part. The form is hf:PATH:CONFIG:SPLIT:COLUMN; "
        "parts at the end can go, others be empty (hf:folder::train:text)."
    )


def test_columns_that_no_prompt_can_hold_are_left_out_and_named(tmp_path):
    rows = [{"text": f"t {i}", "k": i, "parts": [i], "length": 7, "gap": None if i else 1} for i in range(3)]
    found = resolve_prompts(f"hf:{folder_of(tmp_path, rows)}")
    assert found.units == {"k": "1"}
    assert [dict(p.columns) for p in found] == [{"k": i} for i in range(3)]
    assert found.source.endswith(
        "columns left out: 'parts' (values of the type List), 'length' (every capture has a column of this name that "
        "it fills itself), 'gap' (the column 'gap' holds nothing)"
    )


def test_rows_without_a_text_are_passed_over(tmp_path):
    texts = ["one", "", "two", None, " \n", "three"]
    found = resolve_prompts(f"hf:{folder_of(tmp_path, [{'text': t, 'k': i} for i, t in enumerate(texts)])}")
    assert [(p.text, p.columns["k"]) for p in found] == [("one", 0), ("two", 2), ("three", 5)]
    assert "all 6 rows" in found.source and "; 3 rows without a text are passed over" in found.source


def test_texts_are_held_to_the_rules_of_a_file_with_their_row(tmp_path):
    folder = folder_of(tmp_path, [{"text": "a"}, {"text": "b\0c"}])
    assert f"hf:{folder}, row 2: 'text' holds the control character U+0000" in str(refusal(f"hf:{folder}"))
    folder = folder_of(tmp_path, [{"text": 1}, {"text": 2}])
    assert "row 1: 'text' holds 1, which is not a text" in str(refusal(f"hf:{folder}"))
    folder = folder_of(tmp_path, [{"text": ["a"]}])
    assert refusal(f"hf:{folder}").found == "'text' holds values of the type List, not texts"
    folder = folder_of(tmp_path, [{"text": "a"}] * 3)
    assert "all 3 prompts are the same text" in str(refusal(f"hf:{folder}"))


def test_splits_and_configurations_that_are_missing_are_refused_with_those_there_are(tmp_path):
    folder = folder_of(tmp_path, ROWS, "test.jsonl")
    assert refusal(f"hf:{folder}::train").found == "it has no split 'train'; it has test"
    assert len(resolve_prompts(f"hf:{folder}")) == 40
    folder_of(tmp_path, ROWS, "validation.jsonl")
    assert refusal(f"hf:{folder}").found == "no split is named, and it has validation, test"
    folder_of(tmp_path, ROWS[:3])
    assert len(resolve_prompts(f"hf:{folder}")) == 3
    assert "(no slices)" in refusal(f"hf:{folder}::train[5]").fix
    folder = configured(tmp_path, "main", "socratic")
    for name in (f"hf:{folder}", f"hf:{folder}:mian", f"hf:{folder_of(tmp_path, ROWS)}:mian"):
        found = refusal(name)
        assert "'main', 'socratic'" in found.found or "'default'" in found.found
        assert found.fix.startswith("Name a configuration as the second part")


def test_files_and_folders_that_hold_no_data_are_refused(tmp_path):
    folder = folder_of(tmp_path, ROWS)
    assert "Couldn't find any data file" in refusal(f"hf:{folder}/train.jsonl").found
    (tmp_path / "empty").mkdir()
    assert "doesn't contain any data files" in refusal(f"hf:{tmp_path}/empty").found
    (tmp_path / "script").mkdir()
    (tmp_path / "script" / "script.py").write_text("raise SystemExit")
    assert "scripts are no longer supported" in refusal(f"hf:{tmp_path}/script").found
    for content in ("", '{"text": "a"}\n{"text": \n'):
        (folder / "train.jsonl").write_text(content)
        assert refusal(f"hf:{folder}").found.startswith("`datasets` cannot read it (")
    folder_of(tmp_path, [{"text": ""}])
    assert refusal(f"hf:{folder}").found == "there is no prompt in it"


def test_nothing_is_logged_or_written_and_what_was_set_is_restored(tmp_path, capfd):
    heard = []
    handler = logging.Handler()
    handler.emit = heard.append
    loggers = [logging.getLogger(name) for name in ("datasets", "huggingface_hub")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        folder = folder_of(tmp_path, ROWS)
        resolve_prompts(f"hf:{folder}")
        (folder / "train.jsonl").write_text('{"text": \n')
        refusal(f"hf:{folder}")
        assert heard == [] and capfd.readouterr() == ("", "")
        assert {logger.level for logger in loggers} == {logging.INFO} and not utils.are_progress_bars_disabled()
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)


def test_without_a_network_the_cache_of_datasets_serves(tmp_path, cache):
    lost = refusal("hf:owner/name:main")
    assert "Couldn't reach 'owner/name' on the Hub (OfflineModeIsEnabled)" in lost.found
    builder = load_dataset_builder(str(folder_of(tmp_path, ROWS)))
    utils.disable_progress_bars()
    builder.download_and_prepare()
    utils.enable_progress_bars()
    home = cache / "owner___name" / "main" / "0.0.0" / "hash"
    shutil.copytree(builder.cache_dir, home)
    info = json.loads((home / "dataset_info.json").read_text())
    (home / "dataset_info.json").write_text(json.dumps(info | {"config_name": "main", "dataset_name": "name"}))
    (home / "set-train.arrow").rename(home / "name-train.arrow")
    found = resolve_prompts("hf:owner/name:main:train")
    assert found.content_hash == resolve_prompts(tmp_path / "set" / "train.jsonl").content_hash
    assert found.source == "all 40 rows of owner/name (main, train)"


def test_the_hub_is_streamed_at_its_commit_and_refuses_in_words(monkeypatch, use_hub, tmp_path):
    folder = folder_of(tmp_path, ROWS)
    listed = "".join(f"- config_name: {name}\n  data_files: train.jsonl\n" for name in ("main", "more"))
    (folder / "README.md").write_text(f"---\nconfigs:\n{listed}---\n")
    repositories = {"owner/open": folder, "owner/gated": GATED}
    with serving(repositories, Fault("/owner/failing", "status", times=99)) as hub:
        use_hub(hub.url)
        monkeypatch.setattr(datasets_config, "HF_ENDPOINT", hub.url)
        monkeypatch.setattr(datasets_config, "HF_HUB_OFFLINE", False)
        found = resolve_prompts("hf:owner/open:main:train")
        assert found.content_hash == resolve_prompts(folder / "train.jsonl").content_hash
        assert found.source == "all 40 rows of owner/open (main, train, revision c0ffee000000)"
        assert "'main', 'more'" in refusal("hf:owner/open").found
        assert "'owner/none' doesn't exist on the Hub" in refusal("hf:owner/none").found
        assert "gated" in refusal("hf:owner/gated").found
        assert "cannot be accessed" in refusal("hf:owner/failing").found
    assert not datasets_config.HF_HUB_OFFLINE
