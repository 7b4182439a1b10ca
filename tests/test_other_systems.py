"""Windows and macOS, simulated: modules and letters that only some systems have are not needed.

Pyrefly checks the code as of Windows, so that functions of Unix are errors; ruff bans what forks.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_layering import MODULES

MISSING = ("resource", "fcntl", "pwd", "grp", "termios", "tty", "pty", "syslog")
"""Modules that Python has on Unix alone."""

SCRIPTS = ("__main__", "programs.compiling")
"""Modules that are no part of what is imported; the second needs Tracr."""

IMPORT_ALL = f"""
import sys
import numpy, pandas, scipy.stats, sklearn, torch, transformers, datasets, plotly.graph_objects, typer, rich
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):  # what our libraries need of them, they have imported or left out by now
    def find_spec(self, name, path=None, target=None):
        if name in {MISSING!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

for name in {MISSING!r}:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Missing())
import importlib
import interp
names = {[name for name in MODULES if not name.endswith(SCRIPTS)]!r}
for name in names:
    importlib.import_module(name)
print(len(names))
"""


def imported_without(extra: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-W", "ignore", "-c", IMPORT_ALL + extra]
    return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)


@pytest.mark.slow
def test_every_module_imports_and_a_run_works_where_unix_modules_are_missing(tmp_path):
    run = "interp.run(n_pool=20, out='runs', quiet=True, settings={'manifold': {'n_null': 20, 'n_permutations': 20}})"
    done = imported_without(run, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 200 and len(list((tmp_path / "runs").glob("*/run.json"))) == 1
    done = imported_without("import resource", tmp_path)  # the test can fail
    assert done.returncode == 1 and "No module named 'resource'" in done.stderr


ENCODINGS = [
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"PYTHONUTF8": "0", "PYTHONIOENCODING": "cp1252"},
]


def in_encoding(encoding: dict[str, str], words: list[str], cwd: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, env={**os.environ, **encoding})


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["C locale", "cp1252"])
def test_help_is_printed_where_letters_are_missing(tmp_path, encoding):
    done = in_encoding(encoding, ["-m", "interp", "run", "--help"], tmp_path)
    assert done.returncode == 0 and b"--probe" in done.stdout and not done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ENCODINGS, ids=["C locale", "cp1252"])
def test_prompts_of_any_language_are_run_where_letters_are_missing(tmp_path, encoding, tiny_folders):
    texts = ["na\N{LATIN SMALL LETTER I WITH DIAERESIS}ve", "\N{HIRAGANA LETTER A} two words"] * 4
    (tmp_path / "p.txt").write_text("\n".join(texts), encoding="utf-8")
    model = ["--model", str(tiny_folders["llama"]), "--prompts", "p.txt"]
    run = ["-m", "interp", "run", *model, "-p", "attention_entropy", "--out", "runs", "-q"]
    done = in_encoding(encoding, run, tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    (page,) = tmp_path.glob("runs/*/report.html")
    assert "<title>" in page.read_text(encoding="utf-8")
    done = in_encoding(encoding, ["-m", "interp", "generate", *model, "--page", "words.html"], tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    assert texts[1] in (tmp_path / "words.html").read_text(encoding="utf-8")
