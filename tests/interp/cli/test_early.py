"""Wrong words are refused before torch is imported."""

import subprocess
import sys

import pytest

WRONG = {
    "probe": (["--probe", "manifol"], "Did you mean manifold?"),
    "field": (["--probe", "manifold", "--set", "manifold.nope=1"], "there is no field of manifold of this name"),
    "value": (["--probe", "value_axis", "--set", "value_axis.n_splits=-1"], "value_axis.n_splits = -1"),
    "set": (["--prompts", "mixd"], "Did you mean mixed?"),
    "file": (["--prompts", "missing.jsonl"], "No such file or directory"),
    "line": (["--prompts", "broken.jsonl"], "broken.jsonl, line 2"),
    "target": (["--prompts", "short.jsonl", "--probe", "manifold", "--set", "manifold.target=k"], "Name one of domain"),
    "model": (["--model", "pythia-411m"], "Did you mean pythia-410m"),
    "one of several models": (["--model", "gpt2,nosuch"], "model 'nosuch'"),
    "folder": (["--model", "./nothere"], "there is no such folder"),
    "layer of a tunnel": (["--probe", "manifold", "--set", "manifold.layer=99"], "the model has layers 0 to 2"),
    "layer of an alias": (["--model", "gpt2", "--set", "manifold.layer=12"], "the model has layers 0 to 11"),
    "precision": (["--dtype", "bf17"], "Did you mean bfloat16"),
    "device": (["--device", "gpu"], "Use cpu, cuda, cuda:1 ... or mps."),
    "number of a device": (["--device", "cuda:x"], "there is no such kind of device"),
    "tunnel": (["--model", "tunnel:nosuch"], "there is no tunnel of this name"),
}

SCRIPT = """
import sys
from interp.cli.app import main
sys.argv = ["interp", *sys.argv[1:]]
try:
    main()
finally:
    print("torch" in sys.modules, "transformers" in sys.modules)
"""


@pytest.mark.parametrize(
    ("what", "command"), [*((what, "run") for what in WRONG), *((what, "plan") for what in ("field", "file", "model"))]
)
def test_a_wrong_word_is_refused_before_torch_is_imported(what, command, tmp_path):
    (tmp_path / "broken.jsonl").write_text('{"text": "one"}\n{"text": \n', encoding="utf-8")
    (tmp_path / "short.jsonl").write_text('{"text": "one", "domain": "a"}\n', encoding="utf-8")
    words, said = WRONG[what]
    called = [sys.executable, "-c", SCRIPT, command, *words]
    done = subprocess.run(called, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode in (1, 2) and said in done.stderr, done.stderr
    assert done.stdout.split() == ["False", "False"]


def test_the_version_is_told_at_once():
    from importlib.metadata import version

    called = [sys.executable, "-m", "interp", "--version"]
    assert subprocess.run(called, capture_output=True, text=True, timeout=60).stdout.split() == [
        "interp",
        version("interp"),
    ]
