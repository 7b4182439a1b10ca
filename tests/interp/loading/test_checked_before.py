"""The self-check runs by default, and once for the same files loaded alike by the same code; `--check` asks again."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import interp
from interp.cli.app import app
from interp.errors import ModelError
from interp.loading import load as checked_before
from interp.loading.load import load
from tests.tiny_models import tiny_model

TEXTS = [f"w{i} w{i + 1} w{i + 2}" for i in range(1, 20)]


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.utils._cache_assets.HF_ASSETS_CACHE", str(tmp_path / "assets"))
    return tmp_path / "assets"


@pytest.fixture
def n_checks(monkeypatch, cache):
    """`n_checks()`: how often the self-check has run since this was last asked."""
    ran, real = [], checked_before.check_model
    monkeypatch.setattr(checked_before, "check_model", lambda model: ran.append(model.name) or real(model))

    def count() -> int:
        n = len(ran)
        ran.clear()
        return n

    return count


def kept(cache: Path) -> Path:
    (found,) = cache.rglob("*.json")
    return found


def test_the_same_files_are_checked_once_and_the_checks_say_when_but_without_a_place(folder, n_checks, cache):
    first, second = load(folder), load(folder)
    assert n_checks() == 1
    assert first.checks == tuple(replace(check, when="") for check in second.checks)
    assert {c.name for c in second.checks} >= {"eager", "restored"}
    assert all(c.when for c in second.checks if c.name != "weights")
    shutil.rmtree(cache)
    cache.write_text("a file where the folder should be")
    load(folder), load(folder)
    assert n_checks() == 2


def test_again_runs_the_check_and_keeps_what_it_finds(folder, n_checks, cache):
    load(folder)
    kept(cache).write_text("{}")
    load(folder, check="again")
    load(folder, check="again")
    assert n_checks() == 3
    assert load(folder).checks[-1].when and n_checks() == 0


def test_a_run_checks_its_model_unless_its_files_passed_before(folder, n_checks, tmp_path):
    """The defaults of `interp.run`, and so of `interp run`, leave the self-check on; records say when it was."""
    texts, seen = tmp_path / "texts.txt", []
    texts.write_text("\n".join(TEXTS))
    asked = ["run", str(folder), "-p", "attention_entropy", "--prompts", str(texts), "--draw", "0", "-q"]
    for i, (more, n) in enumerate((((), 1), ((), 0), (("--check",), 1))):
        assert CliRunner().invoke(app, [*asked, "--out", str(tmp_path / f"runs{i}"), *more]).exit_code == 0
        assert n_checks() == n
        (record,) = map(interp.open_run, (tmp_path / f"runs{i}").glob("*/"))
        seen.append({c["name"]: bool(c["when"]) for c in record.selfcheck if c["name"] not in ("weights", "card")})
    assert seen[0] == seen[2] == dict.fromkeys(seen[1], False) and all(seen[1].values())
    assert seen[0].keys() >= {"finite", "captured", "eager", "restored"}


def test_other_weights_configurations_precisions_and_code_are_checked_anew(folder, n_checks, monkeypatch):
    load(folder)
    load(folder, dtype="bfloat16")
    assert n_checks() == 2
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((folder / name).read_bytes())
        os.utime(folder / name, (0, 0))
        load(folder)
        assert n_checks() == 1, name
    monkeypatch.setattr(checked_before, "version", lambda name: "0.0.1")
    load(folder)
    assert n_checks() == 1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"passed": true', '"passed": false', 1),
        lambda text: text.replace("eager", "lazy"),
        lambda text: json.dumps([text]),
        lambda text: json.dumps(json.loads(text) | {"checks": []}),
    ],
)
def test_a_spoilt_file_leads_to_a_new_check_and_is_replaced(folder, n_checks, cache, spoil):
    load(folder)
    whole = kept(cache).read_text()
    kept(cache).write_text(spoil(whole))
    found = load(folder)
    assert n_checks() == 2 and {c.name for c in found.checks} >= {"eager", "restored"}
    assert load(folder).checks[-1].when and n_checks() == 0


def test_a_failed_check_is_never_kept(folder, cache, monkeypatch):
    from interp.self_check import selfcheck

    entries = tuple((*entry[:2], lambda seen: (1.0, 0.0, "error"), entry[3]) for entry in selfcheck._CHECKS)
    monkeypatch.setattr(selfcheck, "_CHECKS", entries)
    for _ in range(2):
        with pytest.raises(ModelError, match="self-check"):
            load(folder)
    assert not [*cache.rglob("*.json")]


def test_models_in_memory_and_changed_classes_are_always_checked(folder, n_checks, monkeypatch):
    module = tiny_model("llama").module
    load(module, tokenizer=None)
    load(module, tokenizer=None)
    assert n_checks() == 2
    load(folder)
    kind = type(load(folder).module.model.layers[0])
    assert n_checks() == 1
    real = kind.forward
    monkeypatch.setattr(kind, "forward", lambda self, *args, **keywords: real(self, *args, **keywords))
    load(folder)
    load(folder)
    assert n_checks() == 2
